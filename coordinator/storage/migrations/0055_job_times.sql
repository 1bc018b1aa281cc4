-- When an Island first accepted a job, and when the first part of its output arrived.
ALTER TABLE jobs ADD COLUMN placed_at BIGINT;
ALTER TABLE jobs ADD COLUMN first_output_at BIGINT;
