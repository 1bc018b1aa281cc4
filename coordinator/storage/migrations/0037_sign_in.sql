-- Sign-ins that have begun at a provider and are not finished.
CREATE TABLE logins (
    -- Hash of the state that the provider returns.
    id         TEXT   PRIMARY KEY,
    nonce      TEXT   NOT NULL,
    verifier   TEXT   NOT NULL,
    -- Port of this machine at which the program that began it waits, and the hash of what it proves itself with.
    port       BIGINT NOT NULL,
    challenge  TEXT   NOT NULL,
    created_at BIGINT NOT NULL,
    -- Of the code that the program gets, once the provider has confirmed the person.
    code_hash  TEXT   UNIQUE,
    account_id TEXT   REFERENCES accounts (id)
);
-- Who a provider says that an account belongs to.
CREATE TABLE identities (
    issuer     TEXT   NOT NULL,
    subject    TEXT   NOT NULL,
    account_id TEXT   NOT NULL REFERENCES accounts (id),
    created_at BIGINT NOT NULL,
    PRIMARY KEY (issuer, subject)
);
