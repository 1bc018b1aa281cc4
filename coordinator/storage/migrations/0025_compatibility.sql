-- The newest migration that a coordinator must know to use this database. Migrations that only add leave it as it is,
-- so that an older coordinator may start again during an upgrade.
CREATE TABLE compatibility (
    oldest BIGINT NOT NULL
);
INSERT INTO compatibility (oldest) VALUES (25);
