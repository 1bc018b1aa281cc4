-- What a key may do, until when and for how much. `spent` is what its jobs paid or hold, and the caps of keys it made;
-- the transaction that holds or releases writes it.
ALTER TABLE api_keys ADD COLUMN scopes TEXT NOT NULL DEFAULT 'read,write';
ALTER TABLE api_keys ADD COLUMN expires_at BIGINT;
ALTER TABLE api_keys ADD COLUMN spend_cap BIGINT;
ALTER TABLE api_keys ADD COLUMN spent BIGINT NOT NULL DEFAULT 0;
-- The capped key that made this one and gave it part of its own cap.
ALTER TABLE api_keys ADD COLUMN parent_id TEXT;
CREATE INDEX api_keys_of_account ON api_keys (account_id, created_at);

ALTER TABLE jobs ADD COLUMN api_key_id TEXT;
CREATE INDEX jobs_open_of_account ON jobs (account_id)
    WHERE status IN ('submitted', 'pending', 'queued', 'running');
CREATE INDEX jobs_completed ON jobs (completed_at) WHERE status = 'completed';
CREATE INDEX ledger_settled ON ledger_entries (created_at) WHERE kind = 'settle';

-- What a request with an Idempotency-Key made: a job or a key, from which its answer is told again.
CREATE TABLE idempotency (
    account_id      TEXT   NOT NULL REFERENCES accounts (id),
    route           TEXT   NOT NULL,
    idempotency_key TEXT   NOT NULL,
    fingerprint     TEXT   NOT NULL,
    made            TEXT   NOT NULL,
    created_at      BIGINT NOT NULL,
    PRIMARY KEY (account_id, route, idempotency_key)
);
CREATE INDEX idempotency_by_age ON idempotency (created_at);
CREATE INDEX idempotency_by_made ON idempotency (made);
