-- Listings and the market read counters and indexes over few rows, however many jobs have ended.

-- Jobs of the account, without checks of its Islands; a trigger counts.
ALTER TABLE accounts ADD COLUMN jobs BIGINT NOT NULL DEFAULT 0;
-- Entries of the book; likewise.
ALTER TABLE balances ADD COLUMN entries BIGINT NOT NULL DEFAULT 0;

CREATE INDEX jobs_listed ON jobs (account_id, created_at DESC, id DESC) WHERE only_host IS NULL;
DROP INDEX jobs_of_account;
CREATE INDEX jobs_waiting ON jobs (workload_slug)
    WHERE only_host IS NULL AND status IN ('submitted', 'pending', 'queued');
CREATE INDEX jobs_completed_of ON jobs (completed_at, workload_slug) WHERE only_host IS NULL AND status = 'completed';
DROP INDEX jobs_completed;
CREATE INDEX jobs_ended ON jobs (completed_at) WHERE completed_at IS NOT NULL;
CREATE INDEX ledger_listed ON ledger_entries (ledger, created_at DESC, id DESC);
DROP INDEX ledger_by_account;
DROP INDEX ledger_settled;
