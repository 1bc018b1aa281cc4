-- The counts are kept by the database, so that an older coordinator keeps them as well.
CREATE TRIGGER jobs_are_counted AFTER INSERT ON jobs WHEN NEW.only_host IS NULL
BEGIN UPDATE accounts SET jobs = jobs + 1 WHERE id = NEW.account_id; END;
CREATE TRIGGER ledger_entries_are_counted AFTER INSERT ON ledger_entries
BEGIN UPDATE balances SET entries = entries + 1 WHERE ledger = NEW.ledger; END;

UPDATE accounts SET jobs = (SELECT COUNT(*) FROM jobs WHERE jobs.account_id = accounts.id AND jobs.only_host IS NULL);
UPDATE balances SET entries = (SELECT COUNT(*) FROM ledger_entries WHERE ledger_entries.ledger = balances.ledger);
