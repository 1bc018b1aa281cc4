-- Earnings that are entries already but are added to their balance later, so that the ends of jobs do not wait for each
-- other at the balance of a common earner. A balance is what `balances` has plus these.
CREATE TABLE uncounted_entries (
    -- Of the ledger entry.
    id     TEXT   PRIMARY KEY,
    ledger TEXT   NOT NULL,
    amount BIGINT NOT NULL
);
CREATE INDEX uncounted_entries_of ON uncounted_entries (ledger);
-- 1 if the entry was written to `uncounted_entries` with it; a trigger does that.
ALTER TABLE ledger_entries ADD COLUMN deferred BIGINT NOT NULL DEFAULT 0;

-- Karma that is added to the Island's later, for the same reason.
CREATE TABLE uncounted_karma (
    -- The job that was completed.
    id      TEXT   PRIMARY KEY,
    host_id TEXT   NOT NULL,
    ms      BIGINT NOT NULL
);
CREATE INDEX uncounted_karma_of ON uncounted_karma (host_id);
