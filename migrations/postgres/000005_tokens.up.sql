-- A token is the origin plus a microsecond per transaction ID, up to that of the
-- acquisition: larger than all before it, and the origin is written once a second
-- instead of a mark per acquisition. reached: what tokens had reached then.
CREATE TABLE IF NOT EXISTS token_origin (
    id      smallint PRIMARY KEY CHECK (id = 1),
    origin  timestamptz NOT NULL,
    reached timestamptz NOT NULL
) WITH (fillfactor = 10);

-- No acquisition may come between the look at the marks and their end.
LOCK TABLE token_marks IN ACCESS EXCLUSIVE MODE;

INSERT INTO token_origin
SELECT 1, latest - txid_current() * interval '1 microsecond', latest
FROM greatest(clock_timestamp(), (SELECT max(mark) FROM token_marks), (SELECT max(token) FROM locks)) AS latest
ON CONFLICT DO NOTHING;

DROP TABLE token_marks;
