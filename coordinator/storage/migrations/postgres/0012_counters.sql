-- What counts against the limits: written at every request, and worth nothing after a crash.

CREATE UNLOGGED TABLE request_windows (
    who        TEXT   PRIMARY KEY,
    turn       BIGINT NOT NULL,
    hits       TEXT   NOT NULL,
    changed_at BIGINT NOT NULL
);

CREATE UNLOGGED TABLE stream_slots (
    account_id TEXT   NOT NULL,
    slot       BIGINT NOT NULL,
    holder     TEXT   NOT NULL,
    instance   TEXT   NOT NULL,
    expires_at BIGINT NOT NULL,
    PRIMARY KEY (account_id, slot)
);
