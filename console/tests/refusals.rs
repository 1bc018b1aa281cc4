//! Pages of which the API refuses a part: what cannot be had again is shown, and what was entered stays.

use axum::{
    Json, Router,
    body::{Body, to_bytes},
    http::{HeaderMap, Request, StatusCode, header},
    routing::{get, post},
};
use island_console::{Settings, router, session::paths};
use serde_json::{Value, json};
use tower::ServiceExt as _;

const ID: &str = "0190f3f0-0000-7000-8000-000000000001";
const NOW: &str = "2026-11-20T12:00:00.000Z";

type Answer = (StatusCode, Json<Value>);

fn refusal(status: StatusCode, code: &str) -> Answer {
    (status, Json(json!({ "error": { "message": "not now", "code": code } })))
}

fn busy() -> Answer {
    refusal(StatusCode::SERVICE_UNAVAILABLE, "service_unavailable")
}

/// An API that knows the person of a session, an operator.
fn api() -> Router {
    let who = json!({
        "account": ID, "email": "a@example.org", "credits": 12.5, "operator": true, "key": ID,
        "scopes": ["read", "write"], "attention": { "islands": 0, "network": 0 },
    });
    Router::new().route(paths::WHO, get(move || async move { Json(who) }))
}

/// The page that answers a form.
async fn page(api: Router, path: &str, form: &'static str) -> String {
    let request = Request::post(path)
        .header(header::HOST, "island.example.org")
        .header(header::ORIGIN, "http://island.example.org")
        .header(header::COOKIE, "island-session=token")
        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
        .body(Body::from(form))
        .expect("a request");
    answer(api, request).await
}

/// The page at an address.
async fn read(api: Router, path: &str) -> String {
    let request = Request::get(path)
        .header(header::HOST, "island.example.org")
        .header(header::COOKIE, "island-session=token")
        .body(Body::empty())
        .expect("a request");
    answer(api, request).await
}

async fn answer(api: Router, request: Request<Body>) -> String {
    let console = router(api, |_, _| (), Settings::default());
    let answer = console.oneshot(request).await.expect("an answer");
    let page = to_bytes(answer.into_body(), 1 << 20).await.expect("a page");
    String::from_utf8(page.to_vec()).expect("text")
}

#[tokio::test]
async fn what_is_shown_once_is_shown_although_the_rest_of_its_page_cannot_be_read() {
    let key = json!({
        "id": ID, "name": "ci", "prefix": "ak_the", "scopes": ["read"], "created_at": NOW, "last_used_at": null,
        "expires_at": null, "spend_cap": null, "spent": 0,
    });
    let account = json!({
        "id": ID, "email": "b@example.org", "operator": false, "credits": 1, "held": 0, "created_at": NOW,
    });
    let invitation = json!({
        "id": ID, "credits": 5, "uses": 1, "used": 0, "reason": "a friend", "created_at": NOW, "expires_at": null,
    });
    for (at, form, created) in [
        ("/api-keys", "name=ci&scopes=read", json!({ "data": key, "key": "SHOWN-ONCE" })),
        ("/admin/accounts", "email=b%40example.org", json!({ "data": account, "key": "SHOWN-ONCE" })),
        ("/admin/invitations", "reason=a+friend&uses=1", json!({ "data": invitation, "code": "SHOWN-ONCE" })),
    ] {
        let created = move || async move { (StatusCode::CREATED, Json(created)) };
        let api = api()
            .route(&format!("/api/v1{at}"), get(|| async { busy() }).post(created))
            .route("/api/v1/account/quotas", get(|| async { busy() }));
        let page = page(api, &format!("/console{}", at.replace("api-keys", "keys")), form).await;
        assert!(page.contains("SHOWN-ONCE"), "{at}: {page}");
    }
}

#[tokio::test]
async fn the_key_of_a_new_account_is_shown_although_no_session_begins() {
    let account = json!({ "id": ID, "email": "a@example.org", "credits": 5, "created_at": NOW });
    let created = (StatusCode::CREATED, Json(json!({ "data": account, "key": "ak_the-first" })));
    let api = api()
        .route("/api/v1/signup", post(move || async move { created }))
        .route(paths::BEGIN, get(|| async { busy() }));
    let page = page(api, "/console/sign-in/invitation", "email=a%40example.org&code=K3YT-7QXM").await;
    assert!(page.contains("ak_the-first"), "{page}");
}

#[tokio::test]
async fn a_refused_invitation_stays_in_its_form() {
    let refused = || async { refusal(StatusCode::CONFLICT, "account_exists") };
    let api = api()
        .route("/api/v1/signup", post(refused))
        .route(paths::SIGN_IN, get(|| async { Json(json!({ "provider": false })) }));
    let page = page(api, "/console/sign-in/invitation", "email=a%40example.org&code=K3YT-7QXM").await;
    for kept in ["not now", "value=\"a@example.org\"", "value=\"K3YT-7QXM\""] {
        assert!(page.contains(kept), "{kept}: {page}");
    }
}

