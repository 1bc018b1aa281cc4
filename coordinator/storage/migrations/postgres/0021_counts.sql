-- The counts are kept by the database, so that an older coordinator keeps them as well. Creating a trigger holds up
-- writers until the existing rows are counted.
CREATE FUNCTION count_job() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE accounts SET jobs = jobs + 1 WHERE id = NEW.account_id;
    RETURN NULL;
END $$;
CREATE FUNCTION count_ledger_entry() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE balances SET entries = entries + 1 WHERE ledger = NEW.ledger;
    RETURN NULL;
END $$;

CREATE TRIGGER jobs_are_counted AFTER INSERT ON jobs
FOR EACH ROW WHEN (NEW.only_host IS NULL) EXECUTE FUNCTION count_job();
CREATE TRIGGER ledger_entries_are_counted AFTER INSERT ON ledger_entries
FOR EACH ROW EXECUTE FUNCTION count_ledger_entry();

UPDATE accounts SET jobs = (SELECT COUNT(*) FROM jobs WHERE jobs.account_id = accounts.id AND jobs.only_host IS NULL);
UPDATE balances SET entries = (SELECT COUNT(*) FROM ledger_entries WHERE ledger_entries.ledger = balances.ledger);
