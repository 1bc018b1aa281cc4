//! What operators do through the API: accounts, credits, suspension, keys; and the log of it.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::{
    admin::{Admin, operator},
    answer,
    island::{Island, completed, token},
    network::Network,
    soon,
};

#[tokio::test]
async fn an_operator_creates_an_account_that_can_be_used_at_once() {
    let network = Network::start().await;
    let admin = Admin { network: &network, key: operator(&network).await.key };
    let wanted = json!({"email": "new@example.org", "credits": 3.5});
    let create = || admin.call(Method::POST, "/accounts").header("Idempotency-Key", "a").json(&wanted);
    let (status, first) = answer(create()).await;
    assert_eq!(status, 201, "{first}");
    let (account, key) = (&first["data"], first["key"].as_str().expect("a key"));
    assert_eq!((&account["credits"], &account["operator"]), (&json!(3.5), &json!(false)));
    let (status, again) = answer(create()).await;
    assert_eq!((status, &again["data"]["id"]), (201, &account["id"]), "the request is not repeated");
    assert!(again.get("key").is_none(), "a secret is returned once: {again}");
    let (status, taken) = admin.post("/accounts", &wanted).await;
    assert_eq!((status, &taken["error"]["param"]), (422, &json!("email")));

    let own = network.http.get(format!("{}/account", network.url)).bearer_auth(key);
    let (status, own) = answer(own).await;
    assert_eq!((status, &own["data"]["id"], &own["data"]["credits"]), (200, &account["id"], &json!(3.5)));
    let found = admin.get("/accounts?email=new@example.org").await;
    assert_eq!((&found["data"][0], &found["meta"]["total"]), (account, &json!(1)));
    let all = admin.get("/accounts?limit=2").await;
    assert_eq!((all["data"].as_array().map(Vec::len), &all["meta"]["total"]), (Some(2), &json!(4)));
    network.audit().await;
}

#[tokio::test]
async fn credits_are_granted_and_deducted_once_with_a_reason() {
    let network = Network::start().await;
    let operator = operator(&network).await;
    let admin = Admin { network: &network, key: operator.key.clone() };
    let account = format!("/accounts/{}", network.consumer.id);
    let grant = |key: &str, amount: f64| {
        let body = json!({"amount": amount, "reason": "invoice 7"});
        let path = format!("{account}/grants");
        admin.call(Method::POST, &path).header("Idempotency-Key", key).json(&body)
    };
    for _ in 0..3 {
        let (status, body) = answer(grant("one", 5.0)).await;
        assert_eq!((status, &body["data"]["credits"]), (200, &json!(15)), "{body}");
    }
    let (status, body) = answer(grant("one", 6.0)).await;
    assert_eq!((status, &body["error"]["code"]), (422, &json!("idempotency_key_reused")));
    // The same key and body, but another account.
    let other = format!("/accounts/{}/grants", network.owner.id);
    let body = json!({"amount": 5.0, "reason": "invoice 7"});
    let (status, _) = answer(admin.call(Method::POST, &other).header("Idempotency-Key", "one").json(&body)).await;
    assert_eq!(status, 422);

    let (status, body) = answer(grant("much", 999_999_990.0)).await;
    assert_eq!((status, &body["error"]["param"]), (422, &json!("amount")), "{body}");

    // What an open job holds cannot be taken.
    let job = network.submit().await;
    assert_eq!(admin.get(&format!("/accounts?email={}", "consumer@example.org")).await["data"][0]["held"], 1);
    let take = |amount: f64| json!({"amount": amount, "reason": "a mistake"});
    let path = format!("{account}/deductions");
    let (status, body) = admin.post(&path, &take(14.5)).await;
    assert_eq!((status, &body["error"]["code"], &body["error"]["available"]), (402, &json!("insufficient_credits"), &json!(14)));
    let (status, body) = admin.post(&path, &take(14.0)).await;
    assert_eq!((status, &body["data"]["credits"]), (200, &json!(0)), "{body}");
    for bad in [take(0.0), take(-1.0), json!({"amount": 1}), json!({"amount": 1, "reason": ""})] {
        let (status, body) = admin.post(&path, &bad).await;
        assert_eq!((status, &body["error"]["code"]), (422, &json!("validation_error")), "{bad}");
    }
    network.call(Method::DELETE, &format!("/jobs/{job}")).send().await.expect("answer");
    network.audit().await;

    let ledger = network.get("/account/ledger").await;
    let kinds: Vec<_> = ledger["data"].as_array().expect("entries").iter().map(|entry| entry["kind"].clone()).collect();
    assert!(kinds.contains(&json!("deduct")), "{kinds:?}");
    let log = admin.get(&format!("/audit-log?account={}", network.consumer.id)).await;
    let of = |number: usize| {
        let entry = &log["data"][number];
        (entry["action"].clone(), entry["amount"].clone(), entry["reason"].clone(), entry["actor"].clone())
    };
    let by = json!(operator.id.to_string());
    assert_eq!(of(0), (json!("deduct"), json!(14), json!("a mistake"), by.clone()));
    assert_eq!(of(1), (json!("grant"), json!(5), json!("invoice 7"), by));
    // Made by commands on the coordinator's machine.
    assert_eq!(of(2), (json!("create_key"), Value::Null, json!(""), Value::Null));
    assert_eq!(log["meta"]["total"], 4, "{log}");
}

