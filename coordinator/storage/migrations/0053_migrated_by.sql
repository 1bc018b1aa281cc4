-- Version of the newest coordinator that migrated this database, for the error of an older one that cannot use it.
ALTER TABLE compatibility ADD COLUMN migrated_by TEXT;
