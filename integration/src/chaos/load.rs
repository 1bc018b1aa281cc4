//! Consumers: some read their replies to the end, some cancel, some stop reading, and some hang up before they have an answer.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use island_coordinator_client::{Client, ClientError};
use island_protocol::{
    event::{JobEvent, Numbered},
    ids::JobId,
};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt as _, net::TcpStream, task::JoinSet};

use super::network::Network;
use crate::expect::Story;

/// Consumers that read their replies.
const READERS: u64 = 12;
/// What the shipped model is asked; its replies are compared with those before the first fault.
const PROMPTS: [&str; 3] = ["Tell me about the sea.", "What is a lighthouse?", "Who lives on the island?"]; // words: ok
/// How long a consumer tries to get a job accepted, or its stream resumed, before it reports that as a violation. Every fault is over by then.
const PATIENCE: Duration = Duration::from_mins(2);

/// What a consumer did with its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Habit {
    /// Read to the end.
    Reads,
    /// Cancelled the job after a few tokens, and read to the end.
    Cancels,
    /// Stopped reading after a few tokens.
    Leaves,
}

/// What a consumer saw of one job.
#[derive(Debug)]
pub struct Log {
    /// The job.
    pub job: JobId,
    /// What the consumer did.
    pub habit: Habit,
    /// The whole reply.
    pub whole: String,
    /// Numbers of the events, in the order of arrival.
    pub numbers: Vec<u64>,
    /// The joined tokens.
    pub text: String,
    /// The last event.
    pub last: Option<JobEvent>,
    /// The longest wait for an event.
    pub pause: Duration,
}

/// What all consumers saw.
#[derive(Debug, Default)]
pub struct Seen {
    /// One for each accepted job.
    pub logs: Vec<Log>,
    /// What no fault excuses.
    pub violations: Vec<String>,
    /// Replies of the model, by prompt.
    pub replies: Replies,
}

/// Greedy replies of the shipped model, by prompt.
pub type Replies = BTreeMap<String, String>;

/// The consumers, until they are stopped.
#[derive(Debug)]
pub struct Load {
    stop: Arc<AtomicBool>,
    seen: Arc<Mutex<Seen>>,
    hang_ups: Arc<AtomicU64>,
    consumers: JoinSet<()>,
}

impl Load {
    /// Reads the replies of the model while nothing disturbs it, and starts the consumers. Their requests depend on the seed.
    pub async fn start(network: &Network, seed: u64) -> Self {
        let replies = replies(&network.client()).await;
        let seen = Arc::new(Mutex::new(Seen { replies: replies.clone(), ..Seen::default() }));
        let stop = Arc::<AtomicBool>::default();
        let hang_ups = Arc::<AtomicU64>::default();
        let mut consumers = JoinSet::new();
        for number in 0..READERS {
            let random = StdRng::seed_from_u64(seed.wrapping_mul(1_000).wrapping_add(number));
            let (client, stop, seen) = (network.client(), stop.clone(), seen.clone());
            let replies = replies.clone();
            consumers.spawn(async move { read_jobs(client, random, number, &replies, &stop, &seen).await });
        }
        let random = StdRng::seed_from_u64(seed.wrapping_mul(1_000).wrapping_add(READERS));
        let (api, key, stopped, count) =
            (network.api(), network.key().to_owned(), stop.clone(), hang_ups.clone());
        consumers.spawn(async move { hang_up(api, &key, random, &stopped, &count).await });
        Self { stop, seen, hang_ups, consumers }
    }

    /// Lets the consumers finish what they read, and returns what they saw and how many requests were sent by a consumer that hung up.
    pub async fn finish(mut self) -> (Seen, u64) {
        self.stop.store(true, Ordering::Relaxed);
        while let Some(consumer) = self.consumers.join_next().await {
            consumer.expect("no consumer panics");
        }
        let seen = std::mem::take(&mut *self.seen.lock().expect("no holder panicked"));
        (seen, self.hang_ups.load(Ordering::Relaxed))
    }
}

/// The reply of the scripted engine: the prompt's words in turn, each with its number.
pub fn expected(prompt: &str, tokens: u64) -> String {
    let words: Vec<&str> = prompt.split_whitespace().collect();
    let tokens = (0..tokens).map(|number| format!("{}{number}", words[number as usize % words.len()]));
    tokens.collect::<Vec<_>>().join(" ")
}

/// The greedy reply of the shipped model to each prompt.
async fn replies(client: &Client) -> Replies {
    let mut replies = Replies::new();
    for prompt in PROMPTS {
        let job = client.submit_job("llm-chat", question(prompt), 0).await.expect("submit");
        let story = Story::default().read_to_end(&mut client.job_events(job.id, None)).await;
        assert!(story.is_done() && !story.text.is_empty(), "{:?}", story.last);
        replies.insert(prompt.to_owned(), story.text);
    }
    replies
}

/// The input of a job of the shipped model.
fn question(prompt: &str) -> Value {
    json!({ "prompt": prompt, "max_tokens": 48, "temperature": 0.0 })
}

/// A random request: the Cargo, its input, and the whole reply.
fn request(random: &mut StdRng, replies: &Replies, name: &str) -> (&'static str, Value, String) {
    if random.random_bool(0.2) {
        let prompt = PROMPTS[random.random_range(0..PROMPTS.len())];
        return ("llm-chat", question(prompt), replies[prompt].clone());
    }
    // Replies of the second continue on another Island.
    let cargo = if random.random_bool(0.5) { "sim-chat" } else { "sim-story" };
    let (tokens, delay_ms) = (random.random_range(5..120), random.random_range(1..25));
    (cargo, json!({ "prompt": name, "max_tokens": tokens, "delay_ms": delay_ms }), expected(name, tokens))
}

