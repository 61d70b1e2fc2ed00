-- The nonce keeps its length: some may be longer than before.
DROP TABLE IF EXISTS followers;
DROP TABLE IF EXISTS epochs;
DROP TABLE IF EXISTS history_state;
DROP INDEX IF EXISTS history_project;
DROP INDEX IF EXISTS history_shard;
DROP TABLE IF EXISTS history;
