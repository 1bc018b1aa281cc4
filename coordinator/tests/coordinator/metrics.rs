//! The page of metrics, and the table of them in the guide for operators.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use island_coordinator_domain::config::Tls;
use island_protocol::{event::AttemptEvent, ids::InstanceId};
use island_testing::port::free_port;
use reqwest::{Method, StatusCode};
use serde_json::json;
use uuid::Uuid;

use crate::support::{
    admin::{Admin, operator},
    island::{Island, completed, token},
    network::Network,
    soon,
};

/// What a metric is, apart from its meaning.
#[derive(Debug, Default, PartialEq, Eq)]
struct Metric {
    kind: String,
    labels: BTreeSet<String>,
}

/// Metrics by name, as a client queries them.
type Metrics = BTreeMap<String, Metric>;

/// Metrics that have no value in this story.
const ABSENT: [&str; 1] = ["island_coordinator_certificate_expires_timestamp_seconds"];

/// The metrics of a page in the OpenMetrics format.
fn served(page: &str) -> Metrics {
    let mut found = Metrics::new();
    for line in page.lines() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|line| line.split_once(' ')) {
            let suffix = if kind == "counter" { "_total" } else { "" };
            kind.clone_into(&mut found.entry(format!("{name}{suffix}")).or_default().kind);
        }
        if line.starts_with('#') {
            continue;
        }
        let (sample, labels) = match line.split_once('{') {
            Some((sample, rest)) => (sample, rest.rsplit_once('}').expect("labels end").0),
            None => (line.split(' ').next().expect("a name"), ""),
        };
        let name = ["_bucket", "_sum", "_count", ""]
            .iter()
            .filter_map(|suffix| sample.strip_suffix(suffix))
            .find(|name| found.contains_key(*name))
            .unwrap_or_else(|| panic!("a sample without a type: {line}"));
        let names = labels.split("\",").filter_map(|label| label.split_once('=')).map(|(name, _)| name);
        let names = names.filter(|name| !name.is_empty() && *name != "le").map(str::to_owned);
        found.get_mut(name).expect("it has a type").labels.extend(names);
    }
    found
}

/// The metrics of a table in the guide.
fn documented() -> Metrics {
    let guide = std::fs::read_to_string("../docs/operators.md").expect("the guide");
    let rows = guide.lines().skip_while(|line| !line.starts_with("| metric |")).skip(2);
    let rows = rows.take_while(|line| line.starts_with('|'));
    let names = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<BTreeSet<_>>();
    let metric = |row: &str| {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let name = names(cells[1]).pop_first().expect("a name");
        (name, Metric { kind: cells[2].to_owned(), labels: names(cells[3]) })
    };
    rows.map(metric).collect()
}

/// A network whose coordinator serves metrics, and their address.
async fn measured() -> (Network, SocketAddr) {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    (Network::start_with(|config| config.http.metrics = Some(address)).await, address)
}

async fn page(address: SocketAddr) -> String {
    let page = reqwest::get(format!("http://{address}/metrics")).await.expect("an answer");
    page.text().await.expect("text")
}

/// The value of a sample.
fn value(page: &str, sample: &str) -> Option<f64> {
    let line = page.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '))?;
    line.parse().ok()
}

