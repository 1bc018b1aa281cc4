-- Islands that wait for their owner to confirm a code, and Islands that left.

CREATE TABLE pairings (
    code       TEXT   PRIMARY KEY,
    host_id    TEXT   NOT NULL UNIQUE,
    public_key TEXT   NOT NULL,
    name       TEXT   NOT NULL,
    expires_at BIGINT NOT NULL
);

ALTER TABLE hosts ADD COLUMN left_at BIGINT;