async fn read_jobs(
    client: Client,
    mut random: StdRng,
    number: u64,
    replies: &Replies,
    stop: &AtomicBool,
    seen: &Mutex<Seen>,
) {
    let mut count = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        count += 1;
        let (cargo, input, whole) = request(&mut random, replies, &format!("reader {number} job {count}"));
        let habit = match random.random_range(0..10) {
            0 => Habit::Cancels,
            1 => Habit::Leaves,
            _ => Habit::Reads,
        };
        let key: String = format!("chaos-{number}-{count}");
        let submit = || client.submit_job(cargo, input.clone(), 0).idempotency_key(key.clone());
        let accepted = tokio::time::timeout(PATIENCE, async {
            loop {
                match submit().await {
                    Ok(job) => return Ok(job.id),
                    Err(error) if passes(&error) => tokio::time::sleep(Duration::from_millis(200)).await,
                    Err(error) => return Err(error),
                }
            }
        });
        let job = match accepted.await {
            Ok(Ok(job)) => job,
            Ok(Err(error)) => {
                report(seen, format!("the job {key} was refused: {error:?}"));
                continue;
            }
            Err(_) => {
                report(seen, format!("the job {key} was not accepted for {} s", PATIENCE.as_secs()));
                continue;
            }
        };
        let (numbers, text) = (Vec::new(), String::new());
        let mut log = Log { job, habit, whole, numbers, text, last: None, pause: Duration::ZERO };
        if let Err(error) = read(&client, &mut log, random.random_range(1..10)).await {
            report(seen, format!("job {job} ({habit:?}): {error}"));
        }
        seen.lock().expect("no holder panicked").logs.push(log);
    }
}

fn report(seen: &Mutex<Seen>, violation: String) {
    seen.lock().expect("no holder panicked").violations.push(violation);
}

/// Whether a request may succeed when the fault is over.
fn passes(error: &ClientError) -> bool {
    error.is_transient() || error.code() == Some("idempotency_in_progress")
}

/// Reads a job's events, across as many connections as it takes.
async fn read(client: &Client, log: &mut Log, few: usize) -> Result<(), String> {
    let mut has_cancelled = false;
    let mut last_progress = tokio::time::Instant::now();
    loop {
        let mut events = client.job_events(log.job, log.numbers.last().copied());
        loop {
            if log.numbers.len() >= few && log.habit == Habit::Leaves {
                return Ok(());
            }
            if log.numbers.len() >= few && log.habit == Habit::Cancels && !has_cancelled {
                // It may have ended already, which is an answer as well.
                has_cancelled = !client.cancel_job(log.job).await.is_err_and(|error| passes(&error));
            }
            let Ok(next) = tokio::time::timeout(PATIENCE, events.next()).await else {
                return Err(format!("no event for {} s after {:?}", PATIENCE.as_secs(), log.numbers.last()));
            };
            match next {
                Some(Ok(Numbered { n, event, .. })) => {
                    log.pause = log.pause.max(last_progress.elapsed());
                    last_progress = tokio::time::Instant::now();
                    log.numbers.push(n);
                    if let JobEvent::Token { content, .. } = &event {
                        log.text.push_str(content);
                    }
                    let is_last = event.is_last();
                    log.last = Some(event);
                    if is_last {
                        return Ok(());
                    }
                }
                Some(Err(error)) if last_progress.elapsed() < PATIENCE && recovers(&error) => break,
                Some(Err(error)) => return Err(format!("the stream failed: {error:?}")),
                None => return Err("the stream ended without an end of the job".to_owned()),
            }
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Whether a stream can be opened again after this error.
fn recovers(error: &ClientError) -> bool {
    matches!(error, ClientError::StreamLost { .. }) || passes(error)
}

/// Sends requests and closes each connection 0 to 8 ms later, mostly before the answer, or up to 300 ms later, in the middle of a streamed one.
async fn hang_up(api: SocketAddr, key: &str, mut random: StdRng, stop: &AtomicBool, count: &AtomicU64) {
    while !stop.load(Ordering::Relaxed) {
        let number = count.fetch_add(1, Ordering::Relaxed);
        let (prompt, tokens) = (format!("gone {number}"), random.random_range(1..40));
        let (path, body) = if random.random_bool(0.5) {
            let input = json!({ "prompt": prompt, "max_tokens": tokens, "delay_ms": 2 });
            ("jobs", json!({ "workload": "sim-chat", "input": input }))
        } else {
            let messages = json!([{ "role": "user", "content": prompt }]);
            (
                "chat/completions",
                json!({ "model": "sim-chat", "messages": messages, "max_tokens": tokens, "stream": true }),
            )
        };
        let body = body.to_string();
        let request = format!(
            "POST /api/v1/{path} HTTP/1.1\r\nHost: {api}\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let most = if random.random_bool(0.7) { 8_000 } else { 300_000 };
        if let Ok(mut connection) = TcpStream::connect(api).await {
            // A cut connection takes nothing; then there is nothing to close early.
            let _ = connection.write_all(request.as_bytes()).await;
            tokio::time::sleep(Duration::from_micros(random.random_range(0..most))).await;
        }
        tokio::time::sleep(Duration::from_millis(random.random_range(50..250))).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_expected_text_is_that_of_the_scripted_engine() {
        // The example of `sim-chat`.
        assert_eq!(expected("one two", 3), "one0 two1 one2");
    }
}
