-- The tables of Gerrit's spanner-refdb plugin, in PostgreSQL's words.
-- COLLATE "C" makes order and prefixes those of bytes.
CREATE TABLE IF NOT EXISTS refs (
    project text COLLATE "C" NOT NULL,
    ref     text COLLATE "C" NOT NULL,
    value   text COLLATE "C" NOT NULL,
    time    timestamptz,
    PRIMARY KEY (project, ref)
) WITH (fillfactor = 80);

-- A beat rewrites every row of a live process: half-empty pages let it do so
-- in place (HOT), without touching the index.
CREATE TABLE IF NOT EXISTS locks (
    project   text COLLATE "C" NOT NULL,
    ref       text COLLATE "C" NOT NULL,
    heartbeat timestamptz,
    token     timestamptz,
    owner     text COLLATE "C" NOT NULL,
    PRIMARY KEY (project, ref)
) WITH (fillfactor = 50);
