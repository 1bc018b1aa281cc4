-- Cargos that accounts submitted, a row for each version.
CREATE TABLE publications (
    id          TEXT   PRIMARY KEY,
    account_id  TEXT   NOT NULL REFERENCES accounts (id),
    slug        TEXT   NOT NULL,
    name        TEXT   NOT NULL,
    manifest    TEXT   NOT NULL,
    state       TEXT   NOT NULL,
    -- Why an operator approved or rejected it.
    reason      TEXT,
    created_at  BIGINT NOT NULL,
    -- When it came into its state, unless that is 'submitted'.
    changed_at  BIGINT,
    approved_at BIGINT
);
-- What is served, which every coordinator reads again and again, and what waits.
CREATE UNIQUE INDEX publications_served ON publications (slug) WHERE state = 'approved';
CREATE UNIQUE INDEX publications_waiting ON publications (slug) WHERE state = 'submitted';
CREATE INDEX publications_of_slug ON publications (slug);
CREATE INDEX publications_of_account ON publications (account_id, id);
