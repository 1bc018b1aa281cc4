-- Credits keep their origin. `granted` of an account's balance are its credits, held ones included, that nobody has paid for: grants, refunds
-- and what was earned from such credits. They are spent first, and are never paid out. `spent` are those that the latest posting took.
ALTER TABLE balances ADD COLUMN granted BIGINT NOT NULL DEFAULT 0;
ALTER TABLE balances ADD COLUMN spent BIGINT NOT NULL DEFAULT 0;
-- Part of an earning that was granted credits of its payer.
ALTER TABLE ledger_entries ADD COLUMN granted BIGINT NOT NULL DEFAULT 0;
ALTER TABLE uncounted_entries ADD COLUMN granted BIGINT NOT NULL DEFAULT 0;
-- Until now all credits were granted. What was earned and not paid out yet remains payable, as it was promised.
UPDATE balances SET granted = amount - CASE WHEN amount < (
        SELECT COALESCE(SUM(e.amount), 0) FROM ledger_entries e
        WHERE e.ledger = balances.ledger AND e.kind IN ('settle', 'payout', 'payout_return'))
    THEN amount ELSE (
        SELECT COALESCE(SUM(e.amount), 0) FROM ledger_entries e
        WHERE e.ledger = balances.ledger AND e.kind IN ('settle', 'payout', 'payout_return'))
    END WHERE ledger LIKE 'account:%';
UPDATE balances SET granted = 0 WHERE granted < 0;