#[tokio::test]
async fn a_suspended_account_is_refused_with_the_reason_and_its_jobs_go_on() {
    let network = Network::start().await;
    let operator = operator(&network).await;
    let admin = Admin { network: &network, key: operator.key.clone() };
    let mut island = Island::start(&network).await;
    let job = network.submit().await;
    let run = island.take().await;

    let reason = json!({"reason": "unpaid invoice 7"});
    let path = format!("/accounts/{}/suspend", network.consumer.id);
    for _ in 0..2 {
        let (status, body) = admin.post(&path, &reason).await;
        assert_eq!((status, &body["data"]["suspended"]["reason"]), (200, &json!("unpaid invoice 7")), "{body}");
    }
    for (method, path) in [(Method::GET, "/account"), (Method::POST, "/jobs"), (Method::GET, "/jobs")] {
        let (status, body) = answer(network.call(method, path)).await;
        assert_eq!((status, &body["error"]["code"]), (403, &json!("account_suspended")), "{path}");
        assert!(body["error"]["message"].as_str().is_some_and(|text| text.contains("unpaid invoice 7")), "{body}");
    }
    island.send(run.key, run.first_event, vec![token("a")]).await;
    assert!(island.end(run.key, run.first_event + 1, completed(1, 1)).await.committed);

    let (status, body) = admin.post(&format!("/accounts/{}/resume", network.consumer.id), &json!({"reason": "paid"})).await;
    assert_eq!((status, body["data"].get("suspended")), (200, None), "{body}");
    assert_eq!(network.job(&job).await["status"], "completed");
    let (status, _) = admin.post(&format!("/accounts/{}/suspend", operator.id), &reason).await;
    assert_eq!(status, 403, "an operator would lock the network");
    let log = admin.get(&format!("/audit-log?account={}", network.consumer.id)).await;
    let actions: Vec<_> = log["data"].as_array().expect("entries").iter().map(|entry| entry["action"].clone()).collect();
    assert_eq!(actions[..2], [json!("resume"), json!("suspend")], "what changed nothing is not recorded");
    network.audit().await;
}

#[tokio::test]
async fn an_operator_revokes_a_key_of_another_account() {
    let network = Network::start().await;
    let admin = Admin { network: &network, key: operator(&network).await.key };
    let keys = admin.get(&format!("/accounts/{}/api-keys", network.consumer.id)).await;
    let id = keys["data"][0]["id"].as_str().expect("an id").to_owned();
    assert!(keys.to_string().find(&network.consumer.key).is_none(), "no secrets");
    let path = format!("/api-keys/{id}/revoke");
    let (status, body) = admin.post(&path, &json!({"reason": "found in public"})).await;
    assert_eq!((status, &body["data"]["id"]), (200, &json!(id)));
    let (status, body) = answer(network.call(Method::GET, "/account")).await;
    assert_eq!((status, &body["error"]["code"]), (401, &json!("invalid_api_key")));
    let (status, _) = admin.post(&path, &json!({"reason": "again"})).await;
    assert_eq!(status, 404);
    assert_eq!(admin.get("/audit-log?limit=1").await["data"][0]["api_key"], json!(id));
}

