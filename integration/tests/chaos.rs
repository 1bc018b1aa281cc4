//! A network is struck many times, and keeps every promise. `make chaos STRIKES=3000 SEED=7` runs it longer.

use island_integration::{chaos, has_postgres};

/// Strikes unless the environment names another number.
const STRIKES: u64 = 200;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_promise_is_broken() {
    if !has_postgres() {
        island_testing::skip("no_promise_is_broken", "PostgreSQL is not installed");
        return;
    }
    let (strikes, seed) = (setting("ISLAND_CHAOS_STRIKES", STRIKES), setting("ISLAND_CHAOS_SEED", 1));
    let report = chaos::run(seed, strikes as usize).await;
    println!(
        "{strikes} strikes in {:.0} s: {} faults inflicted, {} not possible; {} streams, {} requests hung up; {:?}; ended without a fault: {:?}",
        report.took.as_secs_f64(),
        report.faults.0,
        report.faults.1,
        report.streams,
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

fn setting(variable: &str, usual: u64) -> u64 {
    std::env::var(variable).map_or(usual, |value| value.parse().expect("a number"))
}
