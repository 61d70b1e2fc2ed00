-- Packs of Git objects. bases, tips: object IDs; NULL for none. position: of the preparation that used the pack first, or of a
-- complete base as it says; NULL until then. kind: 'unused' until then; afterwards 'base' for a base, else NULL. parts: how many; 0
-- until the last one is there. size: bytes, of the parts that are there. time: of the latest part.
CREATE TABLE IF NOT EXISTS packs (
    id       STRING(64) NOT NULL,
    project  STRING(MAX) NOT NULL,
    owner    STRING(MAX) NOT NULL,
    bases    ARRAY<STRING(MAX)>,
    tips     ARRAY<STRING(MAX)>,
    base     BOOL NOT NULL,
    position TIMESTAMP OPTIONS (allow_commit_timestamp=true),
    kind     STRING(16),
    parts    INT64 NOT NULL,
    size     INT64 NOT NULL,
    sum      STRING(MAX) NOT NULL,
    time     TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp=true),
) PRIMARY KEY (id);

CREATE INDEX IF NOT EXISTS packs_order ON packs (project, position);

CREATE INDEX IF NOT EXISTS packs_kind ON packs (kind, project);

CREATE TABLE IF NOT EXISTS pack_parts (
    pack   STRING(64) NOT NULL,
    number INT64 NOT NULL,
    data   BYTES(MAX) NOT NULL,
) PRIMARY KEY (pack, number);

-- store: which of the project's objects the database keeps.
ALTER TABLE projects ADD COLUMN IF NOT EXISTS store STRING(16) NOT NULL DEFAULT ('');
