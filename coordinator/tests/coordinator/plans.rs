//! The statements are those that the coordinator executes while this test calls its API, so a new one is checked as well.

use std::{
    collections::BTreeSet,
    fmt::{Debug, Write as _},
    sync::{Arc, Mutex, OnceLock},
};

use island_coordinator_domain::config::Database;
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::{AnyPool, AssertSqlSafe, Executor as _, Row as _};
use tracing::field::{Field, Visit};
use tracing_subscriber::{Layer, layer::SubscriberExt as _};

use crate::support::{
    admin::{Admin, operator},
    answer, database,
    island::{Island, completed, token},
    network::Network,
    postgres::{MISSING, Server},
    soon,
};

/// Tables that grow with the jobs that have ended.
const LARGE: [&str; 5] = ["jobs", "job_events", "job_event_pieces", "ledger_entries", "idempotency"];
/// The names under which statements use them.
const ALIASES: [&str; 3] = ["j", "e", "a"];
/// Indexes over open jobs only, which may be read completely.
const SMALL: [&str; 7] = [
    "jobs_open",
    "jobs_open_of_account",
    "jobs_open_of_coordinator",
    "jobs_queue",
    "jobs_queue_of_cargo",
    "jobs_waiting",
    "jobs_unread",
];

/// Collects SQL.
#[derive(Debug, Default, Clone)]
struct Statements(Arc<Mutex<BTreeSet<String>>>);

impl Statements {
    /// Waits for a statement that begins so.
    async fn has(&self, begin: &str) {
        while !self.0.lock().expect("no panic").iter().any(|sql| sql.starts_with(begin)) {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }
}

impl<S: tracing::Subscriber> Layer<S> for Statements {
    fn on_event(&self, event: &tracing::Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
        if event.metadata().target() != "sqlx::query" {
            return;
        }
        let mut sql = Sql::default();
        event.record(&mut sql);
        let text = if sql.statement.trim().is_empty() { sql.summary } else { sql.statement };
        self.0.lock().expect("no panic").insert(text.trim().to_owned());
    }
}

#[derive(Default)]
struct Sql {
    summary: String,
    statement: String,
}

impl Visit for Sql {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "summary" => value.clone_into(&mut self.summary),
            "db.statement" => value.clone_into(&mut self.statement),
            _ => {}
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn Debug) {}
}

fn statements() -> &'static Statements {
    static STATEMENTS: OnceLock<Statements> = OnceLock::new();
    STATEMENTS.get_or_init(|| {
        let statements = Statements::default();
        let only =
            tracing_subscriber::filter::Targets::new().with_target("sqlx::query", tracing::Level::DEBUG);
        let subscriber = tracing_subscriber::registry().with(statements.clone().with_filter(only));
        tracing::subscriber::set_global_default(subscriber).expect("the only one of this process");
        statements
    })
}

#[tokio::test]
async fn no_request_reads_all_jobs_or_all_of_the_ledger() {
    let recorded = statements();
    let mut networks = vec![Network::start().await];
    let server = Server::is_installed().then(Server::start);
    match &server {
        Some(server) => {
            let url = Some(server.database().parse().expect("a URL"));
            let change = |config: &mut island_coordinator_domain::config::Config| {
                config.database = Database { url, connections: 6, ..config.database.clone() };
            };
            networks.push(Network::start_with(change).await);
        }
        None => island_testing::skip("query plans of PostgreSQL", MISSING),
    }
    for mut network in networks {
        recorded.0.lock().expect("no panic").clear();
        use_everything(&network).await;
        // A coordinator begins with a round of maintenance.
        network.down().await;
        network.up().await;
        soon("a round of maintenance", recorded.has("DELETE FROM fabric_watchers")).await;
        let statements = recorded.0.lock().expect("no panic").clone();
        network.down().await;
        let pool = database::connect(&network.config.database).await;
        if network.config.database.url.is_some() {
            enlarge(&pool).await;
        }
        let mut faults = String::new();
        let mut checked = 0;
        for sql in statements.iter().filter(|sql| is_of_requests(sql)) {
            let plan = plan(&pool, sql, network.config.database.url.is_some()).await;
            checked += 1;
            if let Some(line) = plan.iter().find(|line| reads_everything(line)) {
                let _ = writeln!(faults, "{line}\n  of {sql}");
            }
            if is_about_open_jobs(sql) && plan.iter().any(|line| line.contains("jobs_listed")) {
                let _ = writeln!(faults, "all jobs of an account\n  of {sql}");
            }
        }
        pool.close().await;
        assert!(faults.is_empty(), "{faults}");
        assert!(checked > 20, "{checked} statements were recorded: {statements:#?}");
    }
}

