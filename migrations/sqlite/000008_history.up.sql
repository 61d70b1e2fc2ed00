-- Every change of a ref's value, written by the triggers below in the transaction that makes it, whatever program that is.
-- old, new: '' for no row. latest: the latest time of a change up to this one, since clocks are set back. op: the operation, as in refs; NULL if it was not made through the library.
CREATE TABLE history (
    project  TEXT NOT NULL,
    ref      TEXT NOT NULL,
    position INTEGER NOT NULL,
    old      TEXT NOT NULL,
    new      TEXT NOT NULL,
    time     INTEGER NOT NULL,
    latest   INTEGER NOT NULL,
    op       TEXT,
    PRIMARY KEY (project, ref, position)
) STRICT, WITHOUT ROWID;

CREATE INDEX history_position ON history (position, project, ref);
CREATE INDEX history_project ON history (project, position, ref);
CREATE INDEX history_latest ON history (latest, position);

-- position, time, op: of the last change. Changes with the same op and time are of one request and have one position;
-- any other has the next. latest: as in history. pruned: the first position from which on no change was deleted; pruned_time: the latest time of one
-- that was. replaced: what the row that is being inserted replaces.
CREATE TABLE history_state (
    id          INTEGER PRIMARY KEY CHECK (id = 0),
    position    INTEGER NOT NULL,
    time        INTEGER NOT NULL,
    latest      INTEGER NOT NULL,
    op          TEXT,
    pruned      INTEGER NOT NULL,
    pruned_time INTEGER,
    replaced    TEXT
) STRICT;

INSERT INTO history_state (id, position, time, latest, pruned) VALUES (0, 0, 0, 0, 1);

-- The spans of positions without a break; the last is the present one. id: random.
CREATE TABLE epochs (
    first    INTEGER PRIMARY KEY,
    id       TEXT NOT NULL UNIQUE,
    began    INTEGER NOT NULL,
    asked_by TEXT NOT NULL,
    reason   TEXT NOT NULL
) STRICT;

INSERT INTO epochs VALUES (1, lower(hex(randomblob(16))), CAST(unixepoch('subsec') * 1000000 AS INTEGER), '', '');

-- Readers whose unread changes are kept. read: the last position that was read.
CREATE TABLE followers (
    name   TEXT NOT NULL PRIMARY KEY,
    cursor TEXT NOT NULL,
    read   INTEGER NOT NULL,
    seen   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- What is inserted here becomes a row of the history. time: NULL for now.
CREATE VIEW new_change (project, ref, old, new, time, op) AS SELECT '', '', '', '', 0, '' WHERE false;

CREATE TRIGGER new_change INSTEAD OF INSERT ON new_change BEGIN
    UPDATE history_state SET
        position = position + 1,
        time = coalesce(new.time, CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
        latest = max(latest, coalesce(new.time, CAST(unixepoch('subsec') * 1000000 AS INTEGER))),
        op = new.op
    WHERE new.op IS NULL OR op IS NOT new.op OR time IS NOT new.time OR EXISTS (
        SELECT 1 FROM history AS h WHERE h.project = new.project AND h.ref = new.ref AND h.position = history_state.position);
    INSERT INTO history
    SELECT new.project, new.ref, s.position, new.old, new.new, s.time, s.latest, new.op FROM (SELECT 1) LEFT JOIN history_state AS s;
END;

-- INSERT OR REPLACE deletes the row that is in its way without a trigger. This one runs before that.
CREATE TRIGGER history_replaced BEFORE INSERT ON refs BEGIN
    UPDATE history_state SET replaced = (SELECT value FROM refs WHERE project = new.project AND ref = new.ref);
END;

CREATE TRIGGER history_inserted AFTER INSERT ON refs BEGIN
    INSERT INTO new_change VALUES (new.project, new.ref, (SELECT coalesce(replaced, '') FROM history_state), new.value, new.time, new.op);
END;

-- An operation writes a ref once. Whoever left op as it was is another program.
CREATE TRIGGER history_updated AFTER UPDATE OF value ON refs BEGIN
    INSERT INTO new_change VALUES (new.project, new.ref, old.value, new.value,
        iif(new.op IS old.op AND new.time IS old.time, NULL, new.time), iif(new.op IS old.op, NULL, new.op));
END;

-- The library says by a newline behind op that op and time are those of the removal. Purging a tombstone is no change.
CREATE TRIGGER history_deleted AFTER DELETE ON refs WHEN ltrim(old.value, '0') <> '' OR length(old.value) NOT IN (40, 64) BEGIN
    UPDATE history_state SET replaced = NULL;
    INSERT INTO new_change VALUES (old.project, old.ref, old.value, '',
        iif(substr(old.op, -1) = char(10), old.time, NULL), iif(substr(old.op, -1) = char(10), rtrim(old.op, char(10)), NULL));
END;

CREATE TRIGGER history_renamed BEFORE UPDATE OF project, ref ON refs WHEN new.project <> old.project OR new.ref <> old.ref BEGIN
    SELECT RAISE(ABORT, 'the name of a ref cannot be changed: insert a row and delete the other');
END;
