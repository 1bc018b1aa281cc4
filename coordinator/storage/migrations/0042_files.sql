-- Files of accounts: inputs and results of batches.
CREATE TABLE files (
    id         TEXT   PRIMARY KEY,
    account_id TEXT   NOT NULL REFERENCES accounts (id),
    filename   TEXT   NOT NULL,
    purpose    TEXT   NOT NULL,
    bytes      BIGINT NOT NULL DEFAULT 0,
    created_at BIGINT NOT NULL,
    -- When it is deleted. An upload that is not finished has a time as well.
    expires_at BIGINT,
    -- When its content was complete. Before, it is unknown to its account.
    ready_at   BIGINT
);
CREATE INDEX files_of_account ON files (account_id, created_at DESC, id DESC);
CREATE INDEX files_expired ON files (expires_at) WHERE expires_at IS NOT NULL;

-- The text of a file in order: an upload in pieces of some size, results with one line each.
CREATE TABLE file_pieces (
    file_id TEXT   NOT NULL REFERENCES files (id) ON DELETE CASCADE,
    n       BIGINT NOT NULL,
    content TEXT   NOT NULL,
    PRIMARY KEY (file_id, n)
);
