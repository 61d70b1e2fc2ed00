-- Every change of a ref's value. position: the commit that made it, the same instant as refs.time. old_value, new_value: '' for no row.
-- shard: spreads the newest entries of history_shard over the servers; see refdb/spanner/history.go.
CREATE TABLE IF NOT EXISTS history (
    project   STRING(MAX) NOT NULL,
    ref       STRING(MAX) NOT NULL,
    position  TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp=true),
    old_value STRING(MAX) NOT NULL,
    new_value STRING(MAX) NOT NULL,
    op        STRING(64),
    owner     STRING(MAX),
    asked_by  STRING(MAX),
    shard     INT64 NOT NULL,
) PRIMARY KEY (project, ref, position);

CREATE INDEX IF NOT EXISTS history_shard ON history (shard, position);

CREATE INDEX IF NOT EXISTS history_project ON history (project, position);

-- One row. pruned: no change from here on was pruned; never before begun.
CREATE TABLE IF NOT EXISTS history_state (
    id     INT64 NOT NULL,
    begun  TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp=true),
    pruned TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp=true),
) PRIMARY KEY (id);

-- Spans of positions without a break. first: that of the first one is the beginning of time, so that only one can be made.
CREATE TABLE IF NOT EXISTS epochs (
    first    TIMESTAMP NOT NULL,
    id       STRING(64) NOT NULL,
    began    TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp=true),
    asked_by STRING(MAX) NOT NULL,
    reason   STRING(MAX) NOT NULL,
) PRIMARY KEY (first);

-- Readers of the history. read: the last position up to which the reader has read everything, in microseconds.
CREATE TABLE IF NOT EXISTS followers (
    name   STRING(MAX) NOT NULL,
    cursor STRING(MAX) NOT NULL,
    read   INT64 NOT NULL,
    seen   TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp=true),
) PRIMARY KEY (name);

INSERT OR IGNORE INTO history_state (id, begun, pruned) VALUES (0, PENDING_COMMIT_TIMESTAMP(), PENDING_COMMIT_TIMESTAMP());

INSERT OR IGNORE INTO epochs (first, id, began, asked_by, reason)
VALUES (TIMESTAMP '1970-01-01T00:00:00Z', GENERATE_UUID(), PENDING_COMMIT_TIMESTAMP(), '', '');

-- nonce: of a pending intent, the operation that recorded it, with an owner and a name of any length.
ALTER TABLE intents ALTER COLUMN nonce STRING(MAX);
