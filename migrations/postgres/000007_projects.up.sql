-- What all sites are to do with a project. id: random; every copy of the repository records it.
-- rules: what is guarded, a rule per line. mode: of what is guarded. revision: one more than that of the change before,
-- of whatever project, so that the changes since a revision can be asked for. op: the write that made the row; resolves a lost reply.
CREATE TABLE IF NOT EXISTS projects (
    project  text COLLATE "C" NOT NULL PRIMARY KEY,
    id       text COLLATE "C" NOT NULL,
    rules    text NOT NULL,
    mode     text NOT NULL,
    revision bigint NOT NULL,
    time     timestamptz NOT NULL,
    op       text COLLATE "C" NOT NULL
);

CREATE UNIQUE INDEX IF NOT EXISTS projects_revision ON projects (revision);

-- What operators did, each written before it was done. outcome, ended: NULL until that is known.
CREATE TABLE IF NOT EXISTS audit (
    time    timestamptz NOT NULL,
    id      text COLLATE "C" NOT NULL,
    who     text NOT NULL,
    origin  text NOT NULL,
    action  text NOT NULL,
    project text COLLATE "C" NOT NULL,
    detail  text NOT NULL,
    reason  text NOT NULL,
    outcome text,
    ended   timestamptz,
    PRIMARY KEY (time, id)
);
