-- Prices of tokens and preferences among Islands, as JSON; absent for a job with one price that any Island may run.
ALTER TABLE jobs ADD COLUMN agreement TEXT;
-- What is kept of the requests of stored responses, as JSON, apart from the conversations, which are inputs of the jobs.
CREATE TABLE responses (
    job_id  TEXT PRIMARY KEY REFERENCES jobs (id),
    request TEXT NOT NULL
);
