-- Ended jobs of an account with the columns of every filter. An entry is written once, when its job ends.
CREATE INDEX jobs_ended_of_account ON jobs (account_id, created_at DESC, id DESC, status, workload_slug, api_key_id)
    WHERE COALESCE(only_host, '') = '' AND status IN ('completed', 'failed', 'cancelled', 'timeout');