/// Creates a response in the background, and a batch of one request, and cancels both.
async fn use_chats(network: &Network) {
    let id_of = |body: &Value| body["id"].as_str().unwrap_or_else(|| panic!("an id: {body}")).to_owned();
    let post = async |path: &str, body: &Value| {
        let (status, body) = answer(network.call(Method::POST, path).json(body)).await;
        assert!((200..300).contains(&status), "{path}: {status} {body}");
        body
    };
    let response =
        id_of(&post("/responses", &json!({"model": "echo", "input": "x", "background": true})).await);
    network.get(&format!("/responses/{response}")).await;
    network.get(&format!("/responses/{response}/input_items")).await;
    post(&format!("/responses/{response}/cancel"), &json!({})).await;
    let body = json!({"model": "echo", "messages": [{"role": "user", "content": "x"}]});
    let line = json!({"custom_id": "x", "method": "POST", "url": "/v1/chat/completions", "body": body});
    let part =
        |head: &str, text: &str| format!("--b\r\nContent-Disposition: form-data; {head}\r\n\r\n{text}\r\n");
    let file = part("name=\"file\"; filename=\"in.jsonl\"", &line.to_string());
    let form = format!("{file}{}--b--\r\n", part("name=\"purpose\"", "batch"));
    let upload =
        network.call(Method::POST, "/files").header("Content-Type", "multipart/form-data; boundary=b");
    let file = id_of(&answer(upload.body(form)).await.1);
    let endpoint = "/v1/chat/completions";
    let batch = json!({"input_file_id": file, "endpoint": endpoint, "completion_window": "24h"});
    let batch = format!("/batches/{}", id_of(&post("/batches", &batch).await));
    let reached = async |status: &str| {
        while network.get(&batch).await["status"] != status {
            tokio::task::yield_now().await;
        }
    };
    soon("the batch runs", reached("in_progress")).await;
    post(&format!("{batch}/cancel"), &json!({})).await;
    soon("the batch is cancelled", reached("cancelled")).await;
    for path in ["/batches", "/files", &format!("/files/{file}"), &format!("/files/{file}/content")] {
        let status = network.call(Method::GET, path).send().await.expect("answer").status();
        assert!(status.is_success(), "{path}: {status}");
    }
}

/// Copies the jobs that have ended and their entries some thousands of times. PostgreSQL chooses between indexes by the size of
/// the tables; over a handful of rows every index costs the same.
async fn enlarge(pool: &AnyPool) {
    const COPIES: &str = "
        SET session_replication_role = replica;
        INSERT INTO jobs
        SELECT (jsonb_populate_record(NULL::jobs, to_jsonb(j) || jsonb_build_object(
            'id', md5(j.id || n), 'created_at', j.created_at - n * 60000, 'completed_at', j.completed_at - n * 60000))).*
        FROM jobs j, generate_series(1, 5000) n WHERE j.completed_at IS NOT NULL;
        INSERT INTO ledger_entries
        SELECT (jsonb_populate_record(NULL::ledger_entries, to_jsonb(e) || jsonb_build_object(
            'id', md5(e.id || n), 'job_id', md5(e.job_id || n), 'created_at', e.created_at - n * 60000))).*
        FROM ledger_entries e, generate_series(1, 5000) n WHERE e.job_id IN (SELECT id FROM jobs WHERE completed_at IS NOT NULL);
        SET session_replication_role = DEFAULT;
        ANALYZE";
    let mut conn = pool.acquire().await.expect("a connection");
    conn.execute(sqlx::raw_sql(COPIES)).await.expect("copies of jobs and entries");
}

