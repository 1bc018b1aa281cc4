-- Islands in the order in which operators list them. `storage/indexes.rs` builds those of jobs.
CREATE INDEX hosts_listed ON hosts (created_at, id) WHERE left_at IS NULL;