#[tokio::test]
async fn a_suspended_island_finishes_its_jobs_and_gets_no_new_ones() {
    let network = Network::start().await;
    let admin = Admin { network: &network, key: operator(&network).await.key };
    let mut island = Island::start(&network).await;
    let first = network.submit().await;
    let run = island.take().await;
    let path = format!("/hosts/{}", island.id);
    let (status, body) = admin.post(&format!("{path}/suspend"), &json!({"reason": "wrong results"})).await;
    assert_eq!((status, &body["data"]["suspended"]["reason"]), (200, &json!("wrong results")), "{body}");
    assert_eq!(body["data"]["account"], json!(network.owner.id.to_string()));
    island.send(run.key, run.first_event, vec![token("a")]).await;
    assert!(island.end(run.key, run.first_event + 1, completed(1, 1)).await.committed);
    assert_eq!(network.job(&first).await["status"], "completed");

    let second = network.submit().await;
    island.beat(&[]).await;
    let waits = async {
        while network.job(&second).await["waiting"]["draining"] != 1 {
            tokio::task::yield_now().await;
        }
    };
    crate::support::soon("the job waits", waits).await;
    assert_eq!(network.get(&format!("/hosts/{}", island.id)).await["data"]["status"], "suspended");
    assert_eq!(admin.get(&format!("/hosts?account={}", network.owner.id)).await["meta"]["total"], 1);
    assert_eq!(admin.get(&format!("/hosts?account={}", network.consumer.id)).await["meta"]["total"], 0);

    let (status, body) = admin.post(&format!("{path}/resume"), &json!({"reason": "repaired"})).await;
    assert_eq!((status, body["data"].get("suspended")), (200, None));
    let run = island.take().await;
    assert_eq!(run.key.job_id.to_string(), second);
    let log = admin.get("/audit-log?limit=2").await;
    assert_eq!(log["data"][0]["host"], json!(island.id.to_string()));
    assert_eq!(log["data"][0]["action"], "resume_island");
}

#[tokio::test]
async fn what_a_job_was_charged_is_refunded_once() {
    let network = Network::start().await;
    let admin = Admin { network: &network, key: operator(&network).await.key };
    let mut island = Island::start(&network).await;
    let job = network.submit().await;
    let refund = || admin.call(Method::POST, &format!("/jobs/{job}/refund")).json(&json!({"reason": "wrong"}));
    let (status, body) = answer(refund()).await;
    assert_eq!((status, &body["error"]["code"]), (422, &json!("job_not_final")));
    let run = island.take().await;
    island.send(run.key, run.first_event, vec![token("a")]).await;
    assert!(island.end(run.key, run.first_event + 1, completed(1, 1)).await.committed);
    assert!((network.credits(&network.consumer).await - 9.0).abs() < 1e-9);
    for _ in 0..3 {
        let (status, body) = answer(refund()).await;
        assert_eq!((status, &body["data"]["amount"]), (200, &json!(1)), "{body}");
        assert!((network.credits(&network.consumer).await - 10.0).abs() < 1e-9);
    }
    assert!((network.credits(&network.owner).await - 1.0).abs() < 1e-9, "the owner has done the work");
    let log = admin.get(&format!("/audit-log?account={}", network.consumer.id)).await;
    assert_eq!((&log["data"][0]["action"], &log["data"][0]["job"]), (&json!("refund_job"), &json!(job)));
    assert_ne!(log["data"][1]["action"], "refund_job", "recorded once");
    network.audit().await;
}

#[tokio::test]
async fn the_audit_log_shows_what_a_newer_coordinator_wrote_by_its_name() {
    let network = Network::start().await;
    let admin = Admin { network: &network, key: operator(&network).await.key };
    let account = network.consumer.id.to_string();
    let grant = json!({"amount": 2, "reason": "a gift"});
    assert_eq!(admin.post(&format!("/accounts/{account}/grants"), &grant).await.0, 200);
    let pool = network.sql().await;
    sqlx::query(
        "INSERT INTO audit_log (id, created_at, action, account_id, reason) \
         VALUES ('newer', $1, 'move_island', $2, 'why')",
    )
    .bind(9_000_000_000_000_i64)
    .bind(&account)
    .execute(&pool)
    .await
    .expect("written");
    pool.close().await;
    let log = admin.get(&format!("/audit-log?account={account}")).await;
    let shown = |index: usize| (log["data"][index]["action"].clone(), log["data"][index]["reason"].clone());
    assert_eq!(shown(0), (json!("move_island"), json!("why")), "{log}");
    assert_eq!(shown(1), (json!("grant"), json!("a gift")), "{log}");
}

/// The entries of the audit log about cancelled jobs.
async fn cancellations(admin: &Admin<'_>) -> Vec<Value> {
    let log = admin.get("/audit-log?limit=100").await;
    let entries = log["data"].as_array().expect("entries").clone();
    entries.into_iter().filter(|entry| entry["action"] == "cancel_job").collect()
}

