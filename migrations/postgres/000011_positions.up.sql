-- Triggers and functions rely on no search_path of a session: theirs is this one, which costs a microsecond a call. The trigger that runs
-- with every statement has qualified names instead.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- May this session write while no server is admitted? A recovery says so with a setting, which counts only for the owner of the tables.
CREATE OR REPLACE FUNCTION refdb_recovers() RETURNS boolean LANGUAGE sql STABLE
BEGIN ATOMIC
  SELECT coalesce(current_setting('refdb.recovery', true) = 'on', false)
    AND pg_has_role(session_user, relowner, 'MEMBER') FROM pg_class WHERE oid = 'admission'::regclass;
END;

-- Which cluster this is. It differs wherever a dump or logical replication brings the tables, but on no standby and in no copy of the
-- files. 0 where the provider does not say.
CREATE OR REPLACE FUNCTION refdb_cluster() RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN (SELECT system_identifier FROM pg_catalog.pg_control_system());
EXCEPTION WHEN insufficient_privilege OR undefined_function THEN
  RETURN 0;
END
$$;

-- cluster: whose transaction IDs positions are made of; NULL if nobody knows.
ALTER TABLE history_state ADD COLUMN IF NOT EXISTS cluster bigint;

-- The position of what this transaction changes. The lock on the table that it is written to comes before the snapshot in which the
-- shift is read, and so before any later shift.
CREATE OR REPLACE FUNCTION refdb_position() RETURNS bigint LANGUAGE sql STABLE
BEGIN ATOMIC
  SELECT pg_current_xact_id()::text::bigint + shift FROM history_state WHERE id = 1;
END;

-- Raises the shift if the tables came from another cluster, or if the next transaction could get a position that was used before.
--
-- It raises by far more than the difference. The cluster that the tables came from went on after the dump, and began transactions
-- that left no change: cursors, marks and base packs have such positions, and new changes must come after those, too. And here
-- transactions may be open that are older than this one, and write after it. A trillion is more than any server begins meanwhile,
-- and fits 9,000 times into what JavaScript takes for an integer.
--
-- No writer that has read the earlier shift may be open, nor a statement that has read the earlier origin of tokens: the trigger that
-- asks whether the server is admitted sees later commits than the statement does. Autovacuum gives way to a lock that waits for longer than deadlock_timeout.
CREATE OR REPLACE FUNCTION refdb_raise_positions() RETURNS void LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT SET lock_timeout = '10s' AS $$
DECLARE
  here constant bigint := refdb_cluster();
  own constant bigint := pg_current_xact_id()::text::bigint;
  state record;
BEGIN
  SELECT cluster, shift, greatest(pg_snapshot_xmax(pg_current_snapshot())::text::bigint, own + 1) AS next, greatest(
      (SELECT position FROM history ORDER BY position DESC LIMIT 1),
      (SELECT max(position) FROM packs),
      (SELECT max(first) FROM epochs),
      pruned - 1) AS highest
    INTO STRICT state FROM history_state WHERE id = 1;
  IF state.cluster = here AND state.highest < state.next + state.shift THEN
    RETURN;
  END IF;
  LOCK TABLE locks, history, packs IN SHARE ROW EXCLUSIVE MODE;
  UPDATE history_state SET cluster = here, shift = greatest(shift, state.highest - own) + 1000000000000 WHERE id = 1;
  -- Tokens are made of IDs, too. Since they reached what is recorded they have grown by less than a minute.
  UPDATE token_origin SET (origin, reached) = (
    SELECT now - own * interval '1 microsecond', now
    FROM greatest(clock_timestamp(), origin + own * interval '1 microsecond', reached + interval '1 minute') AS now
  ) WHERE id = 1;
END
$$;

REVOKE EXECUTE ON FUNCTION refdb_raise_positions() FROM PUBLIC;

-- Positions may have gone back already. At a server that is not admitted, whoever admits it sees to that.
UPDATE history_state SET cluster = refdb_cluster() WHERE cluster IS NULL AND EXISTS (SELECT FROM admission WHERE server = refdb_server());
SELECT refdb_raise_positions() FROM admission WHERE server = refdb_server();

-- Before a server is admitted, whatever program admits it.
CREATE OR REPLACE FUNCTION refdb_admit() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  IF NEW.server = refdb_server() THEN
    PERFORM refdb_raise_positions();
  END IF;
  RETURN NEW;
