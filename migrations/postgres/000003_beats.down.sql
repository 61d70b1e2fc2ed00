ALTER TABLE locks RESET (
    autovacuum_vacuum_scale_factor,
    autovacuum_vacuum_threshold,
    autovacuum_vacuum_cost_delay
);
DROP INDEX IF EXISTS locks_owner;
