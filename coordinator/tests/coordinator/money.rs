//! Statements, payouts, and accounts that are closed.

use island_protocol_api::claim::ClaimVerb;
use island_protocol::job::{Failure, FailureCode, Outcome};
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    admin::{Admin, operator},
    answer,
    island::{Island, completed, signed, token},
    network::{Account, Network},
};

/// Runs one job of the consumer on an Island of the owner.
async fn run(network: &Network, island: &mut Island, device: Option<&str>) -> String {
    let job = network.submit().await;
    let run = island.take().await;
    island.send(run.key, run.first_event, vec![token("a")]).await;
    let mut outcome = completed(1, 1);
    if let Some(device) = device {
        outcome = outcome.on(device);
    }
    assert!(island.end(run.key, run.first_event + 1, outcome).await.committed);
    job
}

async fn statement(network: &Network, account: &Account, query: &str) -> String {
    let request = network.http.get(format!("{}/account/statement{query}", network.url)).bearer_auth(&account.key);
    let response = request.send().await.expect("answer");
    assert_eq!(response.status(), 200);
    response.text().await.expect("text")
}

#[tokio::test]
async fn statements_sum_what_was_spent_and_what_each_device_earned() {
    let network = Network::start().await;
    let mut island = Island::start(&network).await;
    let first = run(&network, &mut island, Some("vulkan: \"GPU\", 8 GB")).await;
    run(&network, &mut island, Some("vulkan: \"GPU\", 8 GB")).await;
    run(&network, &mut island, None).await;
    // The hold of an open job does not count as spent.
    network.submit().await;

    let of = async |account: &Account| {
        let text = statement(&network, account, "").await;
        serde_json::from_str::<Value>(&text).expect("json")["data"].clone()
    };
    let consumer = of(&network.consumer).await;
    assert_eq!((&consumer["opening"], &consumer["closing"]), (&json!(0), &json!(7)), "{consumer}");
    let totals = json!([
        {"kind": "grant", "amount": 10, "entries": 1},
        {"kind": "spent", "amount": -3, "entries": 3},
    ]);
    assert_eq!(consumer["totals"], totals);
    assert_eq!(consumer["spent"], json!([{"workload_slug": "echo", "jobs": 3, "amount": 3}]));
    let owner = of(&network.owner).await;
    assert_eq!((&owner["closing"], &owner["totals"][0]["kind"]), (&json!(3), &json!("earned")), "{owner}");
    let id = json!(island.id.to_string());
    let name = json!("scripted");
    let earned = json!([
        {"host_id": id, "name": name, "device": "vulkan: \"GPU\", 8 GB", "jobs": 2, "amount": 2},
        {"host_id": id, "name": name, "jobs": 1, "amount": 1},
    ]);
    assert_eq!(owner["earned"], earned);

    let csv = statement(&network, &network.owner, "?format=csv").await;
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!((lines.len(), lines[0]), (4, "time,kind,credits,job,cargo,island,device"), "{csv}");
    let expected = format!(",earned,1,{first},echo,{},\"vulkan: \"\"GPU\"\", 8 GB\"", island.id);
    assert!(lines[1].ends_with(&expected), "{csv}");
    let csv = statement(&network, &network.consumer, "?format=csv").await;
    assert_eq!(csv.lines().filter(|line| line.contains(",spent,-1,")).count(), 3, "{csv}");

    // Spans join without a gap: what one closes with, the next opens with.
    let until = owner["until"].as_str().expect("a time");
    let next: Value = serde_json::from_str(&statement(&network, &network.owner, &format!("?from={until}")).await).expect("json");
    assert_eq!((&next["data"]["opening"], &next["data"]["closing"]), (&json!(3), &json!(3)));
    for bad in ["?from=2100-01-01T00:00:00Z", "?from=yesterday", "?format=pdf"] {
        let request = network.call(Method::GET, &format!("/account/statement{bad}"));
        assert!([400, 422].contains(&answer(request).await.0), "{bad}");
    }
    network.audit().await;
}

/// Replaces the consumer's credits, which were granted, by credits that it has paid for.
async fn pay_for_credits(network: &Network, admin: &Admin<'_>) {
    let account = format!("/accounts/{}", network.consumer.id);
    for (verb, body) in [
        ("deductions", json!({"amount": 10, "reason": "granted"})),
        ("grants", json!({"amount": 10, "reason": "invoice 7", "bought": true})),
    ] {
        let (status, body) = admin.post(&format!("{account}/{verb}"), &body).await;
        assert_eq!(status, 200, "{body}");
    }
}

