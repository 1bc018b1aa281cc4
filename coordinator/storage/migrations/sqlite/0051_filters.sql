-- Waiting jobs in the order in which they are placed, of all Cargos and of one, for the pages of operators. Both indexes have open jobs only.
CREATE INDEX jobs_queue ON jobs (priority DESC, created_at, id)
    WHERE only_host IS NULL AND status IN ('submitted', 'pending');
CREATE INDEX jobs_queue_of_cargo ON jobs (workload_slug, priority DESC, created_at, id)
    WHERE only_host IS NULL AND status IN ('submitted', 'pending');
-- Jobs that no Island took, which an Island with other settings might have run.
CREATE INDEX jobs_unmet ON jobs (completed_at, workload_slug)
    WHERE only_host IS NULL AND error_code = 'no_island_available';
-- Islands in the order in which operators list them.
CREATE INDEX hosts_listed ON hosts (created_at, id) WHERE left_at IS NULL;
