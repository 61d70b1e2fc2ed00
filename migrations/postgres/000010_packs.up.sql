-- Packs of Git objects. bases, tips: object IDs, a line each. position: of the transaction that used the pack first, or of a
-- complete base as it says; NULL until then. parts: how many; 0 until the last one is there. size: bytes, of the parts that are
-- there. time: of the latest part.
CREATE TABLE IF NOT EXISTS packs (
    id       text COLLATE "C" NOT NULL PRIMARY KEY,
    project  text COLLATE "C" NOT NULL,
    owner    text COLLATE "C" NOT NULL,
    bases    text COLLATE "C" NOT NULL,
    tips     text COLLATE "C" NOT NULL,
    base     boolean NOT NULL,
    position bigint,
    parts    integer NOT NULL,
    size     bigint NOT NULL,
    sum      text COLLATE "C" NOT NULL,
    time     timestamptz NOT NULL
);

CREATE INDEX IF NOT EXISTS packs_order ON packs (project, position, id);
CREATE INDEX IF NOT EXISTS packs_bases ON packs (project, position, id) WHERE base;
CREATE INDEX IF NOT EXISTS packs_unused ON packs (time) WHERE position IS NULL;

-- A pack's parts go with it. Git has compressed the data: the server need not try.
CREATE TABLE IF NOT EXISTS pack_parts (
    pack   text COLLATE "C" NOT NULL REFERENCES packs (id) ON DELETE CASCADE,
    number integer NOT NULL,
    data   bytea NOT NULL,
    PRIMARY KEY (pack, number)
);

ALTER TABLE pack_parts ALTER COLUMN data SET STORAGE EXTERNAL;

-- store: which of the project's objects the database keeps.
ALTER TABLE projects ADD COLUMN IF NOT EXISTS store text NOT NULL DEFAULT '';

-- When this server started, as refdb_server has it. IMMUTABLE, so that a plan has the text instead of making it for each statement:
-- that costs as much as reading the row. No process of the server outlives the start, and plans belong to a process.
-- The timeline is not constant in that way: a promotion changes it under a process that goes on.
CREATE OR REPLACE FUNCTION refdb_started() RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN extract(epoch FROM pg_postmaster_start_time())::text;
END
$$;

-- For each statement that writes refs, locks, intents or projects, whatever program it is of. If the row has not the text of
-- refdb_server, which is spelled out because a call costs more, refdb_require decides.
--
-- Few microseconds count here, so there is one query and no more expressions than needed. The table has at most one row: to scan it costs
-- less than its index. The argument must be pg_current_wal_lsn(): PostgreSQL takes pg_walfile_name of a constant for a constant,
-- timeline and all. The OID must be in the query itself: a plan made again after a change of the table then has the new one.
-- Not STABLE: what the query sees must be later than the statement's lock on its table, which a recovery may hold.
CREATE OR REPLACE FUNCTION refdb_require_admission() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM FROM admission
  WHERE server = left(pg_walfile_name(pg_current_wal_lsn()), 8) || ('-' || refdb_started() || '-' || 'admission'::regclass::oid::text);
  IF NOT FOUND THEN
    PERFORM refdb_require();
  END IF;
  RETURN NEW; -- which is NULL here, and costs less than the expression NULL
END
$$;

-- Whoever writes calls them, also where the owner's default privileges let nobody.
GRANT EXECUTE ON FUNCTION refdb_server(), refdb_require(), refdb_started() TO PUBLIC;

DROP TRIGGER IF EXISTS refdb_require_admission ON packs;
DROP TRIGGER IF EXISTS refdb_require_admission ON pack_parts;
CREATE TRIGGER refdb_require_admission BEFORE INSERT OR UPDATE OR DELETE ON packs FOR EACH STATEMENT EXECUTE FUNCTION refdb_require_admission();
CREATE TRIGGER refdb_require_admission BEFORE INSERT OR UPDATE OR DELETE ON pack_parts FOR EACH STATEMENT EXECUTE FUNCTION refdb_require_admission();

-- Who may write refs may store their objects.
DO $$
DECLARE
  writer text;
BEGIN
  FOR writer IN
    SELECT DISTINCT CASE grantee WHEN 'PUBLIC' THEN grantee ELSE quote_ident(grantee) END FROM information_schema.table_privileges
    WHERE table_schema = current_schema() AND table_name = 'refs' AND privilege_type IN ('INSERT', 'UPDATE', 'DELETE')
  LOOP
    EXECUTE 'GRANT SELECT, INSERT, UPDATE, DELETE ON packs TO ' || writer;
    EXECUTE 'GRANT SELECT, INSERT, DELETE ON pack_parts TO ' || writer;
  END LOOP;
END
$$;
