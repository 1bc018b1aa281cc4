-- As for `job_events`.
CREATE TRIGGER job_event_pieces_stay BEFORE UPDATE ON job_event_pieces
BEGIN SELECT RAISE(ABORT, 'the events of an ended job never change'); END;