#[tokio::test]
async fn the_guide_lists_every_metric_that_is_served() {
    let (network, address) = measured().await;
    let mut island = Island::start(&network).await;
    network.served("echo").await;
    let id = network.submit().await;
    let run = island.take().await;
    island.renew(run.key, "run", 1, 0).await;
    let running = AttemptEvent::Status { state: "running".to_owned() };
    island.send(run.key, run.first_event, vec![running, token("a"), token("b")]).await;
    let mut stream = network.stream(&id, 0).await;
    while stream.next().await.expect("an event").name != "token" {}
    // The speed of a reply needs a time, which is counted in milliseconds.
    tokio::time::sleep(Duration::from_millis(5)).await;
    island.end(run.key, run.first_event + 3, completed(1, 2)).await;
    drop(stream);
    assert_eq!(network.job(&id).await["status"], "completed");

    // The assignment of the next one is refused, and its consumer cancels it.
    let id = network.submit().await;
    let offer = island.offer().await;
    island.refuse(&offer).await;
    let refused = async {
        while value(&page(address).await, "island_coordinator_assignments_refused_total{reason=\"no_slot\"}").is_none()
        {
            tokio::task::yield_now().await;
        }
    };
    soon("the refusal", refused).await;
    let cancel = network.call(Method::DELETE, &format!("/jobs/{id}")).send().await.expect("an answer");
    assert_eq!(cancel.status(), StatusCode::OK);
    network.submit().await;
    let unknown = network.call(Method::GET, "/nothing").send().await.expect("an answer");
    assert_eq!(unknown.status(), StatusCode::NOT_FOUND);

    let page = page(address).await;
    let mut documented = documented();
    for name in ABSENT {
        assert!(documented.remove(name).is_some(), "{name} is listed");
    }
    assert_eq!(served(&page), documented, "{page}");
    for (sample, expected) in [
        ("island_coordinator_jobs_accepted_total{cargo=\"echo\"}", 3.0),
        ("island_coordinator_jobs_ended_total{cargo=\"echo\",state=\"completed\",reason=\"\"}", 1.0),
        ("island_coordinator_jobs_ended_total{cargo=\"echo\",state=\"cancelled\",reason=\"cancelled_by_user\"}", 1.0),
        ("island_coordinator_job_wait_seconds_count{engine=\"llmcpp\"}", 1.0),
        ("island_coordinator_job_first_output_seconds_count{engine=\"llmcpp\"}", 1.0),
        ("island_coordinator_job_duration_seconds_count{engine=\"llmcpp\"}", 2.0),
        ("island_coordinator_assignments_refused_total{reason=\"no_slot\"}", 1.0),
        ("island_coordinator_leases_renewed_total", 1.0),
        ("island_coordinator_attempts_lost_total{reason=\"lease_expired\"}", 0.0),
        ("island_coordinator_moved_credits_total{kind=\"hold\"}", 3.0),
        ("island_coordinator_moved_credits_total{kind=\"settle\"}", 1.0),
        ("island_coordinator_moved_credits_total{kind=\"release\"}", 1.0),
        ("island_coordinator_requests_total{route=\"/api/v1/jobs\",method=\"POST\",status=\"201\"}", 3.0),
        ("island_coordinator_requests_total{route=\"none\",method=\"GET\",status=\"404\"}", 1.0),
        ("island_coordinator_requests_in_flight", 0.0),
        ("island_coordinator_islands{state=\"online\"}", 1.0),
        ("island_coordinator_fabric_connects_total", 1.0),
        ("island_coordinator_fabric_connected", 1.0),
        ("island_coordinator_database_up", 1.0),
        ("island_coordinator_books_sum_credits", 0.0),
    ] {
        assert_eq!(value(&page, sample), Some(expected), "{sample}\n{page}");
    }
}

#[tokio::test]
async fn open_streams_and_lost_attempts_are_counted() {
    let (network, address) = measured().await;
    let mut island = Island::start(&network).await;
    let id = network.submit().await;
    island.take().await;
    let stream = network.stream(&id, 0).await;
    assert_eq!(value(&page(address).await, "island_coordinator_streams"), Some(1.0));
    // Its agent restarts without the job.
    island.instance = InstanceId(Uuid::new_v4());
    island.register(&[]).await;
    let lost = async {
        while value(&page(address).await, "island_coordinator_attempts_lost_total{reason=\"forgotten\"}") != Some(1.0)
        {
            tokio::task::yield_now().await;
        }
    };
    soon("the loss", lost).await;
    drop(stream);
    let closed = async {
        while value(&page(address).await, "island_coordinator_streams") != Some(0.0) {
            tokio::task::yield_now().await;
        }
    };
    soon("the end of the stream", closed).await;
}

