ALTER TABLE projects DROP COLUMN IF EXISTS store;
DROP TABLE IF EXISTS pack_parts;
DROP TABLE IF EXISTS packs;
CREATE OR REPLACE FUNCTION refdb_require_admission() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM refdb_require();
  RETURN NULL;
END
$$;

DROP FUNCTION IF EXISTS refdb_started();
