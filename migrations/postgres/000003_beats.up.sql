-- A process renews its locks by its owner's name. Beats do not change it, so
-- that they stay HOT; a lock and its release cost a tenth of a kilobyte of log more.
CREATE INDEX IF NOT EXISTS locks_owner ON locks (owner);

-- A beat leaves as many dead rows as it renews, every other second, and pages
-- are pruned by the beats that follow. What those can't prune is what short
-- locks leave behind, and whatever died under a long transaction. To find it,
-- vacuum must not wait for a share of the table (scale_factor), which in a large one
-- is many pages that every beat reads; nor sleep, and share its budget with
-- large tables (cost_delay): this one fits into memory.
ALTER TABLE locks SET (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);