/// Waits until a sample has this value.
async fn shows(address: SocketAddr, sample: &str, expected: f64) {
    let shown = async {
        while value(&page(address).await, sample) != Some(expected) {
            tokio::task::yield_now().await;
        }
    };
    soon(sample, shown).await;
}

#[tokio::test]
async fn the_certificate_of_nats_is_watched_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut parameters = rcgen::CertificateParams::new(["nats.example.org".to_owned()]).expect("a name");
    parameters.not_after = rcgen::date_time_ymd(2050, 1, 2);
    let certificate = folder.path().join("nats.pem");
    std::fs::write(&certificate, parameters.self_signed(&key).expect("a certificate").pem()).expect("written");
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let _network = Network::start_with(|config| {
        config.http.metrics = Some(address);
        // Only the server reads the key.
        config.nats.tls = Some(Tls { certificate, key: "/none".into() });
    })
    .await;
    let sample = "island_coordinator_certificate_expires_timestamp_seconds{listener=\"nats\"}";
    shows(address, sample, 2_524_694_400.0).await;
}

#[tokio::test]
async fn maintenance_is_shown_to_those_who_watch() {
    let (network, address) = measured().await;
    let admin = Admin { network: &network, key: operator(&network).await.key };
    let reason = json!({"reason": "new disks"});
    for (action, expected) in [("start", 1.0), ("end", 0.0)] {
        assert_eq!(admin.post(&format!("/maintenance/{action}"), &reason).await.0, 200);
        shows(address, "island_coordinator_maintenance", expected).await;
    }
}

#[tokio::test]
async fn credits_that_operators_move_are_counted_once() {
    let (network, address) = measured().await;
    let admin = Admin { network: &network, key: operator(&network).await.key };
    let mut island = Island::start(&network).await;
    network.served("echo").await;

    let account = format!("/accounts/{}", network.consumer.id);
    // What is deducted are the ten credits that it was granted, so what it spends was bought.
    for (path, key, body) in [
        ("deductions", "a", json!({"amount": 10, "reason": "a test"})),
        ("grants", "b", json!({"amount": 7, "reason": "a test", "bought": true})),
    ] {
        for _ in 0..2 {
            let request = admin.call(Method::POST, &format!("{account}/{path}")).header("Idempotency-Key", key);
            assert!(request.json(&body).send().await.expect("an answer").status().is_success(), "{path}");
        }
    }
    let id = network.submit().await;
    let run = island.take().await;
    island.send(run.key, run.first_event, vec![token("a")]).await;
    island.end(run.key, run.first_event + 1, completed(1, 1)).await;
    assert_eq!(network.job(&id).await["status"], "completed");
    let grant = json!({"amount": 5, "reason": "a test"});
    assert_eq!(admin.post(&format!("{account}/grants"), &grant).await.0, 200);
    let reason = json!({"reason": "a test"});
    for _ in 0..2 {
        assert_eq!(admin.post(&format!("/jobs/{id}/refund"), &reason).await.0, 200);
    }
    let (_, made) = admin.post("/payouts", &reason).await;
    let payout = made["data"]["payout"]["id"].as_str().expect("an id");
    for _ in 0..2 {
        assert_eq!(admin.post(&format!("/payouts/{payout}/cancel"), &reason).await.0, 200);
    }
    let page = page(address).await;
    for (kind, expected) in
        [("grant", 5.0), ("purchase", 7.0), ("deduct", 10.0), ("refund", 1.0), ("payout", 1.0), ("payout_return", 1.0)]
    {
        let sample = format!("island_coordinator_moved_credits_total{{kind=\"{kind}\"}}");
        assert_eq!(value(&page, &sample), Some(expected), "{page}");
    }
}
