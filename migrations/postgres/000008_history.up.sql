-- Positions of changes from first on, until the next epoch. id: random; began, asked_by, reason: of whoever began it.
CREATE TABLE IF NOT EXISTS epochs (
    first    bigint NOT NULL PRIMARY KEY,
    id       text COLLATE "C" NOT NULL,
    began    timestamptz NOT NULL,
    asked_by text NOT NULL,
    reason   text NOT NULL
);

INSERT INTO epochs (first, id, began, asked_by, reason)
SELECT pg_current_xact_id()::text::bigint, gen_random_uuid()::text, clock_timestamp(), '', 'the history begins' WHERE NOT EXISTS (SELECT FROM epochs);

-- pruned: no change from this position on was deleted. pruned_time: the latest time of one that was. shift: what positions are ahead of the server's transaction IDs.
CREATE TABLE IF NOT EXISTS history_state (
    id          smallint NOT NULL PRIMARY KEY CHECK (id = 1),
    pruned      bigint NOT NULL,
    pruned_time timestamptz,
    shift       bigint NOT NULL
);

-- Each change of a ref. position: of the transaction that made it. old, new: '' is no row.
-- op: the operation, as in refs.
CREATE TABLE IF NOT EXISTS history (
    project  text COLLATE "C" NOT NULL,
    ref      text COLLATE "C" NOT NULL,
    position bigint NOT NULL DEFAULT pg_current_xact_id()::text::bigint,
    old      text COLLATE "C" NOT NULL,
    new      text COLLATE "C" NOT NULL,
    time     timestamptz NOT NULL,
    op       text COLLATE "C",
    PRIMARY KEY (project, ref, position)
);

-- A row that was lost is made again above all changes: which of them were pruned is not known.
INSERT INTO history_state (id, pruned, shift)
SELECT 1, greatest(max(first), (SELECT max(position) + 1 FROM history)), 0 FROM epochs ON CONFLICT DO NOTHING;

CREATE INDEX IF NOT EXISTS history_position ON history (position, project, ref);
CREATE INDEX IF NOT EXISTS history_project ON history (project, position, ref);
CREATE INDEX IF NOT EXISTS history_time ON history (time);
CREATE INDEX IF NOT EXISTS history_blocks ON history USING brin (position, time) WITH (autosummarize = on, pages_per_range = 16);

-- Who reads the changes. read: the last position up to which all were read.
CREATE TABLE IF NOT EXISTS followers (
    name   text COLLATE "C" NOT NULL PRIMARY KEY,
    cursor text COLLATE "C" NOT NULL,
    read   bigint NOT NULL,
    seen   timestamptz NOT NULL
);

-- Who may write refs may record that: the trigger below acts with the writer's rights.
DO $$
DECLARE
  writer text;
BEGIN
  FOR writer IN
    SELECT DISTINCT CASE grantee WHEN 'PUBLIC' THEN grantee ELSE quote_ident(grantee) END FROM information_schema.table_privileges
    WHERE table_schema = current_schema() AND table_name = 'refs' AND privilege_type IN ('INSERT', 'UPDATE', 'DELETE')
  LOOP
    EXECUTE 'GRANT SELECT, INSERT ON history TO ' || writer;
    EXECUTE 'GRANT SELECT ON epochs, history_state TO ' || writer;
    EXECUTE 'GRANT SELECT, INSERT, UPDATE, DELETE ON followers TO ' || writer;
  END LOOP;
END
$$;

-- Triggers, so that whatever writes the table is recorded: older programs too, and people. For a statement, not for each of
-- its rows, which takes half the time where there are many. A deleted ref that is removed for good was recorded when it was deleted.
CREATE OR REPLACE FUNCTION refdb_record_inserts() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO history (project, ref, old, new, time, op)
  SELECT project, ref, '', value, coalesce(time, clock_timestamp()), op FROM new_refs;
  RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION refdb_record_updates() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  -- A row with another name is two: one that was removed, and a new one.
  INSERT INTO history (project, ref, old, new, time, op)
  SELECT coalesce(n.project, o.project), coalesce(n.ref, o.ref), coalesce(o.value, ''), coalesce(n.value, ''), coalesce(n.time, clock_timestamp()), n.op
  FROM new_refs AS n FULL JOIN old_refs AS o ON o.project = n.project AND o.ref = n.ref;
  RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION refdb_record_deletes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO history (project, ref, old, new, time, op)
  SELECT project, ref, value, '', clock_timestamp(), nullif(current_setting('refdb.op', true), '') FROM old_refs
  WHERE value NOT IN ('0000000000000000000000000000000000000000', '0000000000000000000000000000000000000000000000000000000000000000');
  RETURN NULL;
END
$$;

DROP TRIGGER IF EXISTS refdb_record_inserts ON refs;
DROP TRIGGER IF EXISTS refdb_record_updates ON refs;
DROP TRIGGER IF EXISTS refdb_record_deletes ON refs;
CREATE TRIGGER refdb_record_inserts AFTER INSERT ON refs REFERENCING NEW TABLE AS new_refs FOR EACH STATEMENT EXECUTE FUNCTION refdb_record_inserts();
CREATE TRIGGER refdb_record_updates AFTER UPDATE ON refs REFERENCING NEW TABLE AS new_refs OLD TABLE AS old_refs FOR EACH STATEMENT EXECUTE FUNCTION refdb_record_updates();
CREATE TRIGGER refdb_record_deletes AFTER DELETE ON refs REFERENCING OLD TABLE AS old_refs FOR EACH STATEMENT EXECUTE FUNCTION refdb_record_deletes();
