CREATE TABLE batches (
    id                TEXT   PRIMARY KEY,
    account_id        TEXT   NOT NULL REFERENCES accounts (id),
    -- The key with which its requests are made.
    api_key_id        TEXT   NOT NULL REFERENCES api_keys (id),
    endpoint          TEXT   NOT NULL,
    -- Files may be deleted before the batch is.
    input_file_id     TEXT   NOT NULL,
    output_file_id    TEXT,
    error_file_id     TEXT,
    completion_window TEXT   NOT NULL,
    metadata          TEXT,
    max_credits       BIGINT,
    -- What ended requests cost, and what is held for open ones.
    spent             BIGINT NOT NULL DEFAULT 0,
    status            TEXT   NOT NULL,
    -- The coordinator that runs it. Every write of a runner compares it.
    coordinator_id    TEXT,
    total             BIGINT NOT NULL DEFAULT 0,
    completed         BIGINT NOT NULL DEFAULT 0,
    failed            BIGINT NOT NULL DEFAULT 0,
    errors            TEXT,
    created_at        BIGINT NOT NULL,
    expires_at        BIGINT NOT NULL,
    in_progress_at    BIGINT,
    finalizing_at     BIGINT,
    cancelling_at     BIGINT,
    ended_at          BIGINT
);
CREATE INDEX batches_of_account ON batches (account_id, created_at DESC, id DESC);
CREATE INDEX batches_open ON batches (status) WHERE status IN ('validating', 'in_progress', 'finalizing', 'cancelling');
