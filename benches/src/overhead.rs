//! What the network adds to a stream of 64 frames paced at 20 ms, compared with the same stream served directly.
//!
//! A job is committed before its reply begins, so the floor is one durable write. It is measured in the same rounds, on the disk of the
//! network's database.

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
    report::{Better, Report},
    stats::{median, percentile},
    systems::Network,
};

const FRAMES: u64 = 64;
const PACE: Duration = Duration::from_millis(20);
/// What a transaction writes to the log: some pages.
const COMMIT: usize = 3 * 4096;
/// Durable writes of a round.
const COMMITS: usize = 21;

pub(crate) async fn run(rounds: usize) -> Result<Report> {
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
    let setup = format!("{FRAMES} frames at {} ms, {} rounds", PACE.as_millis(), rounds - 1);
    let mut report = Report::new("Overhead of a stream", setup);
    let unit = ("ms", Better::Lower);
    let besides: Vec<f64> = added_first.iter().zip(&commits).map(|(added, commit)| added - commit).collect();
    report.figure("added time to first token", unit, &added_first);
    report.figure("floor: one durable write on this disk", unit, &commits);
    report.figure("added time to first token without that write", unit, &besides);
    report.figure("added to the p99 gap between frames", unit, &added_gap);
    Ok(report)
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
