-- What all sites are to do with a project. id: random; every copy of the repository records it.
-- rules: what is guarded, a rule per line. mode: of what is guarded. revision: one more than that of the change before,
-- of whatever project, so that the changes since a revision can be asked for. op: the write that made the row; resolves a lost reply.
CREATE TABLE projects (
    project  TEXT NOT NULL PRIMARY KEY,
    id       TEXT NOT NULL,
    rules    TEXT NOT NULL,
    mode     TEXT NOT NULL,
    revision INTEGER NOT NULL,
    time     INTEGER NOT NULL,
    op       TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX projects_revision ON projects (revision);

-- What operators did, each written before it was done. outcome, ended: NULL until that is known.
CREATE TABLE audit (
    time    INTEGER NOT NULL,
    id      TEXT NOT NULL,
    who     TEXT NOT NULL,
    origin  TEXT NOT NULL,
    action  TEXT NOT NULL,
    project TEXT NOT NULL,
    detail  TEXT NOT NULL,
    reason  TEXT NOT NULL,
    outcome TEXT,
    ended   INTEGER,
    PRIMARY KEY (time, id)
) STRICT, WITHOUT ROWID;
