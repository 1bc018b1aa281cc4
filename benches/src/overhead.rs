//! b3: what the network adds to a stream of 64 frames paced at 20 ms, against the same stream served directly.
//!
//! A job is on disk before anybody hears of it, so that no reply begins sooner than one durable write: that is measured in the same
//! rounds, on the disk where the network keeps its database.

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::FileExt as _,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::Result;

use crate::{
    load::Reply,
    mock,
    stats::{Spread, median, percentile},
    systems::Network,
};

const FRAMES: u64 = 64;
const PACE: Duration = Duration::from_millis(20);
/// What a transaction writes to the log: some pages.
const COMMIT: usize = 3 * 4096;
/// Durable writes of a round.
const COMMITS: usize = 21;

pub(crate) async fn run(rounds: usize) -> Result<()> {
    let network = Network::start().await?;
    let ours = network.target("sim-chat")?;
    let direct = mock::paced(mock::start().await?)?;
    let log = log(network.folder())?;
    let (mut added_first, mut commits, mut added_gap) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        let through = ours.ask(&format!("round {round}"), FRAMES).await?;
        let floor = direct.ask("x", FRAMES).await?;
        if round > 0 {
            added_first.push(through.first_ms - floor.first_ms);
            commits.push(commit_ms(&log)?);
            added_gap.push(worst_gap(&through) - worst_gap(&floor));
        }
    }
    println!("overhead: {FRAMES} frames at {} ms, {} rounds", PACE.as_millis(), rounds - 1);
    println!("| figure | milliseconds |");
    println!("| --- | --- |");
    println!("| b3: added time to first token | {} |", Spread::of(added_first.clone()));
    println!("| floor: one durable write on this disk | {} |", Spread::of(commits.clone()));
    let beside: Vec<f64> = added_first.iter().zip(&commits).map(|(added, commit)| added - commit).collect();
    println!("| b3: added time to first token beside that write | {} |", Spread::of(beside));
    println!("| b3: added to the 99th percentile of the gap between frames | {} |", Spread::of(added_gap));
    Ok(())
}

/// A log that exists, as a database's does after its first minutes: writing to it changes no length.
fn log(folder: &Path) -> Result<File> {
    let path = folder.join("floor");
    std::fs::write(&path, vec![1; COMMIT * COMMITS])?;
    let log = OpenOptions::new().write(true).open(path)?;
    log.sync_all()?;
    Ok(log)
}

/// Milliseconds of a durable write.
fn commit_ms(log: &File) -> Result<f64> {
    let mut times = Vec::with_capacity(COMMITS);
    for at in 0..COMMITS {
        let begin = Instant::now();
        log.write_all_at(&[at as u8; COMMIT], (at * COMMIT) as u64)?;
        log.sync_data()?;
        times.push(begin.elapsed().as_secs_f64() * 1e3);
    }
    Ok(median(times))
}

/// The 99th percentile of the gaps between frames.
fn worst_gap(reply: &Reply) -> f64 {
    let mut gaps: Vec<f64> = reply.frames_ms.windows(2).map(|pair| pair[1] - pair[0]).collect();
    gaps.sort_by(f64::total_cmp);
    percentile(&gaps, 99.0)
}
