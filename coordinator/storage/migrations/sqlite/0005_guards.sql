-- What no statement of ours may do, whoever writes it.

CREATE TRIGGER ledger_entries_stay BEFORE UPDATE ON ledger_entries
BEGIN SELECT RAISE(ABORT, 'ledger entries are never changed'); END;
CREATE TRIGGER ledger_entries_are_kept BEFORE DELETE ON ledger_entries
BEGIN SELECT RAISE(ABORT, 'ledger entries are never deleted'); END;
CREATE TRIGGER final_states_stay BEFORE UPDATE OF status ON jobs
WHEN OLD.status IN ('completed', 'failed', 'cancelled', 'timeout') AND NEW.status <> OLD.status
BEGIN SELECT RAISE(ABORT, 'a final state never changes'); END;
CREATE TRIGGER job_events_stay BEFORE UPDATE ON job_events
BEGIN SELECT RAISE(ABORT, 'the events of an ended job never change'); END;
