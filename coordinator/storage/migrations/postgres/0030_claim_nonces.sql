-- The nonces of signed requests of Islands, until their signatures expire.

CREATE UNLOGGED TABLE claim_nonces (
    public_key TEXT   NOT NULL,
    nonce      TEXT   NOT NULL,
    expires_at BIGINT NOT NULL,
    PRIMARY KEY (public_key, nonce)
);
