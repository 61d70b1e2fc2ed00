-- What sites are about to do to refs outside of the database, each recorded
-- with a lock of the same token.
-- old_value: '' if the ref did not exist. decision: NULL while the intent is
-- pending. nonce: the acquisition that must not be carried out, if that is the decision.
CREATE TABLE IF NOT EXISTS intents (
    project    TEXT NOT NULL,
    ref        TEXT NOT NULL,
    token      INTEGER NOT NULL,
    owner      TEXT NOT NULL,
    agent      TEXT NOT NULL,
    old_value  TEXT NOT NULL,
    new_value  TEXT NOT NULL,
    time       INTEGER NOT NULL,
    decision   TEXT,
    decided_by TEXT,
    reason     TEXT,
    decided_at INTEGER,
    nonce      TEXT,
    PRIMARY KEY (project, ref, token)
) STRICT, WITHOUT ROWID;
