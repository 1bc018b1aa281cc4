-- A job that only one Island may run: how an owner sees that theirs works.

ALTER TABLE jobs ADD COLUMN only_host TEXT;

CREATE INDEX jobs_only_host ON jobs (only_host, created_at) WHERE only_host IS NOT NULL;

-- How fast the Island wrote the reply of its last check.
ALTER TABLE hosts ADD COLUMN tokens_per_second DOUBLE PRECISION;
