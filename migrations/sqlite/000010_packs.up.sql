-- Packs of Git objects. bases, tips: object IDs, a line each. position: of the preparation that used the pack first, or of a
-- complete base as it says; NULL until then. parts: how many; 0 until the last one is there. size: bytes, of the parts that are
-- there. time: of the latest part.
CREATE TABLE packs (
    id       TEXT NOT NULL PRIMARY KEY,
    project  TEXT NOT NULL,
    owner    TEXT NOT NULL,
    bases    TEXT NOT NULL,
    tips     TEXT NOT NULL,
    base     INTEGER NOT NULL,
    position INTEGER,
    parts    INTEGER NOT NULL,
    size     INTEGER NOT NULL,
    sum      TEXT NOT NULL,
    time     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX packs_order ON packs (project, position, id);
CREATE INDEX packs_bases ON packs (project, position, id) WHERE base;
CREATE INDEX packs_unused ON packs (time) WHERE position IS NULL;

CREATE TABLE pack_parts (
    pack   TEXT NOT NULL,
    number INTEGER NOT NULL,
    data   BLOB NOT NULL,
    PRIMARY KEY (pack, number)
) STRICT;

-- store: which of the project's objects the database keeps.
ALTER TABLE projects ADD COLUMN store TEXT NOT NULL DEFAULT '';
