-- `storage/indexes.rs` builds the index of earnings beside writes.
SELECT 1;
