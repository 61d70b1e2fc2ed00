-- What sites are about to do to refs outside of the database, each recorded
-- with a lock of the same token. In a table of their own: whoever takes a lock for stale
-- and deletes it, as Gerrit's plugin does, leaves them alone.
-- old_value: '' if the ref did not exist. decision: NULL while the intent is
-- pending. nonce: the acquisition that must not be carried out, if that is the decision.
CREATE TABLE IF NOT EXISTS intents (
    project    text COLLATE "C" NOT NULL,
    ref        text COLLATE "C" NOT NULL,
    token      timestamptz NOT NULL,
    owner      text COLLATE "C" NOT NULL,
    agent      text NOT NULL,
    old_value  text COLLATE "C" NOT NULL,
    new_value  text COLLATE "C" NOT NULL,
    time       timestamptz NOT NULL,
    decision   text,
    decided_by text,
    reason     text,
    decided_at timestamptz,
    nonce      text,
    PRIMARY KEY (project, ref, token)
) WITH (
    -- As short-lived as locks, and scanned whole.
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);
