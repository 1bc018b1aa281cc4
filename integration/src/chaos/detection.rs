//! How soon a fault under streaming jobs is noticed, and how soon their streams go on.

use std::{
    fmt,
    process::{Child, Command},
    sync::{Arc, Mutex},
    time::Duration,
};

use island_coordinator_client::Client;
use island_protocol::{event::JobEvent, ids::JobId};
use serde_json::json;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use super::{
    network::{Blow, Network},
    plan::Part,
};

/// Samples of each fault.
pub const SAMPLES: usize = 20;
/// Streams that a strike on a coordinator disturbs, of which it executes about half.
const STREAMS: usize = 4;
/// Islands that are struck at a time: their leases expire together, and enough others are left.
const AT_A_TIME: usize = 4;
/// Time until systemd starts an agent again (`RestartSec`), and a coordinator.
const AGENT_RESTART: Duration = Duration::from_secs(3);
const COORDINATOR_RESTART: Duration = Duration::from_secs(2);
/// A longer pause between two tokens, which follow each other every 20 ms, is caused by the fault.
const PAUSE: Duration = Duration::from_millis(300);
/// Tokens for this long after a pause mean that the stream goes on; no pause for this long after the fault means that it caused none.
const SETTLED: Duration = Duration::from_secs(2);
/// Longest wait for a stream to go on.
const PATIENCE: Duration = Duration::from_mins(2);

/// What is struck, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// Any part of the kind.
    pub part: Part,
    /// Killed or frozen.
    pub blow: Blow,
}

/// All cases.
pub const CASES: [Case; 6] = [
    Case { part: Part::Worker(0), blow: Blow::Kill },
    Case { part: Part::Worker(0), blow: Blow::Freeze },
    Case { part: Part::Agent(0), blow: Blow::Kill },
    Case { part: Part::Agent(0), blow: Blow::Freeze },
    Case { part: Part::Coordinator(0), blow: Blow::Kill },
    Case { part: Part::Coordinator(0), blow: Blow::Freeze },
];

/// Times since the fault, each sorted.
#[derive(Debug, Default)]
pub struct Figures {
    /// Until another attempt was announced, or another coordinator had taken the job over. Without a sample where neither happens.
    pub noticed: Vec<Duration>,
    /// Until the first token after the longest pause.
    pub goes_on: Vec<Duration>,
    /// Streams that did not go on.
    pub lost: Vec<String>,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = match self.part {
            Part::Worker(_) => "worker",
            Part::Agent(_) => "agent",
            _ => "coordinator",
        };
        let blow = if self.blow == Blow::Kill { "SIGKILL" } else { "SIGSTOP" };
        write!(f, "{part}, {blow}")
    }
}

impl Figures {
    /// Median, 99th percentile and maximum.
    pub fn shares(times: &[Duration]) -> Option<[Duration; 3]> {
        let at = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)];
        (!times.is_empty()).then(|| [at(50), at(99), at(100)])
    }
}

/// When what of one stream arrived.
#[derive(Debug, Default)]
struct Arrivals {
    tokens: Vec<Instant>,
    states: Vec<Instant>,
    end: Option<JobEvent>,
}

#[derive(Debug)]
struct Stream {
    job: JobId,
    arrivals: Arc<Mutex<Arrivals>>,
    /// Reads until it is dropped.
    _reader: JoinSet<()>,
}

impl Stream {
    /// Submits a job with an endless reply, and waits for the first tokens.
    async fn start(client: &Client) -> Self {
        let input = json!({ "prompt": "a b c", "max_tokens": 100_000, "delay_ms": 20 });
        let job = client.submit_job("sim-story", input, 0).await.expect("submit").id;
        let arrivals = Arc::<Mutex<Arrivals>>::default();
        let mut reader = JoinSet::new();
        reader.spawn(follow(client.clone(), job, arrivals.clone()));
        let stream = Self { job, arrivals, _reader: reader };
        let begin = Instant::now();
        while stream.with(|arrivals| arrivals.tokens.len()) < 20 {
            assert!(begin.elapsed() < PATIENCE, "a job streams");
            sleep(Duration::from_millis(50)).await;
        }
        stream
    }

    fn with<T>(&self, look: impl FnOnce(&Arrivals) -> T) -> T {
        look(&self.arrivals.lock().expect("no holder panicked"))
    }

