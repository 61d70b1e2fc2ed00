-- See version 11.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- Transactions that the earlier function has checked don't hold the locks that the new function takes: wait for them to end. Reports lock
-- admission before anything else.
LOCK TABLE admission IN ACCESS EXCLUSIVE MODE;
LOCK TABLE intents IN SHARE MODE;

-- word: when another site began to testify about this site. The word counts until the site reports: programs of version 11 write seen, but
-- leave word as it is.
ALTER TABLE witnesses ADD COLUMN IF NOT EXISTS word timestamptz;

-- For which sites a new server waits, and since when. NULL: for every site.
ALTER TABLE admission ADD COLUMN IF NOT EXISTS policy text COLLATE "C";
ALTER TABLE admission ADD COLUMN IF NOT EXISTS policy_since timestamptz;

-- The advisory lock of a site. Transactions that write the site's intents share the lock; a transaction that bars the site has it alone.
CREATE OR REPLACE FUNCTION refdb_site_key(site text) RETURNS bigint LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
  SELECT hashtextextended(site, 'intents'::regclass::oid::bigint);
$$;

-- Is the site silent? Its daemon has no lock on the site's name, or has not reported for so long that it can't be alive: a daemon reports
-- once a minute.
CREATE OR REPLACE FUNCTION refdb_site_is_silent(site text) RETURNS boolean LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
  SELECT NOT EXISTS (
      SELECT FROM locks WHERE project = 'refdb/sites' AND ref = 'refs/sites/' || site
        AND coalesce(heartbeat, 'epoch') + coalesce(stale_after, 30000000) * interval '1 microsecond' > clock_timestamp())
    OR EXISTS (SELECT FROM witnesses WHERE name = site AND seen < clock_timestamp() - interval '5 minutes');
$$;

-- An admitted server is not enough for a site that a recovery went without, that was made away, or about which another site is about to
-- testify: such a site compares first. A transaction that bars a site holds the site's lock alone until the commit. Each statement here has
-- a snapshot of its own, so that the second statement sees what was committed before the first one got the lock; at another isolation level
-- it would not.
CREATE OR REPLACE FUNCTION refdb_require_witness() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'intents are written in transactions that are read committed, not %', current_setting('transaction_isolation')
      USING ERRCODE = 'RDB03';
  END IF;
  PERFORM pg_advisory_xact_lock_shared(refdb_site_key(site))
  FROM (SELECT DISTINCT split_part(owner, '/', 1) AS site FROM touched ORDER BY site) AS sites;
  IF EXISTS (
      SELECT FROM touched LEFT JOIN witnesses ON name = split_part(owner, '/', 1)
      WHERE away OR without OR word > coalesce(seen, '-infinity')
        OR split_part(owner, '/', 1) <> (SELECT site FROM site_roles WHERE role = session_user))
    AND NOT refdb_recovers()
  THEN
    PERFORM refdb_require_site(split_part(owner, '/', 1)) FROM touched;
    RAISE EXCEPTION 'the site has not compared the server yet' USING ERRCODE = 'RDB01', HINT = 'refdbctl recover --status says more';
  END IF;
  RETURN NULL;
END
$$;

-- May a role that speaks for another site replace the row old with new, or add new if there was none? It may in these cases:
--   - The row went back, and the site is awaited again.
--   - The site is gone, and becomes away.
--   - The site is silent, and another site begins a testimony about it, gives it, or gives it again.
--   - At a server that is not admitted, the site is made away as the policy permits.
-- No time in the row is more than a day ahead: no later time could follow it.
CREATE OR REPLACE FUNCTION refdb_may_write_row(old witnesses, new witnesses) RETURNS boolean LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path FROM CURRENT AS $$
DECLARE
  live constant boolean := NOT (new.away OR new.without);
  away constant boolean := new.away AND NOT new.without AND new.server = '';
BEGIN
  IF old.name IS NOT NULL AND (new.name <> old.name OR new.since < old.since)
    OR greatest(new.since, new.word) > greatest(clock_timestamp() + interval '1 day', old.since, old.word)
  THEN
    RETURN false;
  ELSIF live AND new.seen IS NOT DISTINCT FROM old.seen AND (new.server = '' OR new.server = old.server)
    AND (old.name IS NULL OR new.since > old.since) AND (new.word IS NULL OR new.word = old.word)
  THEN
    RETURN true;
  ELSIF new.away AND NOT new.without AND old.seen < clock_timestamp() - interval '5 minutes' THEN
    RETURN true;
  ELSIF new.seen IS DISTINCT FROM old.seen THEN
    RETURN false;
  ELSIF new.word IS NULL THEN
    RETURN away AND EXISTS (SELECT FROM admission WHERE id = 1 AND policy = 'synchronous' AND server NOT IN (refdb_server(), ''));
  ELSIF away THEN
    RETURN new.since = new.word AND new.word > coalesce(new.seen, '-infinity') AND (new.word = old.word OR refdb_site_is_silent(new.name));
  END IF;
  RETURN live AND NOT (old.away OR old.without) AND new.server = old.server AND new.since = old.since
    AND new.word > new.since AND new.word > coalesce(new.seen, '-infinity') AND refdb_site_is_silent(new.name);
END
$$;

-- See version 11. A transaction that bars a site waits for all transactions that write the site's intents: they may have been checked before.
-- Transactions that write intents of other sites go on.
CREATE OR REPLACE FUNCTION refdb_require_own_row() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET lock_timeout = '10s' AS $$
DECLARE
  before constant witnesses := OLD; -- without values if there was none
  after constant witnesses := NEW;
BEGIN
  IF NOT coalesce(refdb_may_write_row(before, after), false) AND NOT refdb_recovers() THEN
    PERFORM refdb_require_site(after.name);
    IF before.name <> after.name THEN
      PERFORM refdb_require_site(before.name);
    END IF;
  END IF;
  IF after.away OR after.without OR after.word IS DISTINCT FROM before.word THEN
    PERFORM pg_advisory_xact_lock(refdb_site_key(after.name));
  END IF;
  RETURN NULL;
END
$$;

-- A role that speaks for a site may only set the policy wait.
CREATE OR REPLACE FUNCTION refdb_require_policy() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  IF (NEW.policy IS DISTINCT FROM 'wait' OR NEW.policy_since > clock_timestamp() + interval '1 day')
    AND EXISTS (SELECT FROM site_roles WHERE role = session_user)
  THEN
    RAISE EXCEPTION 'role "%" speaks for a site: only the owner of the tables sets the policy', session_user USING ERRCODE = 'RDB02';
  END IF;
  RETURN NULL;
END
$$;

DROP TRIGGER IF EXISTS refdb_require_policy ON admission;
CREATE TRIGGER refdb_require_policy AFTER UPDATE ON admission FOR EACH ROW
  WHEN (NEW.policy IS DISTINCT FROM OLD.policy OR NEW.policy_since IS DISTINCT FROM OLD.policy_since) EXECUTE FUNCTION refdb_require_policy();

REVOKE EXECUTE ON FUNCTION refdb_require_policy() FROM PUBLIC;