#[tokio::test]
async fn a_reply_that_an_operator_cancels_is_not_requested_again() {
    let network = Network::start().await;
    let admin = Admin { network: &network, key: operator(&network).await.key };
    let mut island = Island::start(&network).await;
    let chat = json!({"model": "echo", "messages": [{"role": "user", "content": "hi"}]});
    let (answered, ()) = tokio::join!(network.call(Method::POST, "/chat/completions").json(&chat).send(), async {
        let job = island.take().await.key.job_id;
        let reason = json!({"reason": "it blocks the network"});
        assert_eq!(admin.post(&format!("/jobs/{job}/cancel"), &reason).await.0, 200);
    });
    let answered = answered.expect("answer");
    assert_eq!((answered.status().as_u16(), &answered.headers()["x-should-retry"]), (500, &"false".parse().expect("a value")));
    let error = answered.text().await.expect("text");
    assert!(error.contains("cancelled by an operator of the network (cancelled_by_operator)"), "{error}");
}

#[tokio::test]
async fn an_operator_cancels_a_job_of_another_account() {
    let network = Network::start().await;
    let operator = operator(&network).await;
    let admin = Admin { network: &network, key: operator.key.clone() };
    let reason = json!({"reason": "it blocks the network"});
    let cancel = async |id: &str| admin.post(&format!("/jobs/{id}/cancel"), &reason).await;

    // One that waits, and one that an Island runs and that has delivered two of ten tokens.
    let waiting = network.submit().await;
    assert_eq!(cancel(&waiting).await, (200, json!({"data": {"id": waiting, "status": "cancelled"}})));
    assert!((network.credits(&network.consumer).await - 10.0).abs() < 1e-9, "nothing is held");
    let mut island = Island::start(&network).await;
    let running = network.submit().await;
    let run = island.take().await;
    let mut stream = network.stream(&running, 0).await;
    island.send(run.key, run.first_event, vec![token("a"), token("b")]).await;
    while stream.next().await.expect("event").data != r#"{"type":"token","content":"b"}"# {}
    for _ in 0..2 {
        assert_eq!(cancel(&running).await, (200, json!({"data": {"id": running, "status": "cancelled"}})));
    }
    assert_eq!(island.cancelled().await.key, run.key);
    let end = stream.next().await.expect("end").json();
    assert_eq!((&end["code"], stream.next().await), (&json!("cancelled_by_operator"), None));
    let job = network.job(&running).await;
    assert_eq!((&job["status"], &job["error"]["code"]), (&json!("cancelled"), &json!("cancelled_by_operator")));
    assert_eq!(job["error"]["message"], "cancelled by an operator of the network");
    // As if its consumer had cancelled it.
    assert!((network.credits(&network.owner).await - 0.5).abs() < 1e-9);
    assert!((network.credits(&network.consumer).await - 9.5).abs() < 1e-9);

    let completed_job = network.submit().await;
    let run = island.take().await;
    assert!(island.end(run.key, run.first_event, completed(1, 0)).await.committed);
    let (status, body) = cancel(&completed_job).await;
    assert_eq!((status, &body["error"]["code"]), (422, &json!("job_already_final")), "{body}");
    let by_consumer = network.submit().await;
    network.call(Method::DELETE, &format!("/jobs/{by_consumer}")).send().await.expect("answer");
    assert_eq!(cancel(&by_consumer).await.0, 200, "it is cancelled already");
    assert_eq!(network.job(&by_consumer).await["error"]["code"], "cancelled_by_user");

    let entries = cancellations(&admin).await;
    let jobs: Vec<&Value> = entries.iter().map(|entry| &entry["job"]).collect();
    assert_eq!(jobs, [&json!(running), &json!(waiting)], "each once, and nothing that was not done");
    for entry in &entries {
        let by = (&entry["actor"], &entry["account"], &entry["reason"]);
        let expected = (json!(operator.id.to_string()), json!(network.consumer.id.to_string()), &reason["reason"]);
        assert_eq!(by, (&expected.0, &expected.1, expected.2));
    }
    network.audit().await;
}

