//! Logs of jobs that other coordinators execute, read from the fabric's stream. However many clients read such a job
//! here, it costs one consumer; one statement a second asks which of the silent jobs have ended. Who executes a job learns
//! by a request that it is read elsewhere.

use std::{collections::HashMap, sync::Arc, time::Duration};

use async_nats::jetstream::consumer::pull::{Ordered, OrderedConfig};
use futures::StreamExt as _;
use island_daemon::chain::Chain;
use island_protocol::{
    FABRIC_VERSION,
    fabric::JobEvents,
    ids::JobId,
    subjects::{JOB_EVENTS_STREAM, job_events},
};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::{
    Execution,
    log::{Log, Reader},
};
use island_coordinator_fabric::link::Link;
use island_coordinator_storage::jobs;

/// Time between two checks, and the silence after which a job is checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Time before a stream that could not be read is tried again.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);
/// Silence after which the consumer is replaced: a server that was restarted with an empty store counts from 1 again,
/// below the number that a consumer continues with. Doubles while the job is silent.
const FIRST_PATIENCE: Duration = Duration::from_secs(10);
const MAX_PATIENCE: Duration = Duration::from_secs(80);

/// Maximum time in which the coordinators that read a job report this.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// Body of `job.<id>.readers` and of the reply: there is a reader.
#[derive(Debug, Serialize, Deserialize)]
struct Readers {
    v: u32,
}

/// Subject of a request among coordinators: those that relay the job to a reader reply.
fn readers_subject(job: JobId) -> String {
    format!("job.{job}.readers")
}

/// The relays of all jobs that are read here and executed elsewhere.
#[derive(Debug, Default)]
pub(super) struct Relays(Mutex<HashMap<JobId, Arc<Relay>>>);

/// The relay of one job. Its task alone appends to the log.
#[derive(Debug)]
struct Relay {
    log: Arc<Log>,
    last_message: Mutex<Instant>,
    /// Triggered when the job is no longer executed by another coordinator.
    moved: CancellationToken,
}

impl Relays {
    /// Number of relayed jobs.
    pub(super) fn len(&self) -> usize {
        self.0.lock().len()
    }

    /// Waits until a relay has no readers, and removes it. A reader is added under the same lock.
    async fn unread(&self, job: JobId, relay: &Relay) {
        loop {
            relay.log.unread().await;
            let mut relays = self.0.lock();
            if relay.log.readers() == 0 {
                relays.remove(&job);
                return;
            }
        }
    }
}

/// Reads a job that another coordinator executes, from the event after `after`. Events may be missing between two that
/// are read. The reader ends when the job has moved or ended.
pub(super) fn read(execution: &Arc<Execution>, job: JobId, after: u64) -> Reader {
    let mut relays = execution.relays.0.lock();
    let relay = relays.entry(job).or_insert_with(|| {
        let relay = Arc::new(Relay {
            log: Arc::new(Log::new(Vec::new())),
            last_message: Mutex::new(Instant::now()),
            moved: CancellationToken::new(),
        });
        execution.spawn_task(run(execution.clone(), job, relay.clone()));
        relay
    });
    relay.log.read(after)
}

async fn run(execution: Arc<Execution>, job: JobId, relay: Arc<Relay>) {
    tokio::select! {
        biased;
        () = execution.hard.cancelled() => {}
        () = relay.moved.cancelled() => {}
        () = execution.relays.unread(job, &relay) => return,
        () = follow(&execution.context.link, job, &relay) => {}
        () = answer(&execution.context.link, job) => {}
    }
    let mut relays = execution.relays.0.lock();
    relays.remove(&job);
    relay.log.close();
}

/// Reports to the coordinator that executes a job, at each of its requests, that the job is read here.
async fn answer(link: &Link, job: JobId) {
    loop {
        match link.subscribe(&readers_subject(job)).await {
            Ok(mut requests) => {
                while let Some(request) = requests.next().await {
                    let Some(reply) = request.reply else { continue };
                    link.reply_to_peer(&reply, &Readers { v: FABRIC_VERSION }).await;
                }
            }
            Err(error) => {
                tracing::debug!(%job, error = %Chain(&error), "requests about readers not received; will retry");
            }
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}

/// Asks whether another coordinator relays a job to a reader. The server replies at once where none does.
pub(super) async fn is_read_elsewhere(link: &Link, job: JobId) -> bool {
    let asked = Readers { v: FABRIC_VERSION };
    link.request::<Readers>(readers_subject(job), &asked, ANSWER_TIMEOUT, None).await.is_ok()
}

/// Every message of a job, from the first one.
pub(super) async fn messages(link: &Link, job: JobId) -> Result<Ordered, async_nats::Error> {
    let stream = link.jetstream().get_stream_no_info(JOB_EVENTS_STREAM).await?;
    let config = OrderedConfig { filter_subject: job_events(job), ..Default::default() };
    Ok(stream.create_consumer(config).await?.messages().await?)
}

/// Appends what is published, up to the end of the job.
async fn follow(link: &Link, job: JobId, relay: &Relay) {
    let mut patience = FIRST_PATIENCE;
    loop {
        match messages(link, job).await {
            Ok(mut messages) => loop {
                let message = match tokio::time::timeout(patience, messages.next()).await {
                    Ok(Some(Ok(message))) => message,
                    Ok(Some(Err(_)) | None) => break,
                    Err(_) => {
                        patience = (patience * 2).min(MAX_PATIENCE);
                        break;
                    }
                };
                *relay.last_message.lock() = Instant::now();
                let Ok(batch) = serde_json::from_slice::<JobEvents>(&message.payload) else { continue };
                if relay.log.append_numbered(batch.events) {
                    patience = FIRST_PATIENCE;
                }
                if relay.log.has_ended() {
                    return;
                }
            },
            Err(error) => {
                tracing::debug!(%job, %error, "stream of another coordinator's job not opened; will retry");
            }
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}

/// Ends relays of jobs that have ended or are executed here, until `hard` is triggered.
pub(super) async fn check(execution: Arc<Execution>) {
    let mut interval = tokio::time::interval(CHECK_INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while execution.hard.run_until_cancelled(interval.tick()).await.is_some() {
        check_round(&execution).await;
    }
}

async fn check_round(execution: &Execution) {
    let relays: Vec<_> = execution.relays.0.lock().iter().map(|(job, relay)| (*job, relay.clone())).collect();
    let (here, elsewhere): (Vec<_>, Vec<_>) =
        relays.into_iter().partition(|(job, _)| execution.find(*job).is_some());
    for (_, relay) in here {
        relay.moved.cancel();
    }
    let silent = |(_, relay): &(JobId, Arc<Relay>)| relay.last_message.lock().elapsed() >= CHECK_INTERVAL;
    let silent: Vec<_> = elsewhere.into_iter().filter(silent).collect();
    for silent in silent.chunks(jobs::MAX_STATUS_IDS) {
        let ids: Vec<JobId> = silent.iter().map(|(job, _)| *job).collect();
        match jobs::open_among(execution.context.store.reader(), &ids).await {
            Ok(open) => {
                for (_, relay) in silent.iter().filter(|(job, _)| !open.contains(job)) {
                    relay.moved.cancel();
                }
            }
            // They are relayed until it is known that they have ended.
            Err(error) => {
                tracing::debug!(error = %Chain(&error), "status of relayed jobs not read; will retry");
                return;
            }
        }
    }
}
