//! Which change of an Island would have earned more yesterday.

use island_protocol::cargo::RuntimeType;
use serde_json::json;

use crate::support::{answer, island::Island, network::Network};

#[tokio::test]
async fn advice_counts_yesterdays_demand_and_is_for_the_owner_alone() {
    let network = Network::start().await;
    // It has an engine, but not the one of the Cargo that was in demand.
    let island = Island::start_with(&network, RuntimeType::Onnx).await;
    let advice = async |key: &str| {
        let url = format!("{}/hosts/{}/advice", network.url, island.id);
        answer(network.http.get(url).bearer_auth(key)).await
    };
    let (status, body) = advice(&network.owner.key).await;
    assert_eq!((status, &body["data"]["improvements"]), (200, &json!([])), "{body}");
    let (from, until) = (body["data"]["from"].clone(), body["data"]["until"].clone());
    assert!(from.as_str().is_some_and(|time| time.ends_with("T00:00:00.000Z")) && from != until, "{body}");

    // Yesterday three jobs of it were paid on two Islands, and one found none.
    let pool = network.sql().await;
    let noon = "SELECT CAST((MAX(created_at) / 86400000) * 86400000 - 43200000 AS BIGINT) FROM accounts";
    let noon: i64 = sqlx::query_scalar(noon).fetch_one(&pool).await.expect("a time");
    sqlx::query(
        "INSERT INTO market_hours (hour, workload_slug, completed, jobs, total, least, most, hosts) \
         VALUES ($1, 'echo', 3, 3, 6000000, 2000000, 2000000, 2)",
    )
    .bind(noon / 3_600_000)
    .execute(&pool)
    .await
    .expect("an hour");
    sqlx::query(
        "INSERT INTO jobs (id, account_id, workload_id, workload_slug, status, input, priority, price, deadline, \
         created_at, completed_at, error_code) \
         VALUES ('00000000-0000-7000-8000-000000000001', $1, 1, 'echo', 'failed', '{}', 0, 0, 0, $2, $2, 'no_island_available')",
    )
    .bind(network.consumer.id.to_string())
    .bind(noon)
    .execute(&pool)
    .await
    .expect("a job");
    pool.close().await;
    let (_, body) = advice(&network.owner.key).await;
    let found = &body["data"]["improvements"];
    // A third of the six credits, and two for the job that nobody ran.
    let expected = json!({"change": "engine", "engine": "llmcpp", "jobs": 2, "credits": 4, "cargos": ["echo"]});
    assert!(found.as_array().is_some_and(|all| all.contains(&expected)), "{body}");

    let (status, body) = advice(&network.consumer.key).await;
    assert_eq!((status, &body["error"]["code"]), (404, &json!("host_not_found")), "{body}");
}