#[tokio::test]
async fn only_operators_may_do_what_operators_do() {
    let network = Network::start().await;
    let document = network.get("/openapi.json").await;
    let mut count = 0;
    for (path, operations) in document["paths"].as_object().expect("paths") {
        if !path.starts_with("/admin/") {
            continue;
        }
        let path = path.replace("{id}", &network.consumer.id.to_string()).replace("{slug}", "echo");
        for method in operations.as_object().expect("operations").keys() {
            let method: Method = method.to_uppercase().parse().expect("a method");
            let body = json!({"amount": 1, "reason": "r", "email": "a@b"});
            let response = network.call(method, &path).json(&body).send().await.expect("answer");
            assert_eq!(response.status(), StatusCode::FORBIDDEN, "{path}");
            count += 1;
        }
    }
    assert!(count > 30, "{count} operations");
    // A consumer cancels the own job as a consumer, and not as an operator.
    let job = network.submit().await;
    let path = format!("/admin/jobs/{job}/cancel");
    let (status, body) = answer(network.call(Method::POST, &path).json(&json!({"reason": "r"}))).await;
    assert_eq!((status, &body["error"]["code"]), (403, &json!("forbidden")), "{body}");
    assert_ne!(network.job(&job).await["status"], "cancelled");
    let admin = Admin { network: &network, key: operator(&network).await.key };
    for id in ["0190f3f0-0000-7000-8000-000000000000", "no-id"] {
        let (status, body) = admin.post(&format!("/jobs/{id}/cancel"), &json!({"reason": "r"})).await;
        assert_eq!((status, &body["error"]["code"]), (404, &json!("job_not_found")), "{id}");
    }
    let (status, body) = admin.post(&format!("/jobs/{job}/cancel"), &json!({"reason": ""})).await;
    assert_eq!((status, &body["error"]["code"]), (422, &json!("validation_error")), "{body}");
    let nobody = "0190f3f0-0000-7000-8000-000000000000";
    for path in [format!("/accounts/{nobody}/grants"), "/accounts/no-id/grants".to_owned()] {
        let (status, body) = admin.post(&path, &json!({"amount": 1, "reason": "r"})).await;
        assert_eq!((status, &body["error"]["code"]), (404, &json!("account_not_found")), "{path}");
    }
}

