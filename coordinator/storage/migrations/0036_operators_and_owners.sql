-- Accounts that are closed for good.
ALTER TABLE accounts ADD COLUMN closed_at BIGINT;
-- How far operators trust an Island, and what they noted.
ALTER TABLE hosts ADD COLUMN trust TEXT NOT NULL DEFAULT 'normal';
ALTER TABLE hosts ADD COLUMN note TEXT;
-- A Cargo, or the id of an invitation, a notice or a payout.
ALTER TABLE audit_log ADD COLUMN subject TEXT;
-- The Island that a payment is for, and the device that its engine reported.
ALTER TABLE ledger_entries ADD COLUMN host_id TEXT;
ALTER TABLE ledger_entries ADD COLUMN device TEXT;

CREATE TABLE invitations (
    id         TEXT   PRIMARY KEY,
    code_hash  TEXT   NOT NULL UNIQUE,
    credits    BIGINT NOT NULL,
    uses       BIGINT NOT NULL,
    used       BIGINT NOT NULL DEFAULT 0,
    reason     TEXT   NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT,
    revoked_at BIGINT
);
-- Which invitation an account was created with.
CREATE TABLE signups (
    account_id    TEXT PRIMARY KEY REFERENCES accounts (id),
    invitation_id TEXT NOT NULL
);

-- One row, with id 1, while the network accepts no new jobs.
CREATE TABLE network_maintenance (
    id     BIGINT PRIMARY KEY,
    since  BIGINT NOT NULL,
    reason TEXT   NOT NULL
);
CREATE TABLE disabled_cargos (
    slug        TEXT   PRIMARY KEY,
    disabled_at BIGINT NOT NULL,
    reason      TEXT   NOT NULL
);
CREATE TABLE notices (
    id         TEXT   PRIMARY KEY,
    content    TEXT   NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT
);

-- Earnings that have left their accounts.
CREATE TABLE payouts (
    id         TEXT   PRIMARY KEY,
    state      TEXT   NOT NULL,
    ends_at    BIGINT NOT NULL,
    accounts   BIGINT NOT NULL,
    amount     BIGINT NOT NULL,
    reason     TEXT   NOT NULL,
    created_at BIGINT NOT NULL,
    ended_at   BIGINT
);
CREATE TABLE payments (
    payout_id  TEXT   NOT NULL,
    account_id TEXT   NOT NULL REFERENCES accounts (id),
    amount     BIGINT NOT NULL,
    PRIMARY KEY (payout_id, account_id)
);
-- Holds exported earnings until they are confirmed.
INSERT INTO balances (ledger, amount) VALUES ('platform:payouts', 0) ON CONFLICT (ledger) DO NOTHING;
