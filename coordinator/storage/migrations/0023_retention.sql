-- When a part of the job's data was first deleted.
ALTER TABLE jobs ADD COLUMN data_deleted_at BIGINT;

-- Events that follow those in `job_events`, where there are too many for one row.
CREATE TABLE job_event_pieces (
    job_id  TEXT   NOT NULL REFERENCES jobs (id),
    first_n BIGINT NOT NULL,
    events  TEXT   NOT NULL,
    PRIMARY KEY (job_id, first_n)
);