async fn paid_out(admin: &Admin<'_>) -> Value {
    let (status, made) = admin.post("/payouts", &json!({"reason": "November"})).await;
    assert_eq!(status, 201, "{made}");
    made["data"]["payout"]["amount"].clone()
}

#[tokio::test]
async fn granted_credits_are_earned_and_not_paid_out() {
    let network = Network::start().await;
    let admin = Admin { network: &network, key: operator(&network).await.key };
    let mut island = Island::start(&network).await;
    run(&network, &mut island, None).await;
    assert!((network.credits(&network.owner).await - 1.0).abs() < 1e-9, "they may be spent");
    assert_eq!(paid_out(&admin).await, 0);
    // Nine granted credits are spent before the first one that was paid for.
    let grant = json!({"amount": 1, "reason": "invoice 7", "bought": true});
    let path = format!("/accounts/{}/grants", network.consumer.id);
    assert_eq!(admin.post(&path, &grant).await.0, 200);
    for due in [0, 0, 0, 0, 0, 0, 0, 0, 0, 1] {
        run(&network, &mut island, None).await;
        assert_eq!(paid_out(&admin).await, due);
    }
    network.audit().await;
}

#[tokio::test]
async fn jobs_on_own_islands_cost_and_earn_nothing() {
    let network = Network::start().await;
    let admin = Admin { network: &network, key: operator(&network).await.key };
    let mut island = Island::start(&network).await;
    let grant = json!({"amount": 5, "reason": "invoice 7", "bought": true});
    let path = format!("/accounts/{}/grants", network.owner.id);
    assert_eq!(admin.post(&path, &grant).await.0, 200);
    for _ in 0..3 {
        let body = json!({"workload": "echo", "input": {"prompt": "hello"}});
        let request =
            network.http.post(format!("{}/jobs", network.url)).bearer_auth(&network.owner.key).json(&body);
        assert_eq!(answer(request).await.0, 201);
        let run = island.take().await;
        island.send(run.key, run.first_event, vec![token("a")]).await;
        assert!(island.end(run.key, run.first_event + 1, completed(1, 1)).await.committed);
    }
    assert!((network.credits(&network.owner).await - 5.0).abs() < 1e-9);
    assert_eq!(paid_out(&admin).await, 0);
    network.audit().await;
}

