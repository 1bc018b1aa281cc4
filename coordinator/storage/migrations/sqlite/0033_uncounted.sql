DROP TRIGGER ledger_entries_are_counted;
CREATE TRIGGER ledger_entries_are_counted AFTER INSERT ON ledger_entries WHEN NEW.deferred = 0
BEGIN UPDATE balances SET entries = entries + 1 WHERE ledger = NEW.ledger; END;
CREATE TRIGGER ledger_entries_are_deferred AFTER INSERT ON ledger_entries WHEN NEW.deferred <> 0
BEGIN INSERT INTO uncounted_entries (id, ledger, amount) VALUES (NEW.id, NEW.ledger, NEW.amount); END;
