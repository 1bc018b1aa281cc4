//! Latency, request rate and concurrent streams of the API, compared with a bare proxy and with a gateway for language models. Replies
//! cost nothing: an HTTP mock behind nginx and litellm, a simulated engine on a real Island behind the coordinator.

use std::time::{Duration, Instant};

use anyhow::Result;
use futures::{StreamExt, stream};

use crate::{
    load::Target,
    mock,
    report::{Better, Report},
    stats::percentile,
    systems::{Network, Proxy},
};

const ISLAND: &str = "Island";
const MOCK: &str = "HTTP mock";
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
    held: usize,
}

impl Series {
    fn new(name: &'static str, at_once: Target, paced: Target) -> Self {
        Self { name, at_once, paced, p99: Vec::new(), rate: Vec::new(), held: 0 }
    }
}

pub(crate) async fn run(rounds: usize, litellm: Option<std::path::PathBuf>) -> Result<Report> {
    let upstream = mock::start().await?;
    let network = Network::start_for_many().await?;
    let nginx = Proxy::nginx(upstream).await?;
    let mut all = vec![
        Series::new(MOCK, mock::at_once(upstream)?, mock::paced(upstream)?),
        Series::new("nginx", nginx.target("at-once")?, nginx.target("paced")?),
        Series::new(ISLAND, network.target("sim-at-once")?, network.target("sim-chat")?),
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
    for series in &mut all {
        series.held = held(&series.paced).await;
    }
    let mut report = report(&all, rounds);
    if litellm.is_none() {
        report.note("litellm was not measured: no program was given");
    }
    Ok(report)
}

fn report(all: &[Series], rounds: usize) -> Report {
    let setup = format!(
        "{ALONE} requests alone, {BUSY} in flight for {} s, {} rounds",
        BUSY_FOR.as_secs(),
        rounds - 1
    );
    let mut report = Report::new("API latency and rate", setup);
    let (ours, peers): (Vec<&Series>, Vec<&Series>) = all.iter().partition(|series| series.name == ISLAND);
    let ours = ours[0];
    // The mock is the floor of the peers, not a peer.
    let headline = |report: &mut Report, peer: &Series| {
        if peer.name != MOCK {
            report.headline();
        }
    };
    let streams = format!("streams of {} ms frames without a gap of {STALL_MS} ms", PACE.as_millis());
    for peer in peers {
        report.compare("p99 latency, alone", ("ms", Better::Lower), &ours.p99, peer.name, &peer.p99);
        headline(&mut report, peer);
        report.compare(
            format!("{BUSY} requests in flight"),
            ("requests/s", Better::Higher),
            &ours.rate,
            peer.name,
            &peer.rate,
        );
        headline(&mut report, peer);
        if peer.held > 0 {
            let (ours, theirs) = ([ours.held as f64], [peer.held as f64]);
            report.compare(streams.clone(), ("streams", Better::Higher), &ours, peer.name, &theirs);
            headline(&mut report, peer);
        }
    }
    report
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
