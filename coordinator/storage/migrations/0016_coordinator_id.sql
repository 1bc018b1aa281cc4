-- The coordinator that executes a job. An owner is the person with the machine.
DROP INDEX jobs_open_of_owner;
ALTER TABLE jobs RENAME COLUMN owner TO coordinator_id;
CREATE INDEX jobs_open_of_coordinator ON jobs (coordinator_id)
    WHERE status IN ('submitted', 'pending', 'queued', 'running');