END
$$;

DROP TRIGGER IF EXISTS refdb_admit ON admission;
CREATE TRIGGER refdb_admit BEFORE UPDATE OF server ON admission FOR EACH ROW WHEN (NEW.server <> OLD.server) EXECUTE FUNCTION refdb_admit();

-- Fails unless this server is the one. A recovery is the exception, and what it writes comes after what was restored.
CREATE OR REPLACE FUNCTION refdb_require() RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  IF (SELECT server FROM admission WHERE id = 1) IS NOT DISTINCT FROM nullif(refdb_server(), 'incomplete') THEN
    RETURN;
  END IF;
  IF NOT refdb_recovers() THEN
    RAISE EXCEPTION 'the server was started anew or replaced, and not all sites have compared it yet'
      USING ERRCODE = 'RDB01', HINT = 'refdbctl recover --status says who is missing';
  END IF;
  -- Once a transaction: a recovery has many statements.
  IF current_setting('refdb.raised', true) IS DISTINCT FROM pg_current_xact_id()::text THEN
    PERFORM refdb_raise_positions();
    PERFORM set_config('refdb.raised', pg_current_xact_id()::text, true);
  END IF;
END
$$;

-- The position of a pack's first use: programs write the bare ID of their transaction. That of a base pack is the caller's, who read it
-- before. If the database has not come to it, it lost the state that the base is of, and the base would stand for packs that are still to come.
CREATE OR REPLACE FUNCTION refdb_place_pack() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
  here constant bigint := refdb_position();
BEGIN
  IF here IS NULL THEN -- else the pack would count as unused
    RAISE EXCEPTION 'the row of history_state is missing' USING HINT = 'refdbctl doctor says what to do';
  ELSIF NOT NEW.base THEN
    NEW.position := here;
  ELSIF NEW.position >= here THEN
    RAISE EXCEPTION 'the base pack is of position %, to which the database has not come: it went back in time since', NEW.position;
  END IF;
  RETURN NEW;
END
$$;

DROP TRIGGER IF EXISTS refdb_place_pack ON packs;
CREATE TRIGGER refdb_place_pack BEFORE UPDATE OF position ON packs FOR EACH ROW
  WHEN (OLD.position IS NULL AND NEW.position IS NOT NULL) EXECUTE FUNCTION refdb_place_pack();

ALTER TABLE history ALTER COLUMN position DROP DEFAULT;

-- A writer has no rights on the history but to read it: the trigger acts with the owner's. What is recorded is durable, whatever
-- program made the change: until then readers must not see it, because a crash could give its position to another change. set_config
-- lasts until the commit, a function's own setting would not.
CREATE OR REPLACE FUNCTION refdb_be_durable() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;
END
$$;

CREATE OR REPLACE FUNCTION refdb_record_inserts() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  PERFORM refdb_be_durable();
  INSERT INTO history (project, ref, position, old, new, time, op)
  SELECT project, ref, (SELECT refdb_position()), '', value, coalesce(time, clock_timestamp()), op FROM new_refs;
  RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION refdb_record_updates() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  PERFORM refdb_be_durable();
  -- A row with another name is two: one that was removed, and a new one.
  INSERT INTO history (project, ref, position, old, new, time, op)
  SELECT coalesce(n.project, o.project), coalesce(n.ref, o.ref), (SELECT refdb_position()),
    coalesce(o.value, ''), coalesce(n.value, ''), coalesce(n.time, clock_timestamp()), n.op
  FROM new_refs AS n FULL JOIN old_refs AS o ON o.project = n.project AND o.ref = n.ref;
  RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION refdb_record_deletes() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  PERFORM refdb_be_durable();
  INSERT INTO history (project, ref, position, old, new, time, op)
  SELECT project, ref, (SELECT refdb_position()), value, '', clock_timestamp(), nullif(current_setting('refdb.op', true), '') FROM old_refs
  WHERE value NOT IN ('0000000000000000000000000000000000000000', '0000000000000000000000000000000000000000000000000000000000000000');
  RETURN NULL;
END
$$;

