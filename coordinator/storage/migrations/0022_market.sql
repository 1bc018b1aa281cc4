-- Completed jobs of the hours that are over, summed for each Cargo.
CREATE TABLE market_hours (
    -- Hours since 1970.
    hour          BIGINT NOT NULL,
    workload_slug TEXT   NOT NULL,
    completed     BIGINT NOT NULL,
    -- Those that were paid for, and their prices.
    jobs          BIGINT NOT NULL,
    total         BIGINT NOT NULL,
    least         BIGINT NOT NULL,
    most          BIGINT NOT NULL,
    -- Islands that completed them.
    hosts         BIGINT NOT NULL,
    PRIMARY KEY (workload_slug, hour)
);
CREATE INDEX market_hours_by_hour ON market_hours (hour);

-- Completed jobs of all hours that were summed, also those that were removed above.
CREATE TABLE market_totals (
    workload_slug TEXT   PRIMARY KEY,
    completed     BIGINT NOT NULL
);

-- Up to which time of completion a task over ended jobs has come.
CREATE TABLE progress (
    task  TEXT   PRIMARY KEY,
    until BIGINT NOT NULL
);
INSERT INTO progress (task, until) VALUES ('market', 0), ('inputs', 0), ('outputs', 0), ('events', 0);
