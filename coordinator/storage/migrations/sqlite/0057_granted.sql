DROP TRIGGER ledger_entries_are_deferred;
CREATE TRIGGER ledger_entries_are_deferred AFTER INSERT ON ledger_entries WHEN NEW.deferred <> 0
BEGIN INSERT INTO uncounted_entries (id, ledger, amount, granted) VALUES (NEW.id, NEW.ledger, NEW.amount, NEW.granted); END;
