-- Times are microseconds since the Unix epoch.
CREATE TABLE IF NOT EXISTS refs (
    project TEXT NOT NULL,
    ref     TEXT NOT NULL,
    value   TEXT NOT NULL,
    time    INTEGER,
    PRIMARY KEY (project, ref)
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS locks (
    project   TEXT NOT NULL,
    ref       TEXT NOT NULL,
    heartbeat INTEGER,
    token     INTEGER,
    owner     TEXT NOT NULL,
    PRIMARY KEY (project, ref)
) STRICT, WITHOUT ROWID;
