-- The server at which may be written: the database's name; '-' for none until all witnesses have compared it;
-- '' for none until a recovery ends; 'new' for the next that opens it.
CREATE TABLE IF NOT EXISTS admission (
    id     INT64 NOT NULL,
    server STRING(MAX) NOT NULL,
    since  TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp=true),
) PRIMARY KEY (id);

-- Sites that compare a new server with what they know. server: that a site compared last. seen: when it
-- reported last. without: it was left out of a recovery. since: of the latest change of away or without; it only grows.
CREATE TABLE IF NOT EXISTS witnesses (
    name    STRING(MAX) NOT NULL,
    server  STRING(MAX) NOT NULL,
    seen    TIMESTAMP OPTIONS (allow_commit_timestamp=true),
    away    BOOL NOT NULL,
    without BOOL NOT NULL,
    since   TIMESTAMP NOT NULL,
) PRIMARY KEY (name);

-- Changes that a witness knows and this database does not have. token: of a pending intent, else 0. move: what became of
-- that. made: about when. fate: '' until somebody decides.
CREATE TABLE IF NOT EXISTS lost (
    project   STRING(MAX) NOT NULL,
    ref       STRING(MAX) NOT NULL,
    op        STRING(MAX) NOT NULL,
    old_value STRING(MAX) NOT NULL,
    new_value STRING(MAX) NOT NULL,
    owner     STRING(MAX) NOT NULL,
    asked_by  STRING(MAX) NOT NULL,
    token     INT64 NOT NULL,
    move      STRING(MAX) NOT NULL,
    made      TIMESTAMP NOT NULL,
    witness   STRING(MAX) NOT NULL,
    fate      STRING(MAX) NOT NULL,
    reported  TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp=true),
) PRIMARY KEY (project, ref, op);

INSERT OR IGNORE INTO admission (id, server, since) VALUES (1, 'new', PENDING_COMMIT_TIMESTAMP());
