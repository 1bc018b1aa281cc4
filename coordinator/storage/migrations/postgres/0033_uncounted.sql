CREATE OR REPLACE FUNCTION count_ledger_entry() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.deferred = 0 THEN
        UPDATE balances SET entries = entries + 1 WHERE ledger = NEW.ledger;
    ELSE
        INSERT INTO uncounted_entries (id, ledger, amount) VALUES (NEW.id, NEW.ledger, NEW.amount);
    END IF;
    RETURN NULL;
END $$;
