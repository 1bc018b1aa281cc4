-- The newest time by which this network has deleted or summed anything.
INSERT INTO progress (task, until) VALUES ('clock', COALESCE((SELECT MAX(completed_at) FROM jobs), 0));
