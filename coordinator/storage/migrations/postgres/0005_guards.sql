-- What no statement of ours may do, whoever writes it.

CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING MESSAGE = TG_ARGV[0], ERRCODE = 'integrity_constraint_violation';
END $$;

CREATE TRIGGER ledger_entries_stay BEFORE UPDATE ON ledger_entries
FOR EACH ROW EXECUTE FUNCTION refuse('ledger entries are never changed');
CREATE TRIGGER ledger_entries_are_kept BEFORE DELETE ON ledger_entries
FOR EACH ROW EXECUTE FUNCTION refuse('ledger entries are never deleted');
CREATE TRIGGER ledger_entries_are_not_truncated BEFORE TRUNCATE ON ledger_entries
FOR EACH STATEMENT EXECUTE FUNCTION refuse('ledger entries are never deleted');
CREATE TRIGGER final_states_stay BEFORE UPDATE OF status ON jobs
FOR EACH ROW WHEN (OLD.status IN ('completed', 'failed', 'cancelled', 'timeout') AND NEW.status <> OLD.status)
EXECUTE FUNCTION refuse('a final state never changes');
CREATE TRIGGER job_events_stay BEFORE UPDATE ON job_events
FOR EACH ROW EXECUTE FUNCTION refuse('the events of an ended job never change');
