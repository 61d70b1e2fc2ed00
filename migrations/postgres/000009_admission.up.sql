-- The server at which may be written: see refdb_server. '-' for none until all witnesses have compared it; '' for none until a recovery ends.
CREATE TABLE IF NOT EXISTS admission (
    id     smallint NOT NULL PRIMARY KEY CHECK (id = 1),
    server text COLLATE "C" NOT NULL,
    since  timestamptz NOT NULL
);

-- Sites that compare a new server with what they know. server: that a site compared last. seen: when it
-- reported last. without: it was left out of a recovery. since: of the latest change of away or without; it only grows.
CREATE TABLE IF NOT EXISTS witnesses (
    name    text COLLATE "C" NOT NULL PRIMARY KEY,
    server  text COLLATE "C" NOT NULL,
    seen    timestamptz,
    away    boolean NOT NULL,
    without boolean NOT NULL,
    since   timestamptz NOT NULL
);

-- Changes that a witness knows and this database does not have. token: of a pending intent, else 0. move: what became of
-- that. fate: '' until somebody decides.
CREATE TABLE IF NOT EXISTS lost (
    project  text COLLATE "C" NOT NULL,
    ref      text COLLATE "C" NOT NULL,
    op       text COLLATE "C" NOT NULL,
    old      text COLLATE "C" NOT NULL,
    new      text COLLATE "C" NOT NULL,
    owner    text COLLATE "C" NOT NULL,
    asked_by text COLLATE "C" NOT NULL,
    token    bigint NOT NULL,
    move     text COLLATE "C" NOT NULL,
    at       timestamptz NOT NULL,
    witness  text COLLATE "C" NOT NULL,
    fate     text COLLATE "C" NOT NULL,
    reported timestamptz NOT NULL,
    PRIMARY KEY (project, ref, op)
);

-- The identity of the server: the timeline of its log, which a promotion changes; when it started, which tells apart
-- a copy of its files that was put back; and this table, which a restored dump makes anew.
CREATE OR REPLACE FUNCTION refdb_server() RETURNS text LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF pg_is_in_recovery() THEN
    RETURN 'standby';
  END IF;
  RETURN left(pg_walfile_name(pg_current_wal_lsn()), 8) || '-' || extract(epoch FROM pg_postmaster_start_time())::text || '-' || 'admission'::regclass::oid::text;
END
$$;

INSERT INTO admission (id, server, since) VALUES (1, refdb_server(), clock_timestamp()) ON CONFLICT DO NOTHING;

-- Fails unless this server is the one. A recovery is the exception.
CREATE OR REPLACE FUNCTION refdb_require() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF (SELECT server FROM admission WHERE id = 1) IS DISTINCT FROM refdb_server()
    AND current_setting('refdb.recovery', true) IS DISTINCT FROM 'on'
  THEN
    RAISE EXCEPTION 'the server was started anew or replaced, and not all sites have compared it yet'
      USING ERRCODE = 'RDB01', HINT = 'refdbctl recover --status says who is missing';
  END IF;
END
$$;

-- For each statement that writes refs, locks, intents or projects, whatever program it is of.
CREATE OR REPLACE FUNCTION refdb_require_admission() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM refdb_require();
  RETURN NULL;
END
$$;

DROP TRIGGER IF EXISTS refdb_require_admission ON refs;
DROP TRIGGER IF EXISTS refdb_require_admission ON locks;
DROP TRIGGER IF EXISTS refdb_require_admission ON intents;
DROP TRIGGER IF EXISTS refdb_require_admission ON projects;
CREATE TRIGGER refdb_require_admission BEFORE INSERT OR UPDATE OR DELETE ON refs FOR EACH STATEMENT EXECUTE FUNCTION refdb_require_admission();
CREATE TRIGGER refdb_require_admission BEFORE INSERT OR UPDATE OR DELETE ON locks FOR EACH STATEMENT EXECUTE FUNCTION refdb_require_admission();
CREATE TRIGGER refdb_require_admission BEFORE INSERT OR UPDATE OR DELETE ON intents FOR EACH STATEMENT EXECUTE FUNCTION refdb_require_admission();
CREATE TRIGGER refdb_require_admission BEFORE INSERT OR UPDATE OR DELETE ON projects FOR EACH STATEMENT EXECUTE FUNCTION refdb_require_admission();

-- An admitted server is not enough for a site that a recovery went without, or that was taken to be away: it compares first.
CREATE OR REPLACE FUNCTION refdb_require_witness() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT FROM touched JOIN witnesses ON name = split_part(owner, '/', 1) WHERE away OR without)
    AND current_setting('refdb.recovery', true) IS DISTINCT FROM 'on'
  THEN
    RAISE EXCEPTION 'the site has not compared the server yet' USING ERRCODE = 'RDB01', HINT = 'refdbctl recover --status says more';
  END IF;
  RETURN NULL;
END
$$;

DROP TRIGGER IF EXISTS refdb_require_witness_begins ON intents;
DROP TRIGGER IF EXISTS refdb_require_witness_ends ON intents;
CREATE TRIGGER refdb_require_witness_begins AFTER INSERT ON intents REFERENCING NEW TABLE AS touched FOR EACH STATEMENT EXECUTE FUNCTION refdb_require_witness();
CREATE TRIGGER refdb_require_witness_ends AFTER DELETE ON intents REFERENCING OLD TABLE AS touched FOR EACH STATEMENT EXECUTE FUNCTION refdb_require_witness();

-- Who may write refs may compare. A recovery is for the owner of the tables.
DO $$
DECLARE
  writer text;
BEGIN
  FOR writer IN
    SELECT DISTINCT CASE grantee WHEN 'PUBLIC' THEN grantee ELSE quote_ident(grantee) END FROM information_schema.table_privileges
    WHERE table_schema = current_schema() AND table_name = 'refs' AND privilege_type IN ('INSERT', 'UPDATE', 'DELETE')
  LOOP
    EXECUTE 'GRANT SELECT, UPDATE ON admission TO ' || writer;
    EXECUTE 'GRANT SELECT, INSERT, UPDATE ON witnesses, lost TO ' || writer;
  END LOOP;
END
$$;
