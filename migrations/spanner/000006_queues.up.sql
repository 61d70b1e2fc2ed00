-- waiting: the places of those who wait for the lock, in their order.
-- nonce: of a row that is kept for one who waits, its place, which has an owner of any length.
ALTER TABLE locks ADD COLUMN IF NOT EXISTS waiting ARRAY<STRING(MAX)>;
ALTER TABLE locks ALTER COLUMN nonce STRING(MAX);
