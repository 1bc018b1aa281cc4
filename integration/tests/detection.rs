//! Measures how soon killed and frozen parts are noticed under streaming jobs, and how soon the streams go on: `make detection`.

use std::time::Duration;

use island_integration::{
    chaos::{
        detection::{CASES, Figures, SAMPLES, measure, under_load},
        network::Network,
        plan::Size,
    },
    has_postgres,
};

/// Eight Islands, so that enough are left.
const SIZE: Size = Size { servers: 3, coordinators: 2, islands: 8 };
/// The usual lease.
const LEASE: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_go_on_after_every_fault() {
    if !has_postgres() {
        island_testing::skip("streams_go_on_after_every_fault", "PostgreSQL is not installed");
        return;
    }
    let network = Network::start(SIZE, LEASE).await;
    let mut lost = Vec::new();
    println!(
        "| fault | samples | noticed p50, p99, max | stream goes on p50, p99, max |\n| --- | --- | --- | --- |"
    );
    for case in CASES {
        let figures = measure(&network, case).await;
        println!(
            "| {case} | {} | {} | {} |",
            figures.goes_on.len(),
            line(&figures.noticed),
            line(&figures.goes_on)
        );
        if figures.goes_on.len() < SAMPLES {
            lost.push(format!("{case}: only {} samples", figures.goes_on.len()));
        }
        lost.extend(figures.lost.into_iter().map(|what| format!("{case}: {what}")));
    }
    assert!(lost.is_empty(), "{lost:#?}\n{}", network.logs());
}

/// How long the processors are busy, unless `ISLAND_LOAD_SECONDS` names another time.
const LOAD_SECONDS: u64 = 600;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn busy_processors_make_no_island_look_lost() {
    if !has_postgres() {
        island_testing::skip("busy_processors_make_no_island_look_lost", "PostgreSQL is not installed");
        return;
    }
    let seconds = std::env::var("ISLAND_LOAD_SECONDS").map(|text| text.parse().expect("a number of seconds"));
    let time = Duration::from_secs(seconds.unwrap_or(LOAD_SECONDS));
    let network = Network::start(SIZE, LEASE).await;
    let lost = under_load(&network, time).await;
    println!("{} Islands streamed for {time:?} beside four busy processes a processor", SIZE.islands);
    assert!(lost.is_empty(), "{lost:#?}\n{}", network.logs());
}

fn line(times: &[Duration]) -> String {
    let shares =
        Figures::shares(times).map(|shares| shares.map(|time| format!("{:.1} s", time.as_secs_f64())));
    shares.map_or_else(|| "-".to_owned(), |shares| shares.join(", "))
}