/// Calls what operators use of accounts and of the money.
async fn use_accounts(network: &Network, admin: &Admin<'_>) {
    let account = network.consumer.id;
    for path in [
        "/accounts".to_owned(),
        "/accounts?email=consumer@example.org".to_owned(),
        format!("/accounts/{account}"),
        format!("/accounts/{account}/statement"),
        format!("/accounts/{account}/quotas"),
        format!("/accounts/{account}/api-keys"),
        "/payouts".to_owned(),
        "/audit-log".to_owned(),
    ] {
        admin.get(&path).await;
    }
    let quotas = json!({"quotas": {"month": {"requests": 1_000, "credits": 1_000}}, "reason": "test"});
    let quotas = admin.post(&format!("/accounts/{account}/quotas"), &quotas).await;
    assert_eq!(quotas.0, 200, "{quotas:?}");
    let payout = admin.post("/payouts", &json!({"reason": "test"})).await;
    assert!((200..300).contains(&payout.0), "{payout:?}");
    let closed = admin.post(&format!("/accounts/{account}/close"), &json!({"reason": "test"})).await;
    assert_eq!(closed.0, 422, "it has credits: {closed:?}");
}

/// Calls every route that reads or writes jobs, the ledger or the market.
async fn use_everything(network: &Network) {
    let mut island = Island::start(network).await;
    network.served("echo").await;
    let id = network.submit().await;
    let run = island.take().await;
    island.send(run.key, run.first_event, vec![token("a")]).await;
    island.end(run.key, run.first_event + 1, completed(1, 1)).await;
    let waiting = json!({"workload": "echo", "input": {"prompt": "x"}});
    let keyed = network.call(Method::POST, "/jobs").header("Idempotency-Key", "k").json(&waiting);
    let open = answer(keyed).await.1["data"]["id"].as_str().expect("an id").to_owned();
    let entry: Value = network.get("/account/ledger?limit=1").await["data"][0]["id"].clone();
    let entry = entry.as_str().expect("an id");
    for path in [
        "/account".to_owned(),
        "/account/ledger?limit=2&offset=1".to_owned(),
        format!("/account/ledger?after={entry}"),
        "/account/usage?workload=echo".to_owned(),
        "/account/statement".to_owned(),
        "/account/quotas".to_owned(),
        "/webhooks".to_owned(),
        "/api-keys".to_owned(),
        "/jobs?limit=1&offset=1".to_owned(),
        format!("/jobs?after={open}"),
        format!("/jobs?after={open}&status=completed"),
        "/jobs?status=failed&workload=echo&from=2026-01-01T00:00:00Z".to_owned(),
        "/jobs?status=running&limit=1&offset=1".to_owned(),
        "/jobs?workload=echo".to_owned(),
        format!("/jobs?key={}&until=2027-01-01T00:00:00Z", uuid::Uuid::nil()),
        format!("/jobs/{id}"),
        format!("/jobs/{id}/output"),
        "/hosts".to_owned(),
        "/market/rates".to_owned(),
        "/market/history/echo".to_owned(),
        "/network/stats".to_owned(),
        format!("/island/recommendations?host_id={}", island.id),
        "/health".to_owned(),
    ] {
        network.get(&path).await;
    }
    let admin = Admin { network, key: operator(network).await.key };
    for path in [
        "/queue",
        "/queue?workload=echo&limit=1&offset=1",
        &format!("/queue?account={}", network.consumer.id),
        "/queue?reason=no_slot",
    ] {
        admin.get(path).await;
    }
    use_accounts(network, &admin).await;
    // With quotas, which are read before a job is accepted.
    use_chats(network).await;
    let advice = format!("{}/hosts/{}/advice", network.url, island.id);
    let advice = answer(network.http.get(advice).bearer_auth(&network.owner.key)).await;
    assert_eq!(advice.0, 200, "{advice:?}");
    network.stream(&id, 0).await.rest().await;
    for (method, path) in [
        (Method::POST, "/fabric/credentials".to_owned()),
        (Method::DELETE, format!("/jobs/{open}")),
        (Method::DELETE, format!("/jobs/{id}/data")),
    ] {
        let status = network.call(method, &path).send().await.expect("answer").status();
        assert!(status.is_success(), "{path}: {status}");
    }
}

fn is_of_requests(sql: &str) -> bool {
    let verb = sql.split_whitespace().next().unwrap_or_default().to_uppercase();
    let is_statement = matches!(verb.as_str(), "SELECT" | "UPDATE" | "DELETE" | "INSERT");
    is_statement && LARGE.iter().any(|table| sql.contains(table)) && !sql.contains("_sqlx_migrations")
}

fn is_about_open_jobs(sql: &str) -> bool {
    sql.contains("status IN ('submitted'")
}