#[tokio::test]
async fn a_refused_job_keeps_its_priority() {
    let cargo = json!({
        "id": 7, "slug": "echo", "name": "Echo", "description": "Repeats it.", "runtime_type": "wasm",
        "onnx_task_type": null, "price_per_job": 1.25, "required_vram_mb": 0, "required_ram_mb": 64,
        "category": "utility", "is_enabled": true,
        "input_schema": { "type": "object", "properties": { "text": { "type": "string", "maxLength": 9 } } },
        "output_schema": { "type": "string" },
    });
    let refused = || async { refusal(StatusCode::PAYMENT_REQUIRED, "insufficient_credits") };
    let api = api()
        .route("/api/v1/workloads/echo", get(move || async move { Json(json!({ "data": cargo })) }))
        .route("/api/v1/jobs", post(refused));
    let page = page(api, "/console/cargos/echo", "text=ahoy&.priority=80").await;
    for kept in [
        "not now",
        "name=\"text\" aria-invalid=\"false\" value=\"ahoy\"",
        "name=\".priority\" aria-invalid=\"false\" value=\"80\"",
    ] {
        assert!(page.contains(kept), "{kept}: {page}");
    }
}

#[tokio::test]
async fn credits_of_a_form_that_is_sent_twice_are_moved_once() {
    let keyed = |headers: HeaderMap| async move {
        let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok()).unwrap_or("none");
        let error = json!({ "error": { "message": format!("key {key}"), "code": "service_unavailable" } });
        (StatusCode::SERVICE_UNAVAILABLE, Json(error))
    };
    let account = json!({
        "id": ID, "email": "b@example.org", "operator": false, "credits": 1, "held": 0, "created_at": NOW,
    });
    let statement = json!({
        "account": ID, "from": NOW, "until": NOW, "opening": 0, "closing": 1, "totals": [], "earned": [], "spent": [],
    });
    let of = format!("/api/v1/admin/accounts/{ID}");
    let none = || async { Json(json!({ "data": [] })) };
    let payouts = || async { Json(json!({ "data": [], "meta": { "total": 0, "limit": 25, "offset": 0 } })) };
    let api = api()
        .route(&of, get(move || async move { Json(json!({ "data": account })) }))
        .route(&format!("{of}/api-keys"), get(none))
        .route(&format!("{of}/quotas"), get(none))
        .route(&format!("{of}/statement"), get(move || async move { Json(json!({ "data": statement })) }))
        .route(&format!("{of}/grants"), post(keyed))
        .route(&format!("{of}/deductions"), post(keyed))
        .route("/api/v1/admin/payouts", get(payouts).post(keyed));
    let own = format!("/console/admin/accounts/{ID}");
    let forms = read(api.clone(), &own).await;
    assert_eq!(forms.matches("name=\".once\"").count(), 2, "{forms}");
    for verb in ["grants", "deductions"] {
        let page = page(api.clone(), &format!("{own}/{verb}"), "amount=1&reason=a+gift&.once=the-form").await;
        assert!(page.contains("key the-form"), "{verb}: {page}");
    }
    // A second payout would be empty, and would be shown in place of the first.
    let forms = read(api.clone(), "/console/admin/payouts").await;
    assert_eq!(forms.matches("name=\".once\"").count(), 1, "{forms}");
    let page = page(api, "/console/admin/payouts", "reason=november&.once=the-form").await;
    assert!(page.contains("key the-form"), "{page}");
}

#[tokio::test]
async fn a_cargo_that_is_served_can_be_rejected_and_not_approved_again() {
    for (state, verbs) in [
        ("submitted", [true, true]),
        ("approved", [false, true]),
        ("rejected", [false, false]),
        ("withdrawn", [false, false]),
        ("replaced", [false, false]),
    ] {
        let publication = json!({
            "id": ID, "workload_slug": "my-model", "name": "Mine", "publisher": ID, "state": state,
            "created_at": NOW, "manifest": "",
        });
        let path = format!("/admin/publications/{ID}");
        let api = api().route(
            &format!("/api/v1{path}"),
            get(move || async move { Json(json!({ "data": publication })) }),
        );
        let page = read(api, &format!("/console{path}")).await;
        assert!(page.contains("my-model"), "{page}");
        let shown = ["approve", "reject"].map(|verb| page.contains(&format!("{path}/{verb}\"")));
        assert_eq!(shown, verbs, "{state}: {page}");
    }
}
