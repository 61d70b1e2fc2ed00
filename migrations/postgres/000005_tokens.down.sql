LOCK TABLE token_origin IN ACCESS EXCLUSIVE MODE;

CREATE TABLE IF NOT EXISTS token_marks (
    shard smallint PRIMARY KEY,
    mark  timestamptz NOT NULL
) WITH (fillfactor = 10);

INSERT INTO token_marks
SELECT n, greatest(origin + txid_current() * interval '1 microsecond', reached, (SELECT max(token) FROM locks))
FROM token_origin, generate_series(0, 1023) n ON CONFLICT DO NOTHING;

DROP TABLE token_origin;
