//! Ends of jobs whose payments all go to one account, as those of a large owner's Islands, against payments to many.

use anyhow::Result;
use island_coordinator_domain::config::Database;
use island_coordinator_storage::{Store, measure};

use crate::report::{Better, Report};

/// Measures on this database, which must be empty.
pub(crate) async fn run(rounds: usize, url: &str, jobs: usize, at_once: usize) -> Result<Report> {
    // Writers have two fifths of the connections; each end needs one.
    let connections = u32::try_from(at_once * 5 / 2 + 5)?;
    let settings = Database { url: Some(url.parse()?), connections, ..Database::default() };
    let store = Store::open(&settings).await?;
    let (mut one, mut many) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        for (earners, series) in [(1, &mut one), (at_once, &mut many)] {
            let took = measure::ends(&store, jobs, at_once, earners).await?;
            // The first round warms up.
            if round > 0 {
                series.push(jobs as f64 / took.as_secs_f64());
            }
        }
    }
    store.close().await;
    let setup = format!("{jobs} jobs, {at_once} at a time, PostgreSQL, {} rounds", rounds.saturating_sub(1));
    let mut report = Report::new("Ends of jobs", setup);
    report.compare(
        "paid to one account",
        ("1/s", Better::Higher),
        &one,
        format!("{at_once} accounts"),
        &many,
    );
    Ok(report)
}
