//! What an account reads about its own usage.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    answer,
    island::{Island, completed, token},
    network::Network,
};

#[tokio::test]
async fn an_account_reads_what_it_used_by_day_cargo_and_key() {
    let network = Network::start().await;
    let mut island = Island::start(&network).await;
    assert_eq!(network.get("/account/usage").await["data"]["rows"], json!([]));
    let before = network.credits(&network.consumer).await;
    for _ in 0..2 {
        network.submit().await;
        let run = island.take().await;
        island.send(run.key, run.first_event, vec![token("a")]).await;
        assert!(island.end(run.key, run.first_event + 1, completed(3, 1)).await.committed);
    }
    let spent = before - network.credits(&network.consumer).await;
    assert!(spent > 0.0);

    let usage = network.get("/account/usage").await;
    let rows = usage["data"]["rows"].as_array().expect("rows");
    // Both ended on one day, unless midnight passed between them.
    let sum = |field: &str| rows.iter().map(|row| row[field].as_f64().expect("a number")).sum::<f64>();
    assert_eq!((sum("jobs"), sum("prompt_tokens"), sum("completion_tokens")), (2.0, 6.0, 2.0), "{usage}");
    assert!((sum("amount") - spent).abs() < 1e-9, "{usage} {spent}");
    for row in rows {
        let (day, from, until) = (&row["day"], &usage["data"]["from"], &usage["data"]["until"]);
        let text = |time: &Value| time.as_str().expect("a time").to_owned();
        assert!(text(from) <= text(day) && text(day) < text(until), "{usage}");
        assert!(text(day).ends_with("T00:00:00.000Z"), "{usage}");
        assert_eq!(row["workload_slug"], "echo");
    }
    let key = rows[0]["key_id"].as_str().expect("the key").to_owned();
    let of_key = network.get(&format!("/account/usage?key={key}&workload=echo")).await;
    assert_eq!(of_key["data"]["rows"], usage["data"]["rows"]);
    for none in ["workload=story", "key=00000000-0000-0000-0000-000000000000"] {
        assert_eq!(network.get(&format!("/account/usage?{none}")).await["data"]["rows"], json!([]), "{none}");
    }

    let csv = network.call(Method::GET, "/account/usage?format=csv").send().await.expect("answer");
    assert_eq!(csv.headers()["content-type"], "text/csv; charset=utf-8");
    let csv = csv.text().await.expect("text");
    let mut lines = csv.lines();
    let head = "day,cargo,key,key_name,jobs,prompt_tokens,completion_tokens,credits";
    assert_eq!(lines.next(), Some(head));
    assert_eq!(lines.filter(|line| line.contains(&format!(",echo,{key},"))).count(), rows.len(), "{csv}");

    // Nobody else's.
    let owner = network.http.get(format!("{}/account/usage", network.url)).bearer_auth(&network.owner.key);
    assert_eq!(answer(owner).await.1["data"]["rows"], json!([]));
}

#[tokio::test]
async fn spans_and_filters_that_cannot_be_answered_are_refused() {
    let network = Network::start().await;
    for (query, status, param) in [
        ("from=yesterday", 400, "from"),
        ("from=2026-01-01T00:00:00Z&until=2026-01-01T00:00:00Z", 422, "from"),
        ("from=2020-01-01T00:00:00Z", 422, "from"),
        ("from=9999-01-01T00:00:00Z", 422, "from"),
        ("workload=A%20B", 400, "workload"),
        ("key=mine", 400, "key"),
        ("format=xml", 422, "format"),
    ] {
        let (found, body) = answer(network.call(Method::GET, &format!("/account/usage?{query}"))).await;
        assert_eq!((found, &body["error"]["param"]), (status, &json!(param)), "{query}: {body}");
    }
}
