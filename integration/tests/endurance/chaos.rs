//! A network is struck many times, and keeps every promise. `make chaos STRIKES=3000 SEED=7` runs it longer.

use std::time::Duration;

use island_integration::{
    chaos::{self, check::check, load::Load, network::Network},
    expect::eventually,
    has_postgres,
};

use crate::alone;

/// Strikes unless the environment names another number.
const STRIKES: u64 = 200;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_promise_is_broken() {
    if !has_postgres() {
        island_testing::skip("no_promise_is_broken", "PostgreSQL is not installed");
        return;
    }
    let _alone = alone().await;
    let (strikes, seed) = (setting("ISLAND_CHAOS_STRIKES", STRIKES), setting("ISLAND_CHAOS_SEED", 1));
    let report = chaos::run(seed, strikes as usize).await;
    println!(
        "{strikes} strikes in {:.0} s: {} faults inflicted, {} not possible; {} streams, longest wait for an event p50 {:?} p99 {:?}, {} requests hung up; {:?}; ended without a fault: {:?}",
        report.took.as_secs_f64(),
        report.faults.0,
        report.faults.1,
        report.streams,
        share(&report.pauses, 50),
        share(&report.pauses, 99),
        report.hang_ups,
        report.counts,
        report.ended,
    );
    assert!(
        report.counts.jobs.get("completed").is_some_and(|count| *count > 0),
        "jobs complete: {:?}",
        report.counts
    );
    assert!(
        report.violations.is_empty(),
        "{} promises are broken; `make chaos STRIKES={strikes} SEED={seed}` strikes likewise:\n{}\n{}",
        report.violations.len(),
        report.violations.join("\n"),
        report.logs
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_promises_are_noticed() {
    if !has_postgres() {
        island_testing::skip("broken_promises_are_noticed", "PostgreSQL is not installed");
        return;
    }
    let _alone = alone().await;
    let network = Network::start(chaos::SIZE, chaos::LEASE).await;
    let load = Load::start(&network, 1).await;
    eventually("some jobs have completed", || async {
        let completed = network.query("SELECT id FROM jobs WHERE status = 'completed'");
        (completed.len() > 20).then_some(())
    })
    .await;
    let (mut seen, _) = load.finish().await;
    seen.logs[0].text.push_str(" and more");
    network.query("UPDATE balances SET amount = amount + 1 WHERE ledger = 'platform:issue'");
    let one = "(SELECT id FROM jobs WHERE status = 'completed' LIMIT 1)";
    network.query(&format!("UPDATE jobs SET output = '\"another\"' WHERE id = {one}"));
    let (violations, _) = check(&network, seen).await;
    assert_eq!(violations.len(), 3, "{violations:#?}");
    for promise in ["the text is", "a balance is not the sum", "completed with \"another\""] {
        assert!(violations.iter().any(|violation| violation.contains(promise)), "{promise}: {violations:#?}");
    }
}

fn setting(variable: &str, usual: u64) -> u64 {
    std::env::var(variable).map_or(usual, |value| value.parse().expect("a number"))
}

/// The value below which this percentage of the sorted values is.
fn share(sorted: &[Duration], percent: usize) -> Option<Duration> {
    sorted.get(sorted.len() * percent / 100).copied()
}
