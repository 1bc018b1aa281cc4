//! The list of an account's jobs with its filters.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    answer,
    island::{Island, completed, token},
    network::Network,
    problem,
};

fn ids(list: &Value) -> Vec<String> {
    let jobs = list["data"].as_array().expect("jobs").iter();
    jobs.map(|job| job["id"].as_str().expect("an id").to_owned()).collect()
}

#[tokio::test]
async fn a_consumer_filters_its_own_jobs() {
    let network = Network::start().await;
    let (status, made) = answer(network.call(Method::POST, "/api-keys").json(&json!({"name": "other"}))).await;
    assert_eq!(status, 201, "{made}");
    let (other, other_id) = (made["key"].as_str().expect("a key"), made["data"]["id"].as_str().expect("an id"));
    let keys = network.get("/api-keys").await;
    let keys = keys["data"].as_array().expect("keys");
    let own = keys.iter().filter_map(|key| key["id"].as_str()).find(|id| *id != other_id).expect("a key").to_owned();

    let mut island = Island::start(&network).await;
    let mut jobs = Vec::new();
    for n in 0..3 {
        let id = network.submit().await;
        let run = island.take().await;
        island.send(run.key, run.first_event, vec![token("a")]).await;
        island.end(run.key, run.first_event + 1, completed(1, 1)).await;
        jobs.push(id);
        if n == 0 {
            let body = json!({"workload": "count", "input": {"text": "a b"}});
            let request = network.http.post(format!("{}/jobs", network.url)).bearer_auth(other).json(&body);
            let (status, body) = answer(request).await;
            assert_eq!(status, 201, "{body}");
            jobs.push(body["data"]["id"].as_str().expect("an id").to_owned());
            let run = island.take().await;
            assert_eq!(run.key.job_id.to_string(), jobs[1]);
            assert_eq!(network.call(Method::DELETE, &format!("/jobs/{}", jobs[1])).send().await.expect("answer").status(), 200);
        }
    }
    let running = network.submit().await;
    island.take().await;
    let of = |numbers: &[usize]| numbers.iter().map(|n| jobs[*n].clone()).collect::<Vec<_>>();
    let all = network.get("/jobs").await;
    assert_eq!(all["meta"]["total"], 5);
    let created = all["data"][2]["created_at"].as_str().expect("a time").to_owned();
    assert_eq!(all["data"][2]["id"], json!(jobs[2]));
    for (filter, expected) in [
        ("status=completed".to_owned(), of(&[3, 2, 0])),
        ("status=cancelled".to_owned(), of(&[1])),
        ("status=failed".to_owned(), vec![]),
        ("status=queued".to_owned(), vec![running.clone()]),
        ("workload=count".to_owned(), of(&[1])),
        ("workload=never-was".to_owned(), vec![]),
        (format!("key={other_id}"), of(&[1])),
        (format!("key={own}"), [vec![running.clone()], of(&[3, 2, 0])].concat()),
        (format!("key={own}&status=cancelled"), vec![]),
        (format!("from={created}"), [vec![running.clone()], of(&[3, 2])].concat()),
        (format!("until={created}"), of(&[1, 0])),
        (format!("from={created}&until={created}"), vec![]),
        ("from=2026-12-01T00:00:00Z&until=2025-12-01T00:00:00Z".to_owned(), vec![]),
        (format!("status=completed&after={}", jobs[3]), of(&[2, 0])),
        (format!("workload=echo&after={running}"), of(&[3, 2, 0])),
    ] {
        let list = network.get(&format!("/jobs?{filter}")).await;
        assert_eq!(ids(&list), expected, "{filter}: {list}");
        // The total is that of all pages.
        let after = filter.contains("after=");
        assert!(after || list["meta"]["total"] == expected.len(), "{filter}: {list}");
    }
    let page = network.get("/jobs?status=completed&limit=1&offset=1").await;
    assert_eq!((ids(&page), &page["meta"]), (of(&[2]), &json!({"total": 3, "limit": 1, "offset": 1})));
    let of_owner = network.http.get(format!("{}/jobs?key={own}", network.url)).bearer_auth(&network.owner.key);
    assert_eq!(answer(of_owner).await.1["meta"]["total"], 0, "the key of another account");
    network.audit().await;
}

#[tokio::test]
async fn a_filter_that_is_not_understood_is_refused_with_its_name() {
    let network = Network::start().await;
    for (bad, name, what) in [
        ("status=done", "status", "must be one of submitted, "),
        ("status=", "status", "must be one of submitted, "),
        ("workload=A%20B", "workload", "must be the slug of a Cargo"),
        ("key=ci", "key", "must be the id of a key"),
        ("from=yesterday", "from", "must be a time such as"),
        ("until=2026-11-01", "until", "must be a time such as"),
        ("after=x", "after", "must be the id of a job"),
        ("status=failed&status=failed", "status", "appears twice"),
    ] {
        let (status, error) = problem(network.call(Method::GET, &format!("/jobs?{bad}"))).await;
        let message = error["message"].as_str().expect("a message");
        assert_eq!((status, &error["code"], &error["param"]), (400, &json!("invalid_request"), &json!(name)), "{bad}");
        assert!(message.contains(what), "{bad}: {message}");
    }
}
