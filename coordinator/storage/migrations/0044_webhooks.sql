CREATE TABLE webhooks (
    id            TEXT   PRIMARY KEY,
    account_id    TEXT   NOT NULL REFERENCES accounts (id),
    url           TEXT   NOT NULL,
    -- The key of its signatures: a hash would not be enough to sign.
    secret        TEXT   NOT NULL,
    -- The key before, with which events are signed as well until this time.
    old_secret    TEXT,
    old_until     BIGINT,
    -- Names of events, separated by commas.
    events        TEXT   NOT NULL,
    created_at    BIGINT NOT NULL,
    failing_since BIGINT,
    disabled_at   BIGINT
);
CREATE INDEX webhooks_of_account ON webhooks (account_id, created_at);

-- Events for webhooks, written by the transactions that they are about.
CREATE TABLE webhook_deliveries (
    id          TEXT   PRIMARY KEY,
    webhook_id  TEXT   NOT NULL REFERENCES webhooks (id) ON DELETE CASCADE,
    event       TEXT   NOT NULL,
    subject     TEXT   NOT NULL,
    state       TEXT   NOT NULL,
    attempts    BIGINT NOT NULL DEFAULT 0,
    -- Before this time no coordinator tries it: the next attempt, or the end of the lease of the current one.
    next_at     BIGINT NOT NULL,
    last_status BIGINT,
    last_error  TEXT,
    created_at  BIGINT NOT NULL,
    ended_at    BIGINT
);
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (next_at) WHERE state = 'pending';
CREATE INDEX webhook_deliveries_open ON webhook_deliveries (webhook_id, next_at) WHERE state = 'pending';
CREATE INDEX webhook_deliveries_listed ON webhook_deliveries (webhook_id, created_at DESC, id DESC);
CREATE INDEX webhook_deliveries_ended ON webhook_deliveries (ended_at) WHERE ended_at IS NOT NULL;