#[tokio::test]
async fn operators_see_which_jobs_wait_and_why() {
    let network = Network::start().await;
    let admin = Admin { network: &network, key: operator(&network).await.key };
    let empty = admin.get("/queue").await;
    assert_eq!((&empty["data"], &empty["meta"]["total"]), (&json!([]), &json!(0)), "{empty}");
    let submit = async |priority: u64| {
        let body = json!({"workload": "echo", "input": {"prompt": "x"}, "priority": priority});
        let (status, body) = answer(network.call(Method::POST, "/jobs").json(&body)).await;
        assert_eq!(status, 201, "{body}");
        body["data"]["id"].as_str().expect("an id").to_owned()
    };
    let (low, high) = (submit(1).await, submit(9).await);
    let ids = |queue: &Value| -> Vec<String> {
        let jobs = queue["data"].as_array().expect("jobs").iter();
        jobs.map(|job| job["id"].as_str().expect("an id").to_owned()).collect()
    };
    // The reasons follow once the placer has tried the jobs.
    let queue = soon("both have reasons", async {
        loop {
            let queue = admin.get("/queue?reason=no_island").await;
            if queue["meta"]["total"] == 2 {
                return queue;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_eq!(ids(&queue), [high.clone(), low.clone()], "in the order of placement");
    assert_eq!((&queue["reasons"], &queue["cargos"]), (&json!({"no_island": 2}), &json!({"echo": 2})));
    let first = &queue["data"][0];
    assert_eq!((&first["workload_slug"], &first["priority"]), (&json!("echo"), &json!(9)));
    assert_eq!(first["waiting_reason"], "no Island is online");
    assert_eq!(first["account"], json!(network.consumer.id.to_string()));
    let second = admin.get("/queue?limit=1&offset=1&workload=echo").await;
    assert_eq!((ids(&second), &second["meta"]["total"]), (vec![low.clone()], &json!(2)));
    assert_eq!(second["data"][0]["waiting"], json!({}), "reasons are shown in every list");
    for none in [
        "workload=story".to_owned(),
        "reason=no_slot".to_owned(),
        format!("account={}", network.owner.id),
        format!("reason=no_island&account={}", network.owner.id),
    ] {
        let queue = admin.get(&format!("/queue?{none}")).await;
        assert_eq!((&queue["data"], &queue["meta"]["total"]), (&json!([]), &json!(0)), "{none}: {queue}");
    }
    for (bad, status) in [("workload=A%20B", 400), ("account=x", 400), ("reason=boredom", 422), ("limit=0", 422)] {
        assert_eq!(answer(admin.call(Method::GET, &format!("/queue?{bad}"))).await.0, status, "{bad}");
    }
    let of_consumer = network.http.get(format!("{}/admin/queue", network.url)).bearer_auth(&network.consumer.key);
    assert_eq!(answer(of_consumer).await.0, 403);

    // An Island with slots for both is offered both at once.
    let mut island = Island::start(&network).await;
    let mut taken = [island.take().await, island.take().await].map(|job| job.key.job_id.to_string());
    taken.sort_unstable();
    assert_eq!(taken, [low, high], "ids ascend with time");
    assert_eq!(admin.get("/queue").await["meta"]["total"], 0);
    network.audit().await;
}

#[tokio::test]
async fn lists_of_islands_are_filtered_and_paged() {
    let network = Network::start_with(|config| {
        // None of them is offline before the end, however long the requests take: they send no further heartbeats.
        config.jobs.heartbeat_ms = 600_000;
        config.jobs.lease_ms = 1_800_000;
    })
    .await;
    let admin = Admin { network: &network, key: operator(&network).await.key };
    let (mut islands, mut running) = (Vec::new(), Vec::new());
    for name in ["attic", "Cellar 100%", "cellar_two"] {
        let island = Island::start(&network).await;
        island.register_as(name).await;
        islands.push(island.id.to_string());
        running.push(island);
    }
    islands.sort();
    let renamed = async {
        loop {
            let named = admin.get("/hosts?q=cellar").await;
            if named["meta"]["total"] == 2 && admin.get("/hosts?q=attic").await["meta"]["total"] == 1 {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    soon("the names arrive", renamed).await;
    let names = |list: &Value| -> Vec<String> {
        let data = list["data"].as_array().expect("Islands").iter();
        let mut names: Vec<String> = data.map(|one| one["name"].as_str().expect("a name").to_owned()).collect();
        names.sort();
        names
    };
    // A text is not a pattern, and both kinds of lists agree.
    for (filter, expected) in [
        ("q=CELLAR", vec!["Cellar 100%", "cellar_two"]),
        ("q=100%25", vec!["Cellar 100%"]),
        ("q=_two", vec!["cellar_two"]),
        ("q=r_", vec!["cellar_two"]),
        ("q=test", vec!["Cellar 100%", "attic", "cellar_two"]),
        ("q=nowhere", vec![]),
        ("q=%00", vec![]),
    ] {
        for list in [
            admin.get(&format!("/hosts?{filter}")).await,
            admin.get(&format!("/hosts?{filter}&status=online")).await,
            network.get(&format!("/hosts?{filter}")).await,
        ] {
            assert_eq!(names(&list), expected, "{filter}");
        }
    }
    let by_id = network.get(&format!("/hosts?q={}", &islands[0][..13])).await;
    assert_eq!(by_id["data"][0]["id"], json!(islands[0]), "the begin of an id");
    let page = network.get("/hosts?limit=2&offset=1").await;
    assert_eq!(page["meta"], json!({"total": 3, "limit": 2, "offset": 1}));
    let ids: Vec<&Value> = page["data"].as_array().expect("Islands").iter().map(|one| &one["id"]).collect();
    assert_eq!(ids, [&json!(islands[1]), &json!(islands[2])]);
    let all = network.get("/hosts").await;
    assert_eq!((all["data"].as_array().map(Vec::len), all.get("meta")), (Some(3), None), "as before");
    // They belong to the owner, not to the consumer.
    assert_eq!(network.get("/hosts?own=true&limit=1").await["meta"]["total"], 0);
    assert_eq!(network.get("/hosts?own=false&limit=1").await["meta"]["total"], 3);

    let reason = json!({"reason": "wrong results"});
    assert_eq!(admin.post(&format!("/hosts/{}/suspend", islands[1]), &reason).await.0, 200);
    let suspended = admin.get("/hosts?status=suspended").await;
    assert_eq!((&suspended["data"][0]["id"], &suspended["meta"]["total"]), (&json!(islands[1]), &json!(1)));
    assert_eq!(suspended["data"][0]["status"], "suspended");
    assert_eq!(admin.get("/hosts?status=online&limit=1").await["meta"]["total"], 2);
    let of_account = format!("/hosts?status=online&account={}", network.consumer.id);
    assert_eq!(admin.get(&of_account).await["meta"]["total"], 0);
    for bad in ["status=asleep", "own=maybe", "limit=0"] {
        let (status, body) = answer(network.call(Method::GET, &format!("/hosts?{bad}"))).await;
        assert_eq!((status, &body["error"]["code"]), (422, &json!("validation_error")), "{bad}: {body}");
    }
}
