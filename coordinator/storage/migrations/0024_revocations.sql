-- Users of the fabric whose credentials are not valid any longer, although they have not expired.
CREATE TABLE fabric_revocations (
    public_key TEXT   PRIMARY KEY,
    -- Credentials that were issued until then are revoked.
    revoked_at BIGINT NOT NULL
);

-- Users of the fabric that were made for an API key.
CREATE TABLE fabric_watchers (
    public_key TEXT   PRIMARY KEY,
    api_key_id TEXT   NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE INDEX fabric_watchers_of_key ON fabric_watchers (api_key_id);
