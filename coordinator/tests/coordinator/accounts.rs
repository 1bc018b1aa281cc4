//! Requests without jobs: health, catalogue, account.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::{database::ON_POSTGRES, island::Island, network::Network};

#[tokio::test]
async fn the_catalogue_and_health_need_no_key() {
    let network = Network::start().await;
    let open = async |path: &str| -> Value {
        let response = network.http.get(format!("{}{path}", network.url)).send().await.expect("answer");
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        response.json().await.expect("json")
    };
    assert_eq!(open("/health").await, json!({"status": "ok", "version": env!("CARGO_PKG_VERSION")}));
    assert_eq!(open("/ready").await["status"], "ok");
    let all = open("/cargos").await;
    assert_eq!((&all["count"], &all["cargos"][0]["slug"]), (&json!(2), &json!("count")));
    assert_eq!(all["cargos"][0]["price_per_job"], 0.25);
    assert_eq!(all["cargos"][0]["onnx_task_type"], Value::Null);
    assert_eq!(open("/cargos?category=llm").await["count"], 1);
    assert_eq!(open("/cargos?runtime_type=wasm").await, json!({"cargos": [], "count": 0}));
}

#[tokio::test]
async fn an_account_shows_its_spendable_credits() {
    let network = Network::start().await;
    let account = network.get("/account").await;
    assert_eq!(
        (&account["data"]["credits"], &account["data"]["email"]),
        (&json!(10), &json!("consumer@example.org"))
    );
    assert_eq!(account["data"]["id"], network.consumer.id.to_string());
}

#[tokio::test]
async fn workloads_have_schemas_and_stable_numbers() {
    let mut network = Network::start().await;
    let before = network.get("/workloads/echo").await;
    assert_eq!(before["data"]["example"]["input"]["prompt"], "hello");
    assert!(before["data"]["id"].as_i64().expect("number") > 0);
    network.down().await;
    network.up().await;
    assert_eq!(network.get("/workloads/echo").await, before);
    assert_eq!(network.get("/workloads").await["data"].as_array().expect("list").len(), 2);
}

#[tokio::test]
async fn islands_are_listed_with_their_capabilities() {
    let network = Network::start().await;
    let island = Island::start(&network).await;
    let host = network.get(&format!("/hosts/{}", island.id)).await["data"].clone();
    assert_eq!((&host["name"], &host["region"]), (&json!("scripted"), &json!("test")));
    assert_eq!(host["capabilities"]["platform"], "linux-x86_64");
    assert!(host["karma"].is_number());
}

#[tokio::test]
async fn keys_are_stored_as_hashes_only() {
    let network = Network::start().await;
    let key = &network.consumer.key;
    assert!(key.starts_with("ak_") && key.len() > 30);
    let pool = network.sql().await;
    let rows: Vec<(String, String, String)> =
        sqlx::query_as("SELECT name, prefix, hash FROM api_keys").fetch_all(&pool).await.expect("keys");
    assert!(
        rows.iter()
            .all(|(name, prefix, hash)| ![name, prefix, hash].iter().any(|text| text.contains(&key[11..])))
    );
    if ON_POSTGRES {
        let tables: Vec<String> = sqlx::query_scalar(
            "SELECT CAST(table_name AS TEXT) FROM information_schema.tables WHERE table_schema = 'public'",
        )
        .fetch_all(&pool)
        .await
        .expect("tables");
        assert!(tables.iter().any(|table| table == "api_keys"), "{tables:?}");
        for table in tables {
            let rows = format!("SELECT COUNT(*) FROM {table} WHERE CAST({table} AS TEXT) LIKE $1");
            let count: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(rows))
                .bind(format!("%{}%", &key[11..]))
                .fetch_one(&pool)
                .await
                .expect("count");
            assert_eq!(count, 0, "{table}");
        }
        return pool.close().await;
    }
    pool.close().await;
    for file in ["island.db", "island.db-wal"] {
        let bytes = std::fs::read(network.path(file)).expect("a file of the database");
        assert!(!bytes.windows(key.len()).any(|window| window == key.as_bytes()), "{file}");
    }
}

#[tokio::test]
async fn the_database_itself_refuses_to_rewrite_history() {
    let network = Network::start().await;
    let id = network.submit().await;
    let cancelled =
        network.call(reqwest::Method::DELETE, &format!("/jobs/{id}")).send().await.expect("answer");
    assert_eq!(cancelled.status(), StatusCode::OK);
    let pool = network.sql().await;
    for statement in [
        "UPDATE ledger_entries SET amount = 0",
        "DELETE FROM ledger_entries",
        "UPDATE jobs SET status = 'completed'",
        "UPDATE job_events SET events = '[]'",
        "UPDATE balances SET amount = -1 WHERE ledger LIKE 'account:%'",
    ] {
        assert!(sqlx::query(statement).execute(&pool).await.is_err(), "{statement}");
    }
    pool.close().await;
}

#[tokio::test]
async fn pages_of_listed_origins_may_use_the_api() {
    let network =
        Network::start_with(|config| config.http.cors_origins = vec!["https://app.example.org".to_owned()]).await;
    let preflight = |origin: &str| {
        network
            .http
            .request(Method::OPTIONS, format!("{}/jobs", network.url))
            .header("origin", origin)
            .header("access-control-request-method", "POST")
            .header("access-control-request-headers", "authorization,x-stainless-lang")
            .send()
    };
    let allowed = preflight("https://app.example.org").await.expect("answer");
    assert_eq!(allowed.status(), 200);
    assert_eq!(allowed.headers()["access-control-allow-origin"], "https://app.example.org");
    assert_eq!(allowed.headers()["access-control-allow-headers"], "authorization,x-stainless-lang");
    assert!(!allowed.headers().contains_key("access-control-allow-credentials"));
    let other = preflight("https://other.example.org").await.expect("answer");
    assert!(!other.headers().contains_key("access-control-allow-origin"));
    let read = network.call(Method::GET, "/account").header("origin", "https://app.example.org");
    let read = read.send().await.expect("answer");
    assert_eq!(read.headers()["access-control-allow-origin"], "https://app.example.org");
    assert_eq!(read.status(), 200);
    // What a script of the page may read of an answer, beside its body.
    let exposed = read.headers()["access-control-expose-headers"].to_str().expect("text");
    let exposed: Vec<_> = exposed.split(',').map(str::trim).collect();
    for header in ["retry-after", "x-should-retry", "x-request-id", "island-served", "island-substitute", "idempotency-replayed"] {
        assert!(exposed.contains(&header), "{header} is not among {exposed:?}");
    }
}
