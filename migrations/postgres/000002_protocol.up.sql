-- op: the update that last wrote the row; resolves a lost reply.
ALTER TABLE refs ADD COLUMN IF NOT EXISTS op text;

-- nonce: the acquisition that wrote the row; resolves a lost reply.
-- stale_after: microseconds after the last beat from which others may reclaim; NULL is 30 s.
-- waiting: the notification channels of processes that wait for the lock, first come first.
ALTER TABLE locks ADD COLUMN IF NOT EXISTS nonce text;
ALTER TABLE locks ADD COLUMN IF NOT EXISTS stale_after bigint;
ALTER TABLE locks ADD COLUMN IF NOT EXISTS waiting text[];

-- The largest token ever given out, per shard of the hashed (project, ref), so
-- that a clock that steps back never yields a smaller one. Many rows, few to a
-- page: no two acquisitions queue for the same one often.
CREATE TABLE IF NOT EXISTS token_marks (
    shard smallint PRIMARY KEY,
    mark  timestamptz NOT NULL
) WITH (fillfactor = 10);

INSERT INTO token_marks SELECT n, '-infinity' FROM generate_series(0, 1023) n ON CONFLICT DO NOTHING;
