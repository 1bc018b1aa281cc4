-- Coordinators that share this database. Each counts up in its own row; who stands still is gone, and its jobs are
-- taken over. No clocks are compared.
CREATE TABLE coordinators (
    id    TEXT   PRIMARY KEY,
    beats BIGINT NOT NULL
);
CREATE INDEX jobs_open_of_owner ON jobs (owner) WHERE status IN ('submitted', 'pending', 'queued', 'running');

-- When another coordinator changed something that all of them keep in memory.
ALTER TABLE hosts ADD COLUMN changed_at BIGINT NOT NULL DEFAULT 0;
CREATE INDEX hosts_changed ON hosts (changed_at);
