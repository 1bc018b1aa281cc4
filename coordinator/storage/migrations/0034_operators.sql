-- Accounts whose keys are refused, and the reason that they are shown.
ALTER TABLE accounts ADD COLUMN suspended_at BIGINT;
ALTER TABLE accounts ADD COLUMN suspended_reason TEXT;
-- Islands that get no new jobs.
ALTER TABLE hosts ADD COLUMN suspended_at BIGINT;
ALTER TABLE hosts ADD COLUMN suspended_reason TEXT;

-- What operators did. Rows are only added.
CREATE TABLE audit_log (
    id         TEXT   PRIMARY KEY,
    created_at BIGINT NOT NULL,
    -- The operator's account; NULL for a command on the coordinator's machine.
    actor      TEXT   REFERENCES accounts (id),
    action     TEXT   NOT NULL,
    account_id TEXT   NOT NULL REFERENCES accounts (id),
    api_key_id TEXT   REFERENCES api_keys (id),
    host_id    TEXT   REFERENCES hosts (id),
    job_id     TEXT   REFERENCES jobs (id),
    amount     BIGINT,
    reason     TEXT   NOT NULL
);
CREATE INDEX audit_log_by_time ON audit_log (created_at, id);
CREATE INDEX audit_log_of_account ON audit_log (account_id, created_at, id);
