-- This step can be repeated, as the step before. If a table lacks a column, the name means the column of the query around it.

-- word: when another site began to testify about this site. The word counts while it is later than seen.
CREATE TABLE new_witnesses (
    name    TEXT NOT NULL PRIMARY KEY,
    server  TEXT NOT NULL,
    seen    INTEGER,
    away    INTEGER NOT NULL,
    without INTEGER NOT NULL,
    since   INTEGER NOT NULL,
    word    INTEGER
) STRICT, WITHOUT ROWID;

INSERT INTO new_witnesses
SELECT w.name, w.server, w.seen, w.away, w.without, w.since, (SELECT word FROM witnesses AS same WHERE same.name = w.name)
FROM witnesses AS w, (SELECT NULL AS word) AS absent;

DROP TABLE witnesses;
ALTER TABLE new_witnesses RENAME TO witnesses;

-- policy: for which sites a new server waits, NULL for every site. policy_since: since when.
CREATE TABLE new_admission (
    id           INTEGER PRIMARY KEY CHECK (id = 1),
    server       TEXT NOT NULL,
    since        INTEGER NOT NULL,
    policy       TEXT,
    policy_since INTEGER
) STRICT;

INSERT INTO new_admission
SELECT a.id, a.server, a.since, (SELECT policy FROM admission), (SELECT policy_since FROM admission)
FROM admission AS a, (SELECT NULL AS policy, NULL AS policy_since) AS absent;

DROP TABLE admission;
ALTER TABLE new_admission RENAME TO admission;
