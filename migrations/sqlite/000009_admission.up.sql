-- The server at which may be written: the file's identity, as the driver finds it; '-' for none until all witnesses
-- have compared it; '' for none until a recovery ends; 'new' for the next that opens it.
CREATE TABLE admission (
    id     INTEGER PRIMARY KEY CHECK (id = 1),
    server TEXT NOT NULL,
    since  INTEGER NOT NULL
) STRICT;

INSERT INTO admission (id, server, since) VALUES (1, 'new', CAST(unixepoch('subsec') * 1000000 AS INTEGER));

-- Sites that compare a new server with what they know. server: that a site compared last. seen: when it
-- reported last. without: it was left out of a recovery. since: of the latest change of away or without; it only grows.
CREATE TABLE witnesses (
    name    TEXT NOT NULL PRIMARY KEY,
    server  TEXT NOT NULL,
    seen    INTEGER,
    away    INTEGER NOT NULL,
    without INTEGER NOT NULL,
    since   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Changes that a witness knows and this database does not have. token: of a pending intent, else 0. move: what became of
-- that. fate: '' until somebody decides.
CREATE TABLE lost (
    project  TEXT NOT NULL,
    ref      TEXT NOT NULL,
    op       TEXT NOT NULL,
    old      TEXT NOT NULL,
    new      TEXT NOT NULL,
    owner    TEXT NOT NULL,
    asked_by TEXT NOT NULL,
    token    INTEGER NOT NULL,
    move     TEXT NOT NULL,
    at       INTEGER NOT NULL,
    witness  TEXT NOT NULL,
    fate     TEXT NOT NULL,
    reported INTEGER NOT NULL,
    PRIMARY KEY (project, ref, op)
) STRICT, WITHOUT ROWID;
