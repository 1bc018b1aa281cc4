-- Times are milliseconds since 1970, money is micro-credits, ids are text: types that every SQL database has.
-- What only one of them understands is in the folder named after it; versions are counted over all folders.

CREATE TABLE accounts (
    id         TEXT   PRIMARY KEY,
    email      TEXT   NOT NULL UNIQUE,
    operator   BIGINT NOT NULL DEFAULT 0,
    created_at BIGINT NOT NULL
);

CREATE TABLE api_keys (
    id           TEXT   PRIMARY KEY,
    account_id   TEXT   NOT NULL REFERENCES accounts (id),
    name         TEXT   NOT NULL,
    prefix       TEXT   NOT NULL,
    hash         TEXT   NOT NULL UNIQUE,
    created_at   BIGINT NOT NULL,
    last_used_at BIGINT,
    revoked_at   BIGINT
);
CREATE INDEX api_keys_prefix ON api_keys (prefix);

CREATE TABLE workloads (
    id   BIGINT PRIMARY KEY,
    slug TEXT   NOT NULL UNIQUE
);

CREATE TABLE hosts (
    id            TEXT   PRIMARY KEY,
    account_id    TEXT   NOT NULL REFERENCES accounts (id),
    public_key    TEXT   NOT NULL,
    name          TEXT   NOT NULL,
    region        TEXT,
    agent_version TEXT,
    capabilities  TEXT,
    karma_ms      BIGINT NOT NULL DEFAULT 0,
    created_at    BIGINT NOT NULL,
    last_seen_at  BIGINT
);

CREATE TABLE jobs (
    id            TEXT   PRIMARY KEY,
    account_id    TEXT   NOT NULL REFERENCES accounts (id),
    workload_id   BIGINT NOT NULL,
    workload_slug TEXT   NOT NULL,
    status        TEXT   NOT NULL,
    input         TEXT   NOT NULL,
    priority      BIGINT NOT NULL,
    price         BIGINT NOT NULL,
    max_tokens    BIGINT,
    -- The fence: every message about a run repeats these, and a write that does not match them changes nothing.
    owner         TEXT,
    attempt       BIGINT NOT NULL DEFAULT 0,
    epoch         BIGINT NOT NULL DEFAULT 0,
    host_id       TEXT,
    -- Events written before the current attempt; the attempt's own follow from `first_event`.
    head          TEXT   NOT NULL DEFAULT '[]',
    first_event   BIGINT NOT NULL DEFAULT 1,
    deadline      BIGINT NOT NULL,
    created_at    BIGINT NOT NULL,
    started_at    BIGINT,
    completed_at  BIGINT,
    output        TEXT,
    usage         TEXT,
    error_code    TEXT,
    error_message TEXT
);
CREATE INDEX jobs_of_account ON jobs (account_id, created_at DESC, id DESC);
CREATE INDEX jobs_open ON jobs (status) WHERE status IN ('submitted', 'pending', 'queued', 'running');

CREATE TABLE job_events (
    job_id TEXT PRIMARY KEY REFERENCES jobs (id),
    events TEXT NOT NULL
);

CREATE TABLE ledger_entries (
    id         TEXT   PRIMARY KEY,
    ledger     TEXT   NOT NULL,
    kind       TEXT   NOT NULL,
    job_id     TEXT   REFERENCES jobs (id),
    amount     BIGINT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX ledger_once_per_job ON ledger_entries (job_id, kind, ledger) WHERE job_id IS NOT NULL;
CREATE INDEX ledger_by_account ON ledger_entries (ledger, created_at);

-- The cached sums of the entries, written by the transaction that writes the entries.
CREATE TABLE balances (
    ledger TEXT   PRIMARY KEY,
    amount BIGINT NOT NULL,
    CHECK (amount >= 0 OR ledger = 'platform:issue')
);
