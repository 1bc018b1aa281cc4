//! b1, b2, b4: what the API costs beside a bare proxy and beside a gateway for language models, with replies that cost
//! nothing: an HTTP mock behind nginx and litellm, a simulated engine on a real Island behind ours.

use std::time::{Duration, Instant};

use anyhow::Result;
use futures::{StreamExt, stream};

use crate::{
    load::Target,
    mock,
    stats::{Spread, percentile},
    systems::{Network, Proxy},
};

/// Requests of a round, one after another.
const ALONE: usize = 100;
/// Requests in flight at full load, and for how long.
const BUSY: usize = 16;
const BUSY_FOR: Duration = Duration::from_secs(4);
/// Frames of a held stream, and their pace.
const FRAMES: u64 = 64;
const PACE: Duration = Duration::from_millis(20);
/// A gap so long is a stall: a reader notices it.
const STALL_MS: f64 = 100.0;
/// Streams tried at once.
const CROWDS: [usize; 7] = [8, 16, 32, 64, 128, 256, 512];

/// One system, and its figures round by round.
struct Series {
    name: &'static str,
    at_once: Target,
    paced: Target,
    p99: Vec<f64>,
    rate: Vec<f64>,
}

impl Series {
    fn new(name: &'static str, at_once: Target, paced: Target) -> Self {
        Self { name, at_once, paced, p99: Vec::new(), rate: Vec::new() }
    }
}

pub(crate) async fn run(rounds: usize, litellm: Option<std::path::PathBuf>) -> Result<()> {
    let upstream = mock::start().await?;
    let network = Network::start_for_many().await?;
    let nginx = Proxy::nginx(upstream).await?;
    let mut all = vec![
        Series::new("mock itself", mock::at_once(upstream)?, mock::paced(upstream)?),
        Series::new("nginx", nginx.target("at-once")?, nginx.target("paced")?),
        Series::new("Island", network.target("sim-at-once")?, network.target("sim-chat")?),
    ];
    let proxy = match &litellm {
        Some(program) => Some(Proxy::litellm(program, upstream).await?),
        None => None,
    };
    if let Some(proxy) = &proxy {
        all.push(Series::new("litellm", proxy.target("at-once")?, proxy.target("paced")?));
    }
    for round in 0..rounds {
        for series in &mut all {
            let (p99, rate) = (alone(&series.at_once).await?, busy(&series.at_once).await?);
            // The first round warms up.
            if round > 0 {
                series.p99.push(p99);
                series.rate.push(rate);
            }
        }
    }
    report(&all, rounds);
    println!("| streams at {} ms without a stall of {STALL_MS} ms (b4) | most |", PACE.as_millis());
    println!("| --- | --- |");
    for series in &all {
        println!("| {} | {} |", series.name, held(&series.paced).await);
    }
    if litellm.is_none() {
        println!("litellm was not measured: no program was given");
    }
    Ok(())
}

fn report(all: &[Series], rounds: usize) {
    println!("gateway: {ALONE} requests alone, {BUSY} at once for {BUSY_FOR:?}, {} rounds", rounds - 1);
    println!("| system | p99 alone, ms (b1) | added, of nginx's | requests/s at once (b2) | of nginx's |");
    println!("| --- | --- | --- | --- | --- |");
    let added = |series: &Series| -> Vec<f64> {
        series.p99.iter().zip(&all[0].p99).map(|(through, floor)| (through - floor).max(0.001)).collect()
    };
    let nginx = &all[1];
    for series in all {
        println!(
            "| {} | {} | {} | {} | {} |",
            series.name,
            Spread::of(series.p99.clone()),
            Spread::of_ratios(&added(series), &added(nginx)),
            Spread::of(series.rate.clone()),
            Spread::of_ratios(&series.rate, &nginx.rate),
        );
    }
}

/// The 99th percentile of requests that have the system to themselves, milliseconds.
async fn alone(target: &Target) -> Result<f64> {
    let mut took = Vec::with_capacity(ALONE);
    for _ in 0..ALONE {
        took.push(target.ask_whole().await?);
    }
    took.sort_by(f64::total_cmp);
    Ok(percentile(&took, 99.0))
}

/// Requests a second with `BUSY` in flight.
async fn busy(target: &Target) -> Result<f64> {
    let start = Instant::now();
    let each = stream::iter(0..BUSY).map(|_| async {
        let mut answered = 0_u64;
        while start.elapsed() < BUSY_FOR {
            target.ask_whole().await?;
            answered += 1;
        }
        Ok::<_, anyhow::Error>(answered)
    });
    let answered: Vec<Result<u64>> = each.buffer_unordered(BUSY).collect().await;
    let answered: u64 = answered.into_iter().collect::<Result<Vec<_>>>()?.into_iter().sum();
    Ok(answered as f64 / start.elapsed().as_secs_f64())
}

/// The largest crowd of streams that all ran without a stall; 0 if not even the smallest did.
async fn held(target: &Target) -> usize {
    let mut most = 0;
    for crowd in CROWDS {
        let talks: Vec<_> = (0..crowd).map(|stream| vec![format!("stream {stream}")]).collect();
        let Ok(replies) = target.ask_many(&talks, FRAMES).await else { break };
        let stalled = |gaps: &[f64]| gaps.windows(2).any(|pair| pair[1] - pair[0] > STALL_MS);
        if replies.iter().any(|reply| stalled(&reply.frames_ms)) {
            break;
        }
        most = crowd;
    }
    most
}
