//! Every endpoint: the request, and that the answer is parsed.

use std::future::IntoFuture;

use island_coordinator_client::{
    Client, ClientError, JobFilter, Request,
    api::{
        admin::{AnnotateHost, CreateNotice, Reason},
        batch::{BatchEndpoint, CreateBatch},
        key::CreateKey,
        payout::CreatePayout,
        publication::PublicationState,
        quota::{QuotaPeriod, QuotaView, Quotas, SetQuotas, Used},
        signup::{CreateInvitation, SignUp},
    },
    catalogue::CargoFilter,
    protocol::{
        cargo::{Category, RuntimeType},
        credits::MicroCredits,
        ids::{AccountId, ApiKeyId, BatchId, HostId, InvitationId, JobId, NoticeId, PayoutId, PublicationId},
        job::JobStatus,
        time::Timestamp,
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
    let all = JobFilter::default();
    assert_eq!(line(&page, |c| c.jobs(&all, 5, 2)).await, "GET /api/v1/jobs?limit=5&offset=2");
    let filter = JobFilter {
        status: Some(JobStatus::Failed),
        cargo: Some("x".parse().expect("a slug")),
        from: Some(Timestamp::from_unix_ms(0)),
        ..all
    };
    let filtered = line(page, |c| c.jobs(&filter, 5, 2)).await;
    let query = "status=failed&workload=x&from=1970-01-01T00%3A00%3A00.000Z&limit=5&offset=2";
    assert_eq!(filtered, format!("GET /api/v1/jobs?{query}"));
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
    let create =
        CreateKey { name: "ci".into(), scopes: None, expires_at: None, spend_cap: None, quotas: None };
    let created = json!({ "data": key, "key": "ak_secret" });
    assert_eq!(line(created, |c| c.create_api_key(&create)).await, "POST /api/v1/api-keys");
    let revoked = data(json!({ "id": NIL, "revoked_at": NOW }));
    let asked = line(revoked, |c| c.revoke_api_key(ApiKeyId(ID))).await;
    assert_eq!(asked, format!("DELETE /api/v1/api-keys/{NIL}"));
}

#[tokio::test]
async fn files_and_batches() {
    let id = BatchId(ID);
    let file = json!({ "id": "file-1", "object": "file", "bytes": 3, "created_at": 1, "expires_at": 2,
        "filename": "a.jsonl", "purpose": "batch", "status": "processed" });
    let uploaded = line(&file, |c| c.upload_batch_file("a.jsonl", "{}\n".into())).await;
    assert_eq!(uploaded, "POST /api/v1/files");
    assert_eq!(line("{}\n", |c| c.file_content("file-1")).await, "GET /api/v1/files/file-1/content");
    let deleted = json!({ "id": "file-1", "object": "file", "deleted": true });
    assert_eq!(line(deleted, |c| c.delete_file("file-1")).await, "DELETE /api/v1/files/file-1");
    let batch = json!({ "id": format!("batch_{NIL}"), "object": "batch", "endpoint": "/v1/embeddings",
        "input_file_id": "file-1", "completion_window": "24h", "status": "in_progress", "created_at": 1,
        "request_counts": { "total": 2, "completed": 1, "failed": 0 } });
    let wanted = CreateBatch {
        input_file_id: "file-1".to_owned(),
        endpoint: BatchEndpoint::Embeddings,
        completion_window: "24h".to_owned(),
        metadata: None,
        max_credits: None,
    };
    assert_eq!(line(&batch, |c| c.create_batch(&wanted)).await, "POST /api/v1/batches");
    let page = json!({ "object": "list", "data": [batch], "has_more": false });
    let listed = line(page, |c| c.batches(5, Some(id))).await;
    assert_eq!(listed, format!("GET /api/v1/batches?limit=5&after=batch_{NIL}"));
    assert_eq!(line(&batch, |c| c.batch(id)).await, format!("GET /api/v1/batches/batch_{NIL}"));
    let cancelled = line(&batch, |c| c.cancel_batch(id)).await;
    assert_eq!(cancelled, format!("POST /api/v1/batches/batch_{NIL}/cancel"));
}

#[tokio::test]
async fn publications() {
    let id = PublicationId(ID);
    let publication = json!({ "id": NIL, "workload_slug": "x", "name": "X", "publisher": NIL, "state": "approved",
        "reason": "fine", "created_at": NOW, "changed_at": NOW });
    let page = json!({ "data": [publication], "meta": { "total": 1, "limit": 5, "offset": 2 } });
    let mut details = publication.clone();
    details["manifest"] = "slug = \"x\"".into();
    let (one, details) = (data(publication), data(details));
    let reason = Reason { reason: "fine".to_owned() };
    assert_eq!(line(&one, |c| c.publish("slug".to_owned())).await, "POST /api/v1/publications");
    assert_eq!(line(&page, |c| c.publications(5, 2)).await, "GET /api/v1/publications?limit=5&offset=2");
    assert_eq!(line(&details, |c| c.publication(id)).await, format!("GET /api/v1/publications/{NIL}"));
    let withdrawn = line(&one, |c| c.withdraw_publication(id)).await;
    assert_eq!(withdrawn, format!("DELETE /api/v1/publications/{NIL}"));
    let state = Some(PublicationState::Submitted);
    let listed = line(&page, |c| c.all_publications(state, 5, 2)).await;
    assert_eq!(listed, "GET /api/v1/admin/publications?state=submitted&limit=5&offset=2");
    let own = format!("/api/v1/admin/publications/{NIL}");
    assert_eq!(line(&details, |c| c.any_publication(id)).await, format!("GET {own}"));
    assert_eq!(line(&one, |c| c.approve_publication(id, &reason)).await, format!("POST {own}/approve"));
    assert_eq!(line(&one, |c| c.reject_publication(id, &reason)).await, format!("POST {own}/reject"));
}

/// The quotas in [`QUOTAS`].
fn quota_views() -> Vec<QuotaView> {
    vec![QuotaView {
        period: QuotaPeriod::Day,
        resets_at: Timestamp::from_unix_ms(0),
        requests: Some(Used { used: 2, max: 5 }),
        tokens: None,
        credits: Some(Used { used: MicroCredits(500_000), max: MicroCredits(1_000_000) }),
    }]
}

const QUOTAS: &str = r#"[{"period":"day","resets_at":"1970-01-01T00:00:00.000Z","requests":{"used":2,"max":5},
    "credits":{"used":0.5,"max":1}}]"#;

