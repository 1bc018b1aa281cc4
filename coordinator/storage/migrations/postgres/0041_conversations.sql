-- Which Island ran the last job of a conversation: worth nothing after a crash.
CREATE UNLOGGED TABLE conversations (
    identity   TEXT   PRIMARY KEY,
    host_id    TEXT   NOT NULL,
    expires_at BIGINT NOT NULL
);