-- See version 9. A restore makes triggers last: until then this is another server, which may not be written.
CREATE OR REPLACE FUNCTION refdb_server() RETURNS text LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
  IF pg_is_in_recovery() THEN
    RETURN 'standby';
  END IF;
  IF NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = 'admission'::regclass AND tgname = 'refdb_admit') THEN
    RETURN 'incomplete';
  END IF;
  RETURN left(pg_walfile_name(pg_current_wal_lsn()), 8) || '-' || refdb_started() || '-' || 'admission'::regclass::oid::text;
END
$$;

-- See version 10. Its plans are made under the search_path of whoever writes.
CREATE OR REPLACE FUNCTION refdb_started() RETURNS text LANGUAGE plpgsql IMMUTABLE SET search_path FROM CURRENT AS $$
BEGIN
  RETURN extract(epoch FROM pg_postmaster_start_time())::text;
END
$$;

-- The role of a session (session_user) that is named here speaks for one site: the intents that it begins and ends, and its row of
-- witnesses, are that site's. Other roles speak for any site. The owner of the tables writes this.
CREATE TABLE IF NOT EXISTS site_roles (
    role text COLLATE "C" NOT NULL PRIMARY KEY,
    site text COLLATE "C" NOT NULL CHECK (site <> '' AND strpos(site, '/') = 0)
);

-- Fails if this session's role speaks for another site.
CREATE OR REPLACE FUNCTION refdb_require_site(wanted text) RETURNS void LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
  own constant text := (SELECT site FROM site_roles WHERE role = session_user);
BEGIN
  IF own <> wanted THEN
    RAISE EXCEPTION 'role "%" speaks for site "%", not for "%": correct the name of the site, or the table site_roles', session_user, own, wanted
      USING ERRCODE = 'RDB02';
  END IF;
END
$$;

-- Is the site away, left out, or silent for so long that it can't live? A daemon reports once a minute, and no other site's role writes when.
CREATE OR REPLACE FUNCTION refdb_site_is_gone(site text) RETURNS boolean LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT
BEGIN ATOMIC
  SELECT EXISTS (
    SELECT FROM witnesses WHERE name = site AND (away OR without OR seen < clock_timestamp() - interval '5 minutes'));
END;

-- An admitted server is not enough for a site that a recovery went without, or that was taken to be away: it compares first.
CREATE OR REPLACE FUNCTION refdb_require_witness() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  IF EXISTS (
      SELECT FROM touched LEFT JOIN witnesses ON name = split_part(owner, '/', 1)
      WHERE away OR without OR split_part(owner, '/', 1) <> (SELECT site FROM site_roles WHERE role = session_user))
    AND NOT refdb_recovers()
  THEN
    PERFORM refdb_require_site(split_part(owner, '/', 1)) FROM touched;
    RAISE EXCEPTION 'the site has not compared the server yet' USING ERRCODE = 'RDB01', HINT = 'refdbctl recover --status says more';
  END IF;
  RETURN NULL;
END
$$;

-- A decision about an intent of another site is for when that site is gone.
CREATE OR REPLACE FUNCTION refdb_require_decider() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  IF NEW.owner <> OLD.owner OR NOT refdb_site_is_gone(split_part(OLD.owner, '/', 1)) THEN
    PERFORM refdb_require_site(split_part(OLD.owner, '/', 1));
    PERFORM refdb_require_site(split_part(NEW.owner, '/', 1));
  END IF;
  RETURN NULL;
END
$$;

DROP TRIGGER IF EXISTS refdb_require_decider ON intents;
CREATE TRIGGER refdb_require_decider AFTER UPDATE ON intents FOR EACH ROW EXECUTE FUNCTION refdb_require_decider();

-- Of another site a role may say that it is awaited again and, once it is gone, that it is away. Who says that a site is away or left out
-- waits for all who write intents: they may have been checked before.
CREATE OR REPLACE FUNCTION refdb_require_own_row() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET lock_timeout = '10s' AS $$
DECLARE
  live constant boolean := NOT (NEW.away OR NEW.without);
BEGIN
  IF TG_OP = 'UPDATE' AND (
      NEW.name <> OLD.name
      OR NOT (live AND NEW.server = '' AND NEW.seen IS NOT DISTINCT FROM OLD.seen AND NEW.since > OLD.since)
        AND NOT (NEW.away AND NOT NEW.without AND OLD.seen < clock_timestamp() - interval '5 minutes'))
    OR TG_OP = 'INSERT' AND NOT (live AND NEW.server = '' AND NEW.seen IS NULL)
  THEN
    IF NOT refdb_recovers() THEN
      PERFORM refdb_require_site(NEW.name);
    END IF;
  END IF;
  IF NOT live THEN
    LOCK TABLE intents IN SHARE MODE;
  END IF;
  RETURN NULL;