#[tokio::test]
async fn earnings_are_exported_once_and_confirmed_or_returned() {
    let network = Network::start().await;
    let admin = Admin { network: &network, key: operator(&network).await.key };
    pay_for_credits(&network, &admin).await;
    let mut island = Island::start(&network).await;
    for _ in 0..3 {
        run(&network, &mut island, None).await;
    }
    let export = |key: &str, minimum: f64| {
        let body = json!({"minimum": minimum, "reason": "November"});
        admin.call(Method::POST, "/payouts").header("Idempotency-Key", key).json(&body)
    };
    let (status, none) = answer(export("none", 3.5)).await;
    assert_eq!((status, &none["data"]["payout"]["accounts"]), (201, &json!(0)), "{none}");
    for _ in 0..2 {
        let (status, made) = answer(export("one", 1.0)).await;
        assert_eq!((status, &made["data"]["payout"]["amount"]), (201, &json!(3)), "{made}");
        assert_eq!(made["data"]["payments"][0]["email"], "owner@example.org");
    }
    assert!(network.credits(&network.owner).await.abs() < 1e-9);
    network.audit().await;
    let (_, again) = answer(export("two", 0.0)).await;
    assert_eq!(again["data"]["payout"]["accounts"], 0, "nothing is paid twice: {again}");

    let payouts = admin.get("/payouts").await;
    assert_eq!(payouts["meta"]["total"], 3);
    let made = &payouts["data"][1];
    assert_eq!((&made["state"], &made["amount"]), (&json!("exported"), &json!(3)));
    let path = format!("/payouts/{}", made["id"].as_str().expect("an id"));
    let csv = admin.call(Method::GET, &format!("{path}?format=csv")).send().await.expect("answer");
    assert_eq!(csv.headers()["content-type"], "text/csv; charset=utf-8");
    let csv = csv.text().await.expect("text");
    assert!(csv.ends_with(&format!(",{},owner@example.org,3\n", network.owner.id)), "{csv}");

    let reason = json!({"reason": "the bank refused"});
    for _ in 0..2 {
        let (status, body) = admin.post(&format!("{path}/cancel"), &reason).await;
        assert_eq!((status, &body["data"]["state"]), (200, &json!("cancelled")), "{body}");
    }
    assert!((network.credits(&network.owner).await - 3.0).abs() < 1e-9);
    network.audit().await;
    let (status, body) = admin.post(&format!("{path}/confirm"), &reason).await;
    assert_eq!((status, &body["error"]["code"]), (422, &json!("payout_already_final")));

    // What was returned, and what was earned since, is in the next one.
    run(&network, &mut island, None).await;
    let (_, made) = answer(export("three", 1.0)).await;
    assert_eq!(made["data"]["payout"]["amount"], 4);
    let path = format!("/payouts/{}/confirm", made["data"]["payout"]["id"].as_str().expect("an id"));
    for _ in 0..2 {
        let (status, body) = admin.post(&path, &json!({"reason": "paid"})).await;
        assert_eq!((status, &body["data"]["state"]), (200, &json!("confirmed")), "{body}");
    }
    network.audit().await;
    let text = statement(&network, &network.owner, "").await;
    let sums: Value = serde_json::from_str(&text).expect("json");
    let totals = json!([
        {"kind": "payout", "amount": -7, "entries": 2},
        {"kind": "payout_return", "amount": 3, "entries": 1},
        {"kind": "earned", "amount": 4, "entries": 4},
    ]);
    assert_eq!((&sums["data"]["totals"], &sums["data"]["closing"]), (&totals, &json!(0)));
    let log = admin.get("/audit-log?limit=5").await;
    let actions: Vec<_> = log["data"].as_array().expect("entries").iter().map(|entry| entry["action"].clone()).collect();
    assert_eq!(actions[..4], [json!("confirm_payout"), json!("create_payout"), json!("cancel_payout"), json!("create_payout")]);
}

#[tokio::test]
async fn what_an_owner_spent_of_its_earnings_is_not_paid_out() {
    let network = Network::start().await;
    let admin = Admin { network: &network, key: operator(&network).await.key };
    pay_for_credits(&network, &admin).await;
    let mut island = Island::start(&network).await;
    for _ in 0..2 {
        run(&network, &mut island, None).await;
    }
    let body = json!({"workload": "echo", "input": {"prompt": "hello"}});
    let spend = network.http.post(format!("{}/jobs", network.url)).bearer_auth(&network.owner.key).json(&body);
    assert_eq!(answer(spend).await.0, 201);
    // Its own Island runs it, but what is held may be spent.
    let (_, made) = admin.post("/payouts", &json!({"reason": "November"})).await;
    assert_eq!(made["data"]["payout"]["amount"], 1, "{made}");
    network.audit().await;
}

#[tokio::test]
async fn an_account_is_closed_for_good_once_nothing_depends_on_it() {
    let network = Network::start().await;
    let admin = Admin { network: &network, key: operator(&network).await.key };
    let path = format!("/accounts/{}", network.consumer.id);
    let close = async || admin.post(&format!("{path}/close"), &json!({"reason": "requested"})).await;
    let job = network.submit().await;
    let (status, body) = close().await;
    assert_eq!((status, &body["error"]["code"]), (422, &json!("account_in_use")), "{body}");
    network.call(Method::DELETE, &format!("/jobs/{job}")).send().await.expect("answer");
    assert_eq!(close().await.0, 422, "it has credits");
    let body = json!({"amount": 10, "reason": "returned"});
    let (status, body) = admin.post(&format!("{path}/deductions"), &body).await;
    assert_eq!(status, 200, "{body}");
    for _ in 0..2 {
        let (status, body) = close().await;
        assert_eq!(status, 200);
        assert!(body["data"]["closed_at"].is_string(), "{body}");
        assert!(!body["data"]["email"].as_str().expect("text").contains('@'), "{body}");
    }
    assert_eq!(answer(network.call(Method::GET, "/account")).await.0, 401, "its keys are revoked");
    let (_, body) = admin.post(&format!("{path}/resume"), &json!({"reason": "r"})).await;
    assert!(body["data"]["suspended"].is_object(), "it stays closed: {body}");
    let (status, _) = admin.post("/accounts", &json!({"email": "consumer@example.org"})).await;
    assert_eq!(status, 201, "its address may be used again");
    network.audit().await;
}