async fn plan(pool: &AnyPool, sql: &str, on_postgres: bool) -> Vec<String> {
    let text = |rows: Vec<sqlx::any::AnyRow>, column: usize| -> Vec<String> {
        rows.iter().map(|row| row.try_get::<String, _>(column).expect("text")).collect()
    };
    if !on_postgres {
        let statement = format!("EXPLAIN QUERY PLAN {sql}");
        let rows = sqlx::query(AssertSqlSafe(statement)).fetch_all(pool).await;
        return text(rows.unwrap_or_else(|error| panic!("{error}: {sql}")), 3);
    }
    if sql.starts_with("INSERT") {
        // Types of its parameters cannot be deduced, and it has the same subqueries as on the embedded database.
        return Vec::new();
    }
    let mut conn = pool.acquire().await.expect("a connection");
    // As if the tables were large: an index is used wherever one can be. With generic plans, values do not matter.
    let settings = "SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan";
    conn.execute(sqlx::raw_sql(settings)).await.expect("set");
    let prepare = format!("PREPARE statement AS {sql}");
    let prepared = conn.execute(sqlx::raw_sql(AssertSqlSafe(prepare))).await;
    if let Err(error) = prepared {
        let is_untyped = error.to_string().contains("could not determine data type");
        assert!(is_untyped, "{error}: {sql}");
        conn.close().await.expect("closed");
        return Vec::new();
    }
    let parameters = (1..100).take_while(|n| sql.contains(&format!("${n}"))).count();
    let values = vec!["NULL"; parameters].join(", ");
    let values = if parameters == 0 { String::new() } else { format!("({values})") };
    let explain = format!("EXPLAIN EXECUTE statement{values}");
    let rows = conn.fetch_all(sqlx::raw_sql(AssertSqlSafe(explain))).await.expect("a plan");
    conn.execute(sqlx::raw_sql("DEALLOCATE statement")).await.expect("forgotten");
    conn.close().await.expect("closed");
    let lines = text(rows, 0);
    // The condition of an index follows its line.
    let scans = lines.iter().enumerate().map(|(index, line)| {
        let is_restricted = lines.get(index + 1).is_some_and(|next| next.contains("Index Cond"));
        if is_restricted { format!("{line} (restricted)") } else { line.clone() }
    });
    scans.collect()
}

/// Whether a line of a plan reads a large table completely.
fn reads_everything(line: &str) -> bool {
    let words: Vec<&str> = line.split_whitespace().collect();
    let after = |word: &str| {
        let at = words.iter().position(|found| *found == word)?;
        words.get(at + 1).copied()
    };
    let is_large = |name: &str| LARGE.contains(&name) || ALIASES.contains(&name);
    let is_small = |index: Option<&str>| index.is_some_and(|index| SMALL.contains(&index));
    // SQLite: `SCAN jobs USING INDEX i`; PostgreSQL: `Index Scan using i on jobs j`, `Bitmap Index Scan on i`.
    if words.first() == Some(&"SCAN") {
        return words.get(1).is_some_and(|name| is_large(name)) && !is_small(after("INDEX"));
    }
    if line.contains("Seq Scan") {
        return after("on").is_some_and(is_large);
    }
    let is_index_scan = line.contains("Index Scan using") || line.contains("Index Only Scan using");
    is_index_scan
        && !line.contains("(restricted)")
        && after("on").is_some_and(is_large)
        && !is_small(after("using"))
}

#[test]
fn plans_are_understood() {
    for (line, expected) in [
        ("SCAN jobs", true),
        ("SCAN jobs USING INDEX jobs_listed", true),
        ("SCAN j USING COVERING INDEX jobs_ended", true),
        ("SCAN jobs USING COVERING INDEX jobs_queue_of_cargo", false),
        ("SCAN parts", false),
        ("SEARCH jobs USING INDEX jobs_listed (account_id=?)", false),
        ("  ->  Seq Scan on jobs j  (cost=0.00..1.00 rows=1 width=4)", true),
        ("  ->  Seq Scan on hosts  (cost=0.00..1.00 rows=1 width=4)", false),
        ("Index Scan using jobs_pkey on jobs  (cost=0.00..1.00 rows=1 width=4)", true),
        ("Index Scan using jobs_pkey on jobs  (cost=0.00..1.00 rows=1 width=4) (restricted)", false),
        ("Index Only Scan using jobs_open on jobs  (cost=0.00..1.00 rows=1 width=4)", false),
    ] {
        assert_eq!(reads_everything(line), expected, "{line}");
    }
}
