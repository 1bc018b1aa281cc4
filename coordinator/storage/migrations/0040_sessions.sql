-- Browsers that are signed in to the console. A session acts for a key, and ends with it.
CREATE TABLE sessions (
    -- Hash of the token that the browser holds.
    hash       TEXT   PRIMARY KEY,
    api_key_id TEXT   NOT NULL REFERENCES api_keys (id),
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);
-- Links that sign a browser in, once.
CREATE TABLE sign_in_links (
    -- Hash of the code in the link.
    hash       TEXT   PRIMARY KEY,
    api_key_id TEXT   NOT NULL REFERENCES api_keys (id),
    expires_at BIGINT NOT NULL
);
CREATE INDEX sessions_expired ON sessions (expires_at);
CREATE INDEX sign_in_links_expired ON sign_in_links (expires_at);
