-- Ended jobs of each account by day, Cargo and key, so that usage is read without the jobs.
CREATE TABLE usage_days (
    account_id        TEXT   NOT NULL,
    -- Days since 1970, UTC, of the ends of the jobs.
    day               BIGINT NOT NULL,
    workload_slug     TEXT   NOT NULL,
    -- Empty for jobs from before keys were recorded.
    api_key_id        TEXT   NOT NULL,
    jobs              BIGINT NOT NULL,
    prompt_tokens     BIGINT NOT NULL,
    completion_tokens BIGINT NOT NULL,
    amount            BIGINT NOT NULL,
    PRIMARY KEY (account_id, day, workload_slug, api_key_id)
);
INSERT INTO progress (task, until) VALUES ('usage', 0);
