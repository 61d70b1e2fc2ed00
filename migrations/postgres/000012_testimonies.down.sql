-- See version 11.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- Transactions that the later function has checked had not locked the table before the check: wait for them to end.
LOCK TABLE intents IN SHARE MODE;

DROP TRIGGER IF EXISTS refdb_require_policy ON admission;
DROP FUNCTION IF EXISTS refdb_require_policy();

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

DROP FUNCTION IF EXISTS refdb_may_write_row(witnesses, witnesses), refdb_site_is_silent(text), refdb_site_key(text);

-- A site about which another site was about to testify may write again. A site about which another site has testified stays away.
ALTER TABLE witnesses DROP COLUMN IF EXISTS word;
ALTER TABLE admission DROP COLUMN IF EXISTS policy;
ALTER TABLE admission DROP COLUMN IF EXISTS policy_since;
