-- Without the shift new changes would stand before old ones.
DO $$
BEGIN
  IF (SELECT shift FROM history_state WHERE id = 1) <> 0 THEN
    RAISE EXCEPTION 'this database was restored at another server, and its positions are ahead of the transaction IDs: version 10 would let them go back';
  END IF;
END
$$;

DROP TRIGGER IF EXISTS refdb_admit ON admission;
DROP TRIGGER IF EXISTS refdb_place_pack ON packs;
DROP TRIGGER IF EXISTS refdb_require_decider ON intents;
DROP TRIGGER IF EXISTS refdb_require_own_row ON witnesses;
DROP TRIGGER IF EXISTS refdb_require_compared ON admission;
DROP FUNCTION IF EXISTS refdb_admit(), refdb_place_pack(), refdb_require_decider(), refdb_require_own_row(), refdb_require_compared();
GRANT EXECUTE ON FUNCTION refdb_record_inserts(), refdb_record_updates(), refdb_record_deletes(), refdb_require_witness() TO PUBLIC;

ALTER TABLE history ALTER COLUMN position SET DEFAULT pg_current_xact_id()::text::bigint;

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

CREATE OR REPLACE FUNCTION refdb_started() RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN extract(epoch FROM pg_postmaster_start_time())::text;
END
$$;

CREATE OR REPLACE FUNCTION refdb_server() RETURNS text LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF pg_is_in_recovery() THEN
    RETURN 'standby';
  END IF;
  RETURN left(pg_walfile_name(pg_current_wal_lsn()), 8) || '-' || extract(epoch FROM pg_postmaster_start_time())::text || '-' || 'admission'::regclass::oid::text;
END
$$;

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

DROP FUNCTION IF EXISTS refdb_require_site(text), refdb_site_is_gone(text);
DROP TABLE IF EXISTS site_roles;
DROP FUNCTION IF EXISTS refdb_be_durable(), refdb_recovers(), refdb_raise_positions(), refdb_position(), refdb_cluster();

ALTER TABLE history_state DROP COLUMN IF EXISTS cluster;

-- The triggers act with the writer's rights again.
DO $$
DECLARE
  writer text;
BEGIN
  FOR writer IN
    SELECT DISTINCT CASE grantee WHEN 'PUBLIC' THEN grantee ELSE quote_ident(grantee) END FROM information_schema.table_privileges
    WHERE table_schema = current_schema() AND table_name = 'refs' AND privilege_type IN ('INSERT', 'UPDATE', 'DELETE')
  LOOP
    EXECUTE 'GRANT INSERT ON history TO ' || writer;
    EXECUTE 'GRANT UPDATE ON audit, intents, lost TO ' || writer;
  END LOOP;
END
$$;
