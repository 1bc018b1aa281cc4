-- As for `job_events`.
CREATE TRIGGER job_event_pieces_stay BEFORE UPDATE ON job_event_pieces
FOR EACH ROW EXECUTE FUNCTION refuse('the events of an ended job never change');
