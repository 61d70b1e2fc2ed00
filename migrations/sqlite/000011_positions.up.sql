-- The triggers of version 8 again, for a database that has lost them: a table that is restored alone comes without. This step can be
-- repeated.
DROP TRIGGER IF EXISTS history_replaced;
DROP TRIGGER IF EXISTS history_inserted;
DROP TRIGGER IF EXISTS history_updated;
DROP TRIGGER IF EXISTS history_deleted;
DROP TRIGGER IF EXISTS history_renamed;
DROP VIEW IF EXISTS new_change;

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
