//! b3: what the network adds to a stream of 64 frames paced at 20 ms, against the same stream served directly.

use std::time::Duration;

use anyhow::Result;

use crate::{
    load::Reply,
    mock,
    stats::{Spread, percentile},
    systems::Network,
};

const FRAMES: u64 = 64;
const PACE: Duration = Duration::from_millis(20);

pub(crate) async fn run(rounds: usize) -> Result<()> {
    let network = Network::start(None).await?;
    let ours = network.target("sim-chat")?;
    let direct = mock::paced(mock::start().await?)?;
    let (mut added_first, mut added_gap) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let through = ours.ask(&format!("round {round}"), FRAMES).await?;
        let floor = direct.ask("x", FRAMES).await?;
        if round > 0 {
            added_first.push(through.first_ms - floor.first_ms);
            added_gap.push(worst_gap(&through) - worst_gap(&floor));
        }
    }
    println!("overhead: {FRAMES} frames at {} ms, {} rounds", PACE.as_millis(), rounds - 1);
    println!("| figure | milliseconds |");
    println!("| --- | --- |");
    println!("| b3: added time to first token | {} |", Spread::of(added_first));
    println!("| b3: added to the 99th percentile of the gap between frames | {} |", Spread::of(added_gap));
    Ok(())
}

/// The 99th percentile of the gaps between frames.
fn worst_gap(reply: &Reply) -> f64 {
    let mut gaps: Vec<f64> = reply.frames_ms.windows(2).map(|pair| pair[1] - pair[0]).collect();
    gaps.sort_by(f64::total_cmp);
    percentile(&gaps, 99.0)
}
