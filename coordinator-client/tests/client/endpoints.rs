//! Every endpoint: the request, and that the answer is parsed.

use std::future::IntoFuture;

use island_coordinator_client::{
    Client, ClientError, Request,
    catalogue::CargoFilter,
    protocol::{
        api::key::CreateKey,
        cargo::{Category, RuntimeType},
        ids::{ApiKeyId, HostId, JobId},
    },
};
use serde_json::{Value, json};

use crate::script::{Script, Step};

const ID: uuid::Uuid = uuid::Uuid::nil();
const NIL: &str = "00000000-0000-0000-0000-000000000000";
const NOW: &str = "2026-11-20T00:00:00.000Z";

/// Sends one request, whose answer must parse, and returns the request line.
async fn line<T: std::fmt::Debug + 'static>(
    body: impl ToString,
    ask: impl FnOnce(&Client) -> Request<T>,
) -> String {
    let script = Script::play(vec![Step::Answer(200, "", body.to_string())]).await;
    let answer: Result<T, ClientError> = ask(&script.client()).into_future().await;
    answer.expect("understood");
    script.asked().await[0].line.trim_end_matches(" HTTP/1.1").to_owned()
}

fn data(data: impl Into<Value>) -> Value {
    Value::from_iter([("data", data.into())])
}

#[tokio::test]
async fn jobs() {
    let id = JobId(ID);
    let summary = json!({ "id": NIL, "workload_slug": "x", "status": "running", "created_at": NOW, "completed_at": null });
    let page = json!({ "data": [summary], "meta": { "total": 1, "limit": 5, "offset": 2 } });
    assert_eq!(line(page, |c| c.jobs(5, 2)).await, "GET /api/v1/jobs?limit=5&offset=2");
    let job = json!({ "id": NIL, "workload_slug": "x", "status": "pending", "input": {}, "created_at": NOW });
    assert_eq!(line(data(job), |c| c.job(id)).await, format!("GET /api/v1/jobs/{NIL}"));
    let output = data(json!({ "id": NIL, "output": "text" }));
    assert_eq!(line(output, |c| c.job_output(id)).await, format!("GET /api/v1/jobs/{NIL}/output"));
    let cancelled = data(json!({ "id": NIL, "status": "cancelled" }));
    assert_eq!(line(cancelled, |c| c.cancel_job(id)).await, format!("DELETE /api/v1/jobs/{NIL}"));
}

#[tokio::test]
async fn catalogue() {
    let entry = json!({ "slug": "x", "name": "X", "description": "", "runtime_type": "wasm", "onnx_task_type": null,
        "price_per_job": 1, "required_vram_mb": 0, "required_ram_mb": 1 });
    let list = json!({ "cargos": [entry], "count": 1 });
    assert_eq!(line(list.clone(), |c| c.cargos(CargoFilter::default())).await, "GET /api/v1/cargos");
    let filter = CargoFilter { runtime_type: Some(RuntimeType::Wasm), category: Some(Category::Utility) };
    let wanted = "GET /api/v1/cargos?runtime_type=wasm&category=utility";
    assert_eq!(line(list, |c| c.cargos(filter)).await, wanted);
    assert_eq!(line(data(json!([])), Client::workloads).await, "GET /api/v1/workloads");
    let mut workload = json!({ "id": 1, "is_enabled": true });
    workload.as_object_mut().expect("object").extend(entry.as_object().expect("object").clone());
    assert_eq!(line(data(workload), |c| c.workload("x/../y")).await, "GET /api/v1/workloads/x%2F..%2Fy");
    let models = json!({ "object": "list",
        "data": [{ "id": "x", "object": "model", "created": 1, "owned_by": "island" }] });
    assert_eq!(line(models, Client::models).await, "GET /api/v1/models");
}

#[tokio::test]
async fn account_and_keys() {
    let account = data(json!({ "id": NIL, "email": "a@b", "credits": 1.5, "created_at": NOW }));
    assert_eq!(line(account, Client::account).await, "GET /api/v1/account");
    let entry =
        json!({ "id": "1", "kind": "hold", "book": "holds", "amount": -2, "job_id": NIL, "created_at": NOW });
    let page = json!({ "data": [entry], "meta": { "total": 1, "limit": 20, "offset": 0 } });
    assert_eq!(line(page, |c| c.ledger(20, 0)).await, "GET /api/v1/account/ledger?limit=20&offset=0");
    let key = json!({ "id": NIL, "name": "ci", "prefix": "ak_ab", "scopes": ["read"], "created_at": NOW,
        "last_used_at": null, "expires_at": null, "spend_cap": 5, "spent": 0.5 });
    assert_eq!(line(data(json!([key])), Client::api_keys).await, "GET /api/v1/api-keys");
    let create = CreateKey { name: "ci".into(), scopes: None, expires_at: None, spend_cap: None };
    let created = json!({ "data": key, "key": "ak_secret" });
    assert_eq!(line(created, |c| c.create_api_key(&create)).await, "POST /api/v1/api-keys");
    let revoked = data(json!({ "id": NIL, "revoked_at": NOW }));
    let asked = line(revoked, |c| c.revoke_api_key(ApiKeyId(ID))).await;
    assert_eq!(asked, format!("DELETE /api/v1/api-keys/{NIL}"));
}

#[tokio::test]
async fn network_and_market() {
    let host = json!({ "id": NIL, "name": "attic", "status": "online", "region": null, "karma": 1.5,
        "karma_score": 1.5, "capabilities": null, "last_heartbeat_at": null });
    assert_eq!(line(data(json!([host])), Client::hosts).await, "GET /api/v1/hosts");
    assert_eq!(line(data(host), |c| c.host(HostId(ID))).await, format!("GET /api/v1/hosts/{NIL}"));
    let karma = data(json!({ "host_id": NIL, "karma": 2.5, "karma_score": 2.5 }));
    assert_eq!(line(karma, |c| c.host_karma(HostId(ID))).await, format!("GET /api/v1/hosts/{NIL}/karma"));
    let stats = data(json!({ "online_islands": 1, "regions": 1, "jobs_completed": 7 }));
    assert_eq!(line(stats, Client::network_stats).await, "GET /api/v1/network/stats");
    let rate = json!({ "workload_slug": "x", "avg_price": 1, "min_price": 0.5, "max_price": 2, "num_hosts": 3,
        "num_jobs": 9, "timestamp": NOW });
    let rates = data(json!([rate]));
    assert_eq!(line(rates.clone(), Client::market_rates).await, "GET /api/v1/market/rates");
    assert_eq!(line(rates.clone(), |c| c.market_rate("x")).await, "GET /api/v1/market/rates/x");
    assert_eq!(line(rates, |c| c.market_history("x")).await, "GET /api/v1/market/history/x");
    let recommended = json!({ "host_id": NIL, "recommendations": [] });
    let asked = line(recommended, |c| c.recommendations(HostId(ID))).await;
    assert_eq!(asked, format!("GET /api/v1/island/recommendations?host_id={NIL}"));
    let credentials = data(json!({ "nats_url": "nats://x", "user_jwt": "j", "seed": "s", "expires_at": NOW,
        "subjects": [], "inbox_prefix": "_I" }));
    assert_eq!(line(credentials, Client::watch_credentials).await, "POST /api/v1/fabric/credentials");
}
