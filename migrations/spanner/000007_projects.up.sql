-- What all sites are to do with a project. id: random; every copy of the repository records it.
-- rules: what is guarded, a rule per line. mode: of what is guarded. revision: one more than that of the change before,
-- of whatever project, so that the changes since a revision can be asked for. op: the write that made the row; resolves a lost reply.
CREATE TABLE IF NOT EXISTS projects (
    project  STRING(MAX) NOT NULL,
    id       STRING(64) NOT NULL,
    rules    STRING(MAX) NOT NULL,
    mode     STRING(16) NOT NULL,
    revision INT64 NOT NULL,
    time     TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp=true),
    op       STRING(64) NOT NULL,
) PRIMARY KEY (project);

CREATE UNIQUE INDEX IF NOT EXISTS projects_revision ON projects (revision);

-- What operators did, each written before it was done. outcome, ended: NULL until that is known.
CREATE TABLE IF NOT EXISTS audit (
    time    TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp=true),
    id      STRING(64) NOT NULL,
    who     STRING(MAX) NOT NULL,
    origin  STRING(MAX) NOT NULL,
    action  STRING(MAX) NOT NULL,
    project STRING(MAX) NOT NULL,
    detail  STRING(MAX) NOT NULL,
    reason  STRING(MAX) NOT NULL,
    outcome STRING(MAX),
    ended   TIMESTAMP OPTIONS (allow_commit_timestamp=true),
) PRIMARY KEY (time, id);