    /// Waits until the stream has gone on after a fault at `struck`. Returns when the longest pause ended; an error if it never does.
    async fn goes_on(&self, struck: Instant, least: Duration) -> Result<Duration, String> {
        loop {
            let (gap, end) =
                self.with(|arrivals| (longest_pause(&arrivals.tokens, struck), arrivals.end.clone()));
            if let Some(end) = end {
                return Err(format!("job {} ended: {end:?}", self.job));
            }
            if let Some((length, over)) = gap {
                let since = if length >= PAUSE { over } else { struck + least };
                if since.elapsed() >= SETTLED {
                    return Ok(over - struck);
                }
            }
            if struck.elapsed() > PATIENCE {
                return Err(format!("job {} does not go on", self.job));
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    fn noticed(&self, struck: Instant) -> Option<Duration> {
        self.with(|arrivals| arrivals.states.iter().find(|at| **at > struck).map(|at| *at - struck))
    }
}

/// The longest time between two tokens of which the second came after `struck`, and when it did.
fn longest_pause(tokens: &[Instant], struck: Instant) -> Option<(Duration, Instant)> {
    let pauses = tokens.windows(2).filter(|pair| pair[1] > struck);
    pauses.map(|pair| (pair[1] - pair[0], pair[1])).max()
}

/// Reads a stream across as many connections as it takes.
async fn follow(client: Client, job: JobId, arrivals: Arc<Mutex<Arrivals>>) {
    let mut last = None;
    loop {
        let mut events = client.job_events(job, last);
        while let Some(Ok(numbered)) = events.next().await {
            last = Some(numbered.n);
            let (now, mut arrivals) = (Instant::now(), arrivals.lock().expect("no holder panicked"));
            match numbered.event {
                JobEvent::Token { .. } => arrivals.tokens.push(now),
                event if event.is_last() => {
                    arrivals.end = Some(event);
                    return;
                }
                _ => arrivals.states.push(now),
            }
        }
        sleep(Duration::from_millis(100)).await;
    }
}

/// Strikes until there are enough samples.
pub async fn measure(network: &Network, case: Case) -> Figures {
    let mut figures = Figures::default();
    let begin = Instant::now();
    while figures.goes_on.len() < SAMPLES && begin.elapsed() < Duration::from_mins(40) {
        network.settle().await;
        match case.part {
            Part::Coordinator(_) => strike_coordinator(network, case.blow, &mut figures).await,
            _ => strike_islands(network, case, &mut figures).await,
        }
    }
    figures.noticed.sort_unstable();
    figures.goes_on.sort_unstable();
    figures
}

/// Strikes the Islands that execute some jobs.
async fn strike_islands(network: &Network, case: Case, figures: &mut Figures) {
    let client = network.client();
    // An agent that is frozen is noticed when its leases expire, so several are struck at a time; the others one by one.
    let count = if case == CASES[3] { AT_A_TIME } else { 1 };
    let mut streams = Vec::new();
    for _ in 0..count {
        streams.push(Stream::start(&client).await);
    }
    let mut struck: Vec<(Part, Instant)> = Vec::new();
    let mut watched = Vec::new();
    for stream in &streams {
        let part = match (case.part, island_of(network, stream.job)) {
            (Part::Worker(_), island) => Part::Worker(island),
            (_, island) => Part::Agent(island),
        };
        if struck.iter().all(|(other, _)| *other != part) {
            struck.push((part, network.blow(part, case.blow)));
        }
        let at = struck.iter().find(|(other, _)| *other == part).expect("it was struck").1;
        watched.push((stream, at));
    }
    if let (Part::Agent(_), Blow::Kill) = (case.part, case.blow) {
        sleep(AGENT_RESTART).await;
        struck.iter().for_each(|(part, _)| network.start_again(*part));
    }
    for (stream, at) in watched {
        record(stream, at, stream.noticed(at), figures).await;
    }
    struck.iter().for_each(|(part, _)| network.mend(*part, case.blow));
    cancel(&client, &streams).await;
}

/// Strikes one coordinator; the jobs that it executes are watched.
async fn strike_coordinator(network: &Network, blow: Blow, figures: &mut Figures) {
    let client = network.client();
    let mut streams = Vec::new();
    for _ in 0..STREAMS {
        let stream = Stream::start(&client).await;
        let executes = coordinator_of(network, stream.job);
        streams.push((stream, executes));
    }
    let part = Part::Coordinator(0);
    let at = network.blow(part, blow);
    if blow == Blow::Kill {
        sleep(COORDINATOR_RESTART).await;
        network.start_again(part);
    }
    let mut open: Vec<&(Stream, String)> = streams.iter().collect();
    let mut taken = Vec::new();
    // The jobs of the other coordinator stay where they are.
    while at.elapsed() < Duration::from_secs(25) && open.len() * 2 > STREAMS {
        open.retain(|entry| {
            let is_moved = coordinator_of(network, entry.0.job) != entry.1;
            if is_moved {
                taken.push((&entry.0, at.elapsed()));
            }
            !is_moved
        });
        sleep(Duration::from_millis(20)).await;
    }
    for (stream, after) in taken {
        record(stream, at, Some(after), figures).await;
    }
    network.mend(part, blow);
    let streams: Vec<Stream> = streams.into_iter().map(|(stream, _)| stream).collect();
    cancel(&client, &streams).await;
}

/// Processes that occupy the processors. They end when this is dropped.
#[derive(Debug)]
struct Busy(Vec<Child>);

impl Busy {
    fn start(count: usize) -> Self {
        let start = || Command::new("sh").args(["-c", "while :; do :; done"]).spawn();
        Self((0..count).map(|_| start().expect("start a shell")).collect())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for process in &mut self.0 {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Streams a job on each of some Islands for `time`, while four processes occupy every processor. Returns the jobs that
/// were taken from their Island, and the Islands that were offline at the end of a second.
pub async fn under_load(network: &Network, time: Duration) -> Vec<String> {
    network.settle().await;
    let client = network.client();
    let mut streams = Vec::new();
    for _ in 0..network.size().islands {
        streams.push(Stream::start(&client).await);
    }
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let busy = Busy::start(4 * processors);
    let (begin, mut lost) = (Instant::now(), Vec::new());
    while begin.elapsed() < time {
        sleep(Duration::from_secs(1)).await;
        match client.hosts().await {
            Ok(hosts) => {
                let offline = hosts.iter().filter(|host| host.status == "offline");
                lost.extend(
                    offline.map(|host| format!("{} was offline after {:?}", host.name, begin.elapsed())),
                );
            }
            Err(error) => {
                lost.push(format!("the Islands were not listed after {:?}: {error}", begin.elapsed()));
            }
        }
    }
    drop(busy);
    for stream in &streams {
        let again =
            stream.noticed(begin).map(|after| format!("job {} began again after {after:?}", stream.job));
        lost.extend(again);
        lost.extend(stream.goes_on(Instant::now(), SETTLED).await.err());
    }
    cancel(&client, &streams).await;
    lost
}

async fn record(stream: &Stream, at: Instant, noticed: Option<Duration>, figures: &mut Figures) {
    match stream.goes_on(at, Duration::from_secs(10)).await {
        Ok(after) => {
            figures.goes_on.push(after);
            figures.noticed.extend(noticed.or_else(|| stream.noticed(at)));
        }
        Err(error) => figures.lost.push(error),
    }
}

async fn cancel(client: &Client, streams: &[Stream]) {
    for stream in streams {
        // It may have ended.
        let _ = client.cancel_job(stream.job).await;
    }
}

/// The Island that executes a job.
fn island_of(network: &Network, job: JobId) -> usize {
    let sql = format!("SELECT h.name FROM jobs j JOIN hosts h ON h.id = j.host_id WHERE j.id = '{job}'");
    let name = network.query(&sql)[0][0].clone();
    name.trim_start_matches("island-").parse().expect("the number of an Island")
}

/// The coordinator that executes a job.
fn coordinator_of(network: &Network, job: JobId) -> String {
    network
        .query(&format!("SELECT coalesce(coordinator_id, '') FROM jobs WHERE id = '{job}'"))
        .first()
        .map_or_else(String::new, |row| row[0].clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_pause_is_one_that_ends_after_the_fault() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let tokens = [at(0), at(900), at(1_000), at(1_300), at(1_320)];
        assert_eq!(longest_pause(&tokens, at(1_010)), Some((Duration::from_millis(300), at(1_300))));
        assert_eq!(longest_pause(&tokens, at(1_320)), None);
    }

    #[test]
    fn figures_have_a_median_and_a_maximum() {
        let times: Vec<Duration> = (1..=20).map(Duration::from_secs).collect();
        let [median, p99, most] = Figures::shares(&times).expect("samples");
        assert_eq!(
            (median, p99, most),
            (Duration::from_secs(11), Duration::from_secs(20), Duration::from_secs(20))
        );
        assert_eq!(Figures::shares(&[]), None);
    }
}