END
$$;

DROP TRIGGER IF EXISTS refdb_require_own_row ON witnesses;
CREATE TRIGGER refdb_require_own_row AFTER INSERT OR UPDATE ON witnesses FOR EACH ROW EXECUTE FUNCTION refdb_require_own_row();

-- A role that speaks for a site admits a server only if nothing is missing there and nobody is awaited, and ends no halt (B11, B16).
CREATE OR REPLACE FUNCTION refdb_require_compared() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  IF EXISTS (SELECT FROM site_roles WHERE role = session_user) AND NOT refdb_recovers() AND (OLD.server = ''
    OR EXISTS (SELECT FROM lost WHERE fate = '')
    OR EXISTS (SELECT FROM witnesses AS w WHERE w.server <> NEW.server AND NOT away AND NOT without))
  THEN
    RAISE EXCEPTION 'the server has not been compared by all sites, or lacks what one of them knows' USING ERRCODE = 'RDB02';
  END IF;
  RETURN NULL;
END
$$;

DROP TRIGGER IF EXISTS refdb_require_compared ON admission;
CREATE TRIGGER refdb_require_compared AFTER UPDATE ON admission FOR EACH ROW
  WHEN (NEW.server <> OLD.server AND (OLD.server = '' OR NEW.server NOT IN ('', '-'))) EXECUTE FUNCTION refdb_require_compared();

-- A function that acts with the owner's rights is no trigger of anybody else's table.
REVOKE EXECUTE ON FUNCTION refdb_record_inserts(), refdb_record_updates(), refdb_record_deletes(), refdb_admit(), refdb_place_pack(),
  refdb_require_witness(), refdb_require_decider(), refdb_require_own_row(), refdb_require_compared() FROM PUBLIC;

-- See version 10. It runs with every statement that writes.
DO $migration$
BEGIN
  EXECUTE format($function$
CREATE OR REPLACE FUNCTION refdb_require_admission() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM FROM %1$s.admission
  WHERE server OPERATOR(pg_catalog.=) (pg_catalog."left"(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8) OPERATOR(pg_catalog.||)
    ('-' OPERATOR(pg_catalog.||) %1$s.refdb_started() OPERATOR(pg_catalog.||) '-' OPERATOR(pg_catalog.||) %2$L::pg_catalog.regclass::pg_catalog.oid::pg_catalog.text));
  IF NOT FOUND THEN
    PERFORM %1$s.refdb_require();
  END IF;
  RETURN NEW; -- which is NULL here, and costs less than the expression NULL
END
$$
  $function$, quote_ident(current_schema()), quote_ident(current_schema()) || '.admission');
END
$migration$;

-- The trigger records what writers do. They end entries of the audit log, decide about intents, and say what became of an announced push;
-- they change nothing else there.
DO $$
DECLARE
  writer text;
BEGIN
  FOR writer IN
    SELECT DISTINCT CASE grantee WHEN 'PUBLIC' THEN grantee ELSE quote_ident(grantee) END FROM information_schema.table_privileges
    WHERE table_schema = current_schema() AND table_name = 'refs' AND privilege_type IN ('INSERT', 'UPDATE', 'DELETE')
      AND grantee <> (SELECT tableowner FROM pg_tables WHERE schemaname = current_schema() AND tablename = 'refs')
  LOOP
    EXECUTE 'REVOKE INSERT ON history FROM ' || writer;
    EXECUTE 'REVOKE UPDATE ON audit FROM ' || writer;
    EXECUTE 'GRANT UPDATE (outcome, ended) ON audit TO ' || writer;
    EXECUTE 'REVOKE UPDATE ON intents, lost FROM ' || writer;
    EXECUTE 'GRANT UPDATE (decision, decided_by, reason, decided_at) ON intents TO ' || writer;
    EXECUTE 'GRANT UPDATE (move) ON lost TO ' || writer;
    EXECUTE 'GRANT SELECT ON site_roles TO ' || writer;
  END LOOP;
END
$$;