/// A server that answers once, and its client.
async fn once(body: impl ToString) -> (Script, Client) {
    let script = Script::play(vec![Step::Answer(200, "", body.to_string())]).await;
    let client = script.client();
    (script, client)
}

#[tokio::test]
async fn quotas_statements_and_sign_up() {
    let quotas: Value = serde_json::from_str(QUOTAS).expect("JSON");
    let (_script, client) = once(data(json!({ "account": quotas, "key": [] }))).await;
    let own = client.quotas().await.expect("understood");
    assert_eq!((own.account, own.key), (quota_views(), Vec::new()));
    let (script, client) = once(data(quotas.clone())).await;
    assert_eq!(client.quotas_of_key(ApiKeyId(ID)).await.expect("understood"), quota_views());
    assert!(script.asked().await[0].line.starts_with(&format!("GET /api/v1/api-keys/{NIL}/quotas ")));
    let mut set = Quotas::default();
    set.day.requests = Some(5);
    let (script, client) = once(data(quotas)).await;
    client.set_quotas_of_key(ApiKeyId(ID), &set).await.expect("understood");
    assert_eq!(script.asked().await[0].body, r#"{"day":{"requests":5},"month":{}}"#);

    let statement = data(json!({ "account": NIL, "from": NOW, "until": NOW, "opening": 1, "closing": 2,
        "totals": [{ "kind": "earned", "amount": 1, "entries": 3 }],
        "earned": [{ "host_id": NIL, "name": "attic", "device": "cuda: A GPU", "jobs": 3, "amount": 1 }],
        "spent": [{ "workload_slug": "x", "jobs": 1, "amount": 0.5 }] }));
    let from = Timestamp::from_unix_ms(0);
    let span = "from=1970-01-01T00%3A00%3A00.000Z";
    assert_eq!(line(statement.clone(), |c| c.statement(None, None)).await, "GET /api/v1/account/statement");
    let asked = line(statement.clone(), |c| c.statement(Some(from), None)).await;
    assert_eq!(asked, format!("GET /api/v1/account/statement?{span}"));
    let asked = line(statement, |c| c.statement_of_account(AccountId(ID), None, Some(from))).await;
    assert_eq!(
        asked,
        format!("GET /api/v1/admin/accounts/{NIL}/statement?{}", span.replace("from", "until"))
    );
    let (script, client) = once("time,kind\n").await;
    let answer = client.statement_csv(Some(from), None).answer().await.expect("text");
    assert_eq!((answer.value.as_str(), answer.body), ("time,kind\n", json!("time,kind\n")));
    let asked = script.asked().await[0].line.clone();
    assert_eq!(asked, format!("GET /api/v1/account/statement?{span}&format=csv HTTP/1.1"));

    let sign_up = SignUp { email: "a@b".into(), code: "one".into() };
    let account = json!({ "id": NIL, "email": "a@b", "credits": 1.5, "created_at": NOW });
    let signed_up = json!({ "data": account, "key": "ak_secret" });
    let (script, client) = once(&signed_up).await;
    assert_eq!(client.sign_up(&sign_up).await.expect("understood").key, "ak_secret");
    let asked = &script.asked().await[0];
    assert!(asked.line.starts_with("POST /api/v1/signup "), "{}", asked.line);
    assert_eq!(asked.body, r#"{"email":"a@b","code":"one"}"#);
}

#[tokio::test]
async fn accounts_islands_and_cargos_of_operators() {
    let (account, why) = (AccountId(ID), Reason { reason: "why".into() });
    let body = data(
        json!({ "id": NIL, "email": "a@b", "operator": false, "credits": 0, "held": 0, "created_at": NOW,
        "closed_at": NOW }),
    );
    let path = format!("/api/v1/admin/accounts/{NIL}");
    assert_eq!(line(body, |c| c.close_account(account, &why)).await, format!("POST {path}/close"));
    let quotas = format!(r#"{{"data":{QUOTAS}}}"#);
    assert_eq!(line(&quotas, |c| c.quotas_of_account(account)).await, format!("GET {path}/quotas"));
    let set = SetQuotas { quotas: Quotas::default(), reason: "why".into() };
    assert_eq!(
        line(&quotas, |c| c.set_quotas_of_account(account, &set)).await,
        format!("POST {path}/quotas")
    );
    let csv = line("time,kind\n", |c| c.statement_csv_of_account(account, None, None)).await;
    assert_eq!(csv, format!("GET {path}/statement?format=csv"));

    let host = data(json!({ "id": NIL, "account": NIL, "name": "attic", "trust": "low", "note": "slow",
        "created_at": NOW, "last_seen_at": null }));
    let annotation = AnnotateHost { trust: None, note: Some(String::new()), reason: "why".into() };
    let (script, client) = once(host).await;
    client.annotate_host(HostId(ID), &annotation).await.expect("understood");
    let asked = &script.asked().await[0];
    assert!(asked.line.starts_with(&format!("POST /api/v1/admin/hosts/{NIL}/annotate ")), "{}", asked.line);
    assert_eq!(asked.body, r#"{"note":"","reason":"why"}"#);

    let (script, client) = once(data(json!({ "id": NIL, "status": "cancelled" }))).await;
    client.cancel_job_of_account(JobId(ID), &why).await.expect("understood");
    let asked = &script.asked().await[0];
    assert!(asked.line.starts_with(&format!("POST /api/v1/admin/jobs/{NIL}/cancel ")), "{}", asked.line);
    assert_eq!(asked.body, r#"{"reason":"why"}"#);

    let state =
        json!({ "workload_slug": "x", "is_enabled": false, "disabled": { "at": NOW, "reason": "why" } });
    assert_eq!(line(data(json!([state])), Client::cargo_states).await, "GET /api/v1/admin/cargos");
    let asked = line(data(state.clone()), |c| c.disable_cargo("x", &why)).await;
    assert_eq!(asked, "POST /api/v1/admin/cargos/x/disable");
    assert_eq!(line(data(state), |c| c.enable_cargo("x", &why)).await, "POST /api/v1/admin/cargos/x/enable");
}

#[tokio::test]
async fn notices_invitations_and_payouts_of_operators() {
    let why = Reason { reason: "why".into() };
    let notice = json!({ "id": NIL, "text": "soon", "created_at": NOW });
    let notices = data(json!({ "maintenance": { "since": NOW, "reason": "why" }, "notices": [notice] }));
    assert_eq!(line(&notices, Client::network_notices).await, "GET /api/v1/network/notices");
    assert_eq!(line(&notices, |c| c.start_maintenance(&why)).await, "POST /api/v1/admin/maintenance/start");
    assert_eq!(line(notices, |c| c.end_maintenance(&why)).await, "POST /api/v1/admin/maintenance/end");
    assert_eq!(line(data(json!([notice])), Client::notices).await, "GET /api/v1/admin/notices");
    let create = CreateNotice { text: "soon".into(), until: None };
    assert_eq!(line(data(notice.clone()), |c| c.create_notice(&create)).await, "POST /api/v1/admin/notices");
    let asked = line(data(notice), |c| c.remove_notice(NoticeId(ID))).await;
    assert_eq!(asked, format!("DELETE /api/v1/admin/notices/{NIL}"));

    let invitation = json!({ "id": NIL, "credits": 5, "uses": 1, "used": 0, "reason": "why", "created_at": NOW,
        "expires_at": null });
    let page = |entry: &Value| json!({ "data": [entry], "meta": { "total": 1, "limit": 5, "offset": 2 } });
    let asked = line(page(&invitation), |c| c.invitations(5, 2)).await;
    assert_eq!(asked, "GET /api/v1/admin/invitations?limit=5&offset=2");
    let create = CreateInvitation { credits: None, uses: 1, expires_at: None, reason: "why".into() };
    let (script, client) = once(json!({ "data": invitation, "code": "one" })).await;
    let created = client.create_invitation(&create).await.expect("understood");
    assert_eq!(created.code.as_deref(), Some("one"));
    assert!(script.asked().await[0].header("idempotency-key").is_some(), "it acts once");
    let asked = line(data(invitation), |c| c.revoke_invitation(InvitationId(ID), &why)).await;
    assert_eq!(asked, format!("POST /api/v1/admin/invitations/{NIL}/revoke"));

    let payout = json!({ "id": NIL, "state": "exported", "until": NOW, "accounts": 1, "amount": 5, "reason": "why",
        "created_at": NOW });
    let payment = json!({ "account": NIL, "email": "a@b", "amount": 5 });
    let details = data(json!({ "payout": payout, "payments": [payment] }));
    let path = format!("/api/v1/admin/payouts/{NIL}");
    let asked = line(page(&payout), |c| c.payouts(5, 2)).await;
    assert_eq!(asked, "GET /api/v1/admin/payouts?limit=5&offset=2");
    let create = CreatePayout { until: None, minimum: MicroCredits::ONE, reason: "why".into() };
    let (script, client) = once(&details).await;
    client.create_payout(&create).await.expect("understood");
    let asked = &script.asked().await[0];
    assert!(asked.line.starts_with("POST /api/v1/admin/payouts "), "{}", asked.line);
    assert!(asked.header("idempotency-key").is_some(), "it acts once");
    assert_eq!(line(&details, |c| c.payout(PayoutId(ID))).await, format!("GET {path}"));
    assert_eq!(line("a,b\n", |c| c.payout_csv(PayoutId(ID))).await, format!("GET {path}?format=csv"));
    let confirmed = line(data(payout.clone()), |c| c.confirm_payout(PayoutId(ID), &why)).await;
    assert_eq!(confirmed, format!("POST {path}/confirm"));
    let cancelled = line(data(payout), |c| c.cancel_payout(PayoutId(ID), &why)).await;
    assert_eq!(cancelled, format!("POST {path}/cancel"));
}

#[tokio::test]
async fn network_and_market() {
    let host = json!({ "id": NIL, "name": "attic", "status": "online", "region": null, "karma": 1.5,
        "karma_score": 1.5, "capabilities": null, "last_heartbeat_at": null });
    assert_eq!(line(data(json!([host])), Client::hosts).await, "GET /api/v1/hosts");
    assert_eq!(line(data(host), |c| c.host(HostId(ID))).await, format!("GET /api/v1/hosts/{NIL}"));
    let karma = data(json!({ "host_id": NIL, "karma": 2.5, "karma_score": 2.5 }));
    assert_eq!(line(karma, |c| c.host_karma(HostId(ID))).await, format!("GET /api/v1/hosts/{NIL}/karma"));
    let alert = json!({ "host_id": NIL, "name": "attic", "alert": "disk_full", "free_gb": 9.5 });
    assert_eq!(line(data(json!([alert])), Client::host_alerts).await, "GET /api/v1/hosts/alerts");
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
