CREATE TABLE IF NOT EXISTS refs (
    project STRING(MAX) NOT NULL,
    ref     STRING(MAX) NOT NULL,
    value   STRING(MAX) NOT NULL,
    time    TIMESTAMP OPTIONS (allow_commit_timestamp=true),
) PRIMARY KEY (project, ref);

CREATE INDEX IF NOT EXISTS project_time ON refs (project, time);

CREATE TABLE IF NOT EXISTS locks (
    project   STRING(MAX) NOT NULL,
    ref       STRING(MAX) NOT NULL,
    heartbeat TIMESTAMP OPTIONS (allow_commit_timestamp=true),
    token     TIMESTAMP OPTIONS (allow_commit_timestamp=true),
    owner     STRING(MAX) NOT NULL,
) PRIMARY KEY (project, ref);
