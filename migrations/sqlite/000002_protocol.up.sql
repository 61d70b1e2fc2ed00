-- op: the update that last wrote the row; nonce: the acquisition that did;
-- stale_after: microseconds from the last beat until others may reclaim, NULL is 30 s.
ALTER TABLE refs ADD COLUMN op TEXT;
ALTER TABLE locks ADD COLUMN nonce TEXT;
ALTER TABLE locks ADD COLUMN stale_after INTEGER;

-- The largest token ever given out: a clock that steps back never yields a smaller one.
CREATE TABLE token_mark (
    id   INTEGER PRIMARY KEY CHECK (id = 0),
    mark INTEGER NOT NULL
) STRICT;

INSERT INTO token_mark VALUES (0, 0);
