-- What each Island delivered of a reply that several of them wrote, as JSON; each is paid for its part.
ALTER TABLE jobs ADD COLUMN parts TEXT;
-- 1 if only the client that sent the request can read the result, so that the job ends when nobody reads it.
ALTER TABLE jobs ADD COLUMN cancel_unread BIGINT NOT NULL DEFAULT 0;
-- Numbers the earners of a job.
ALTER TABLE ledger_entries ADD COLUMN part BIGINT NOT NULL DEFAULT 0;
DROP INDEX ledger_once_per_job;
CREATE UNIQUE INDEX ledger_once_per_job ON ledger_entries (job_id, kind, ledger, part) WHERE job_id IS NOT NULL;
