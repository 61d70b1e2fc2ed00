ALTER TABLE projects DROP COLUMN store;
DROP TABLE pack_parts;
DROP TABLE packs;
