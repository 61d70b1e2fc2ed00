-- The nonce keeps its length: some may be longer than before.
ALTER TABLE locks DROP COLUMN waiting;
