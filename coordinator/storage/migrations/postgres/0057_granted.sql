CREATE OR REPLACE FUNCTION count_ledger_entry() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.deferred = 0 THEN
        UPDATE balances SET entries = entries + 1 WHERE ledger = NEW.ledger;
    ELSE
        INSERT INTO uncounted_entries (id, ledger, amount, granted) VALUES (NEW.id, NEW.ledger, NEW.amount, NEW.granted);
    END IF;
    RETURN NULL;
END $$;
