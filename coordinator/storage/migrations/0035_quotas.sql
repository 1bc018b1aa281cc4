-- How much an account or a key may use in a period, and what it has used since the period's begin.
CREATE TABLE quotas (
    -- Id of an account or of an API key.
    holder TEXT   NOT NULL,
    period TEXT   NOT NULL,
    unit   TEXT   NOT NULL,
    most   BIGINT NOT NULL,
    used   BIGINT NOT NULL,
    since  BIGINT NOT NULL,
    PRIMARY KEY (holder, period, unit)
);