#[tokio::test]
async fn a_closed_account_gets_no_credits() {
    let network = Network::start().await;
    let admin = Admin { network: &network, key: operator(&network).await.key };
    let mut island = Island::start(&network).await;
    let job = run(&network, &mut island, None).await;
    let path = format!("/accounts/{}", network.consumer.id);
    for (verb, body) in [
        ("deductions", json!({"amount": 9, "reason": "returned"})),
        ("close", json!({"reason": "requested"})),
    ] {
        let (status, body) = admin.post(&format!("{path}/{verb}"), &body).await;
        assert_eq!(status, 200, "{verb}: {body}");
    }
    for (path, body) in [
        (format!("{path}/grants"), json!({"amount": 1, "reason": "a gift"})),
        (format!("/jobs/{job}/refund"), json!({"reason": "wrong"})),
    ] {
        let (status, body) = admin.post(&path, &body).await;
        assert_eq!((status, &body["error"]["code"]), (403, &json!("forbidden")), "{path}: {body}");
    }
    assert_eq!(admin.get(&path).await["data"]["credits"], 0, "nobody could spend them");
    network.audit().await;
}

#[tokio::test]
async fn an_account_is_not_closed_while_a_payment_to_it_may_be_returned() {
    let network = Network::start().await;
    let admin = Admin { network: &network, key: operator(&network).await.key };
    pay_for_credits(&network, &admin).await;
    let mut island = Island::start(&network).await;
    run(&network, &mut island, None).await;
    let left = signed(island.id, &island.key, ClaimVerb::Leave);
    let left = network.http.post(format!("{}/island/leave", network.url)).json(&left).send().await;
    assert_eq!(left.expect("answer").status(), 200);
    let (_, made) = admin.post("/payouts", &json!({"reason": "November"})).await;
    assert_eq!(made["data"]["payout"]["amount"], 1, "{made}");

    let path = format!("/accounts/{}/close", network.owner.id);
    let close = async || admin.post(&path, &json!({"reason": "requested"})).await;
    let (status, body) = close().await;
    assert_eq!((status, &body["error"]["code"]), (422, &json!("account_in_use")), "{body}");
    let payout = format!("/payouts/{}", made["data"]["payout"]["id"].as_str().expect("an id"));
    let payments = admin.get(&payout).await["data"]["payments"].clone();
    assert_eq!(payments[0]["email"], "owner@example.org", "it is paid by its address");
    let (status, body) = admin.post(&format!("{payout}/confirm"), &json!({"reason": "paid"})).await;
    assert_eq!(status, 200, "{body}");
    let (status, body) = close().await;
    assert_eq!(status, 200, "{body}");
    network.audit().await;
}

/// Another coordinator, which has not read yet that the Island left, would pay its owner when the job ends.
#[tokio::test]
async fn an_account_is_not_closed_while_a_job_is_open_that_its_former_island_worked_on() {
    for is_handed_back in [false, true] {
        let network = Network::start().await;
        let admin = Admin { network: &network, key: operator(&network).await.key };
        let mut island = Island::start(&network).await;
        let job = network.submit().await;
        let run = island.take().await;
        island.send(run.key, run.first_event, vec![token("a")]).await;
        if is_handed_back {
            // It waits for another Island, which would continue the text.
            island.slots = 0;
            island.beat(&[]).await;
            let failure = Failure::of_host(FailureCode::RuntimeCrashed, "aborted");
            assert!(island.end(run.key, run.first_event + 1, Outcome::failed(failure)).await.committed);
        }
        let left = signed(island.id, &island.key, ClaimVerb::Leave);
        let left = network.http.post(format!("{}/island/leave", network.url)).json(&left).send().await;
        assert_eq!(left.expect("answer").status(), 200);

        let path = format!("/accounts/{}/close", network.owner.id);
        let close = async || admin.post(&path, &json!({"reason": "requested"})).await;
        let (status, body) = close().await;
        assert_eq!(
            (status, &body["error"]["code"]),
            (422, &json!("account_in_use")),
            "{is_handed_back}: {body}"
        );
        network.call(Method::DELETE, &format!("/jobs/{job}")).send().await.expect("answer");
        let (status, body) = close().await;
        assert_eq!(status, 200, "{is_handed_back}: {body}");
        network.audit().await;
    }
}
