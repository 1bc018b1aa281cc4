-- `storage/indexes.rs` builds the index of ended jobs beside writes.
SELECT 1;
