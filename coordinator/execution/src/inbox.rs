//! Receives what Islands and other coordinators send, with one task for each subject. Nothing here decides about a job;
//! runners do. Every coordinator receives every message and replies only about its own jobs, and about jobs that have
//! ended according to SQL.
//!
//! Any enrolled Island may publish any number of messages of any size. So they wait in memory of a limited size
//! (`queue`), one Island does not delay others, nothing waits for the database in their place, and what one Island may
//! cause there is limited (`limits`).

mod budget;
mod limits;
mod queue;
mod registration;
mod report;
mod unread;

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use island_daemon::{chain::Chain, latest::Latest};
use island_protocol::{
    FABRIC_VERSION, MAX_MESSAGE_BYTES,
    fabric::{
        Heartbeat, Lease, LeaseRenewal, LeaseReply, Output, OutputReply, SIGNATURE_HEADER, Status,
        signed_bytes,
    },
    ids::{AttemptKey, HostId, InstanceId},
    subjects::{self, HostTopic},
    time::Timestamp,
    version::VERSIONS,
};
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use uuid::Uuid;

use super::{
    Execution,
    job_handle::{OutputError, OutputOwner},
    machine::Input,
};
pub(super) use budget::{Budget, Held};
use island_coordinator_fabric::{
    link::LinkError,
    signature::{self, SignatureError},
};
use island_coordinator_storage as storage;
use island_coordinator_storage::StoreError;
pub(super) use limits::{Rates, Unknown};
pub(super) use queue::Backlog;
use queue::{Queue, Received};
pub(super) use unread::Unread;

/// Messages of different Islands on one subject that are handled concurrently.
const CONCURRENCY: usize = 16;
/// Messages about attempts of other coordinators that are looked up concurrently.
pub(super) const FOREIGN_ATTEMPTS: usize = 32;
/// Unknown Islands that are looked up concurrently, before any signature can be verified.
pub(super) const UNKNOWN_ISLANDS: usize = 2;
/// Larger messages are parsed by another thread: the time that it takes would delay others.
const INLINE_BYTES: usize = 128 << 10;
/// Name of the queue of [`subjects::coordinator_cancel`].
const CANCEL: &str = "coordinator.cancel";
/// Maximum bytes of a registration, a heartbeat and a renewal.
const MAX_REPORT: usize = 1 << 20;
/// Maximum bytes of a status message.
const MAX_STATUS: usize = 16 << 10;
/// Maximum attempts in a message.
const MAX_ATTEMPTS: usize = 1_024;

/// Why a signed message has no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unadmitted {
    /// The Island has signed it, at another time than it is by the clocks of this coordinator.
    Untimely,
    /// Its sender is unknown, or sends too many.
    Other,
}

/// The subscriptions, one for each subject.
#[derive(Debug)]
pub struct Inbox {
    output: async_nats::Subscriber,
    status: async_nats::Subscriber,
    heartbeat: async_nats::Subscriber,
    register: async_nats::Subscriber,
    lease: async_nats::Subscriber,
    cancel_requests: async_nats::Subscriber,
}

impl Inbox {
    /// Subscribes to all subjects. Messages wait in the client until [`Self::spawn`].
    pub async fn open(
        link: &island_coordinator_fabric::link::Link,
        own: InstanceId,
    ) -> Result<Self, LinkError> {
        Ok(Self {
            output: link.subscribe(&HostTopic::Output.of_all()).await?,
            status: link.subscribe(&HostTopic::Status.of_all()).await?,
            heartbeat: link.subscribe(&HostTopic::Heartbeat.of_all()).await?,
            register: link.subscribe(subjects::REGISTER).await?,
            lease: link.subscribe(subjects::LEASE).await?,
            cancel_requests: link.subscribe(&subjects::coordinator_cancel(own)).await?,
        })
    }

    /// Starts to process messages. The tasks end with [`Execution`].
    pub fn spawn(self, execution: &Arc<Execution>) {
        let any =
            |subject| (subject, Arc::new(Backlog::new(execution.context.metrics.fabric.subject(subject))));
        execution.listen(self.output, any("host.output"), MAX_MESSAGE_BYTES, async |execution, received| {
            execution.on_output(received).await;
        });
        execution.listen(self.status, any("host.status"), MAX_STATUS, async |execution, received| {
            execution.on_status(&received.message);
        });
        execution.listen(self.heartbeat, any("host.heartbeat"), MAX_REPORT, async |execution, received| {
            execution.on_heartbeat(&received.message);
        });
        execution.listen(self.register, any(subjects::REGISTER), MAX_REPORT, async |execution, received| {
            execution.on_register(&received.message).await;
        });
        let renewals = (subjects::LEASE, execution.renewals.clone());
        execution.listen(self.lease, renewals, MAX_REPORT, async |execution, received| {
            execution.on_lease(received).await;
        });
        execution.listen(self.cancel_requests, any(CANCEL), MAX_REPORT, async |execution, received| {
            execution.on_cancel_request(received.message);
        });
    }
}

/// Parses a message and the Island that sent it: the fabric's permissions allow no other sender on the subject.
fn from_host<T: DeserializeOwned>(message: &async_nats::Message) -> Option<(HostId, T)> {
    let (host, _) = subjects::parse_host(&message.subject)?;
    Some((host, parsed(&message.subject, &message.payload)?))
}

fn parsed<T: DeserializeOwned>(subject: &str, payload: &Bytes) -> Option<T> {
    match serde_json::from_slice(payload) {
        Ok(body) => Some(body),
        Err(error) => {
            tracing::debug!(%error, subject, "malformed message dropped");
            None
        }
    }
}

impl Execution {
    /// Handles the messages of a subscription, of at most `max_payload` bytes.
    fn listen<F>(
        self: &Arc<Self>,
        messages: async_nats::Subscriber,
        (subject, backlog): (&'static str, Arc<Backlog>),
        max_payload: usize,
        handle: impl Fn(Arc<Self>, Received) -> F + Send + Sync + 'static,
    ) where
        F: Future<Output = ()> + Send,
    {
        let metrics = self.context.metrics.fabric.clone();
        let (queue, turns) = Queue::new(subject, max_payload, self.budget.clone(), backlog, metrics);
        let (execution, filled) = (self.clone(), queue.clone());
        self.spawn_task(async move {
            let hard = execution.hard.clone();
            tokio::select! {
                biased;
                () = hard.cancelled() => {}
                () = filled.fill(messages) => {}
            }
        });
        let execution = self.clone();
        self.spawn_task(async move {
            let hard = execution.hard.clone();
            tokio::select! {
                biased;
                () = hard.cancelled() => {}
                () = queue.handle(turns, CONCURRENCY, |received| handle(execution.clone(), received)) => {}
            }
        });
    }

    async fn on_output(self: &Arc<Self>, received: Received) {
        let Received { message, held, .. } = received;
        let Some((host, _)) = subjects::parse_host(&message.subject) else { return };
        let (subject, payload, reply) = (message.subject, message.payload, message.reply);
        let output = if payload.len() <= INLINE_BYTES {
            parsed::<Output>(&subject, &payload)
        } else {
            tokio::task::spawn_blocking(move || parsed::<Output>(&subject, &payload)).await.ok().flatten()
        };
        let Some(output) = output else { return };
        let key = output.key;
        let reply = reply.map(|reply| reply.to_string());
        let handle = self.find(key.job_id);
        match handle.as_ref().map(|handle| handle.owner(host, key)) {
            Some(OutputOwner::Current) => {
                let handle = handle.expect("it has an owner");
                match handle.send_output(host, output, reply.clone(), held) {
                    Ok(()) => return,
                    // The Island sends them again.
                    Err(OutputError::Full) => return self.context.metrics.fabric.dropped(),
                    Err(OutputError::Ended) => {}
                }
            }
            Some(OutputOwner::Other) => {
                self.context.metrics.jobs.stale();
                let Some(reply) = reply else { return };
                return self.spawn_reply(async move |execution| {
                    execution.context.link.reply_to_island(host, &reply, &discarded()).await;
                });
            }
            None => {}
        }
        let Some(reply) = reply else { return };
        self.spawn_reply(async move |execution| execution.reply_if_ended(host, key, &reply).await);
    }

    /// Replies in a separate task, as it may wait for the database or the fabric. Without a permit nothing is sent, and
    /// the Island repeats its message.
    fn spawn_reply<F>(self: &Arc<Self>, reply: impl FnOnce(Arc<Self>) -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send,
    {
        let Ok(permit) = self.foreign_attempts.clone().try_acquire_owned() else { return };
        let execution = self.clone();
        self.spawn_task(async move {
            let hard = execution.hard.clone();
            tokio::select! {
                biased;
                () = hard.cancelled() => {}
                () = reply(execution) => {}
            }
            drop(permit);
        });
    }

    /// Replies to the end of an attempt that this coordinator does not execute, if nobody needs it any longer.
    async fn reply_if_ended(&self, host: HostId, key: AttemptKey, reply: &str) {
        match self.ended_among(&[key]).await {
            Ok(ended) if ended.is_empty() => {
                // The job is another coordinator's, or is being resumed; the coordinator that executes it replies.
            }
            Ok(_) => self.context.link.reply_to_island(host, reply, &discarded()).await,
            Err(error) => {
                tracing::error!(%key, error = %Chain(&error), "no reply sent to the end of an attempt");
            }
        }
    }

    /// Returns those of at most [`MAX_ATTEMPTS`] attempts that have ended or were superseded, according to SQL.
    async fn ended_among(&self, keys: &[AttemptKey]) -> Result<Vec<AttemptKey>, StoreError> {
        let mut ended = Vec::new();
        for some in keys.chunks(storage::jobs::MAX_STATUS_IDS) {
            let ids: Vec<_> = some.iter().map(|key| key.job_id).collect();
            let rows: HashMap<_, _> =
                storage::jobs::status_and_epoch(self.context.store.reader(), &ids).await?;
            let is_over = |key: &&AttemptKey| {
                rows.get(&key.job_id).is_none_or(|(status, epoch)| status.is_final() || *epoch > key.epoch)
            };
            ended.extend(some.iter().filter(is_over));
        }
        Ok(ended)
    }

    fn on_status(&self, message: &async_nats::Message) {
        let Some((host, status)) = from_host::<Status>(message) else { return };
        if status.state != "started" {
            return;
        }
        if let Some(handle) = self.find(status.key.job_id) {
            handle.send(Input::Started { host, key: status.key });
        }
    }

    fn on_heartbeat(&self, message: &async_nats::Message) {
        // The fabric's permissions allow no other sender on the subject.
        let Some((host, _)) = subjects::parse_host(&message.subject) else { return };
        let mut heartbeat = match serde_json::from_slice::<Heartbeat>(&message.payload) {
            Ok(heartbeat) => heartbeat,
            Err(error) => {
                tracing::debug!(%error, %host, "a heartbeat cannot be read");
                return self.unread.insert(host, &error);
            }
        };
        // An Island whose registration was refused is not online.
        if heartbeat.host_id == host && VERSIONS.contains(heartbeat.v) {
            self.unread.remove(host);
            report::trim(&mut heartbeat, message.payload.len());
            self.context.fleet.heartbeat(heartbeat, Instant::now(), self.context.clock.now());
        }
    }

    /// Whether a request is signed with the enrolled key of the Island that it names, and the Island has not sent too
    /// many.
    async fn is_admitted(&self, host: HostId, sent_at: Timestamp, message: &async_nats::Message) -> bool {
        self.admit(host, sent_at, message).await.is_ok()
    }

    async fn admit(
        &self,
        host: HostId,
        sent_at: Timestamp,
        message: &async_nats::Message,
    ) -> Result<(), Unadmitted> {
        let Some(public_key) = self.public_key(host).await else { return Err(Unadmitted::Other) };
        let header = message.headers.as_ref().and_then(|headers| headers.get(SIGNATURE_HEADER));
        let signed = signed_bytes(&message.subject, &message.payload);
        let header = header.map(async_nats::HeaderValue::as_str);
        let times = self.context.clock.times();
        if let Err(error) = signature::verify(&public_key, header, &signed, sent_at, &times) {
            // A sender of forged messages chooses their number.
            if !self.rates.admit(HostId(Uuid::nil()), Instant::now()) {
                return Err(Unadmitted::Other);
            }
            tracing::warn!(%host, %error, subject = %message.subject, "message dropped");
            let is_own = error == SignatureError::Stale
                && signature::verify(&public_key, header, &signed, sent_at, &[sent_at]).is_ok();
            return Err(if is_own { Unadmitted::Untimely } else { Unadmitted::Other });
        }
        if !self.rates.admit(host, Instant::now()) {
            self.context.metrics.fabric.dropped();
            return Err(Unadmitted::Other);
        }
        Ok(())
    }

    /// The enrolled key of an Island. Nobody has signed for the id yet, so few look-ups of unknown Islands run at a time,
    /// and other messages of unknown Islands are dropped: these Islands repeat them.
    async fn public_key(&self, host: HostId) -> Option<String> {
        if let Some((_, public_key)) = self.context.fleet.account_and_key(host) {
            return Some(public_key);
        }
        let now = Instant::now();
        if self.unknown.contains(host, now) {
            return None;
        }
        let _permit = self.unknown_islands.try_acquire().ok()?;
        match self.account_and_key(host).await {
            Ok(Some((_, public_key))) => Some(public_key),
            Ok(None) => {
                tracing::debug!(%host, "message of an Island that is not enrolled dropped");
                self.unknown.insert(host, now);
                None
            }
            Err(error) => {
                tracing::warn!(%host, error = %Chain(&error), "message dropped");
                None
            }
        }
    }

    async fn on_lease(self: &Arc<Self>, received: Received) {
        let Received { message, unapplied, .. } = received;
        let Some(renewal) = parsed::<LeaseRenewal>(&message.subject, &message.payload) else { return };
        let host = renewal.host_id;
        if !VERSIONS.contains(renewal.v) {
            return;
        }
        if renewal.jobs.len() > MAX_ATTEMPTS {
            return tracing::warn!(%host, jobs = renewal.jobs.len(), "renewal of too many leases dropped");
        }
        // An Island that is looked up has no leases here; its message must not make others appear late.
        let is_known = self.context.fleet.account_and_key(host).is_some();
        let unapplied = is_known.then_some(unapplied);
        if !self.is_admitted(host, renewal.sent_at, &message).await {
            return;
        }
        let connected_since = self.context.link.connectivity().latest().since;
        let now = Instant::now();
        let (mut leases, mut unknown) = (Vec::new(), Vec::new());
        for job in &renewal.jobs {
            match self.find(job.key.job_id) {
                Some(handle) => {
                    let lease = handle.renew(host, job, now, connected_since);
                    self.context.metrics.jobs.renewed(lease.held);
                    leases.push(lease);
                }
                None => unknown.push(job.key),
            }
        }
        drop(unapplied);
        let Some(reply) = message.reply else { return };
        if !leases.is_empty() || renewal.jobs.is_empty() {
            self.context.link.reply_to_island(host, &reply, &LeaseReply { v: FABRIC_VERSION, leases }).await;
        }
        if !unknown.is_empty() {
            self.spawn_reply(async move |execution| execution.reply_about(host, &unknown, &reply).await);
        }
    }

    /// Replies to the renewal of attempts that this coordinator does not execute, if they have ended.
    async fn reply_about(&self, host: HostId, unknown: &[AttemptKey], reply: &str) {
        let ended = self.ended_among(unknown).await.unwrap_or_default();
        if ended.is_empty() {
            return;
        }
        let leases = ended.into_iter().map(|key| Lease { key, held: false, replay_from: None }).collect();
        self.context.link.reply_to_island(host, reply, &LeaseReply { v: FABRIC_VERSION, leases }).await;
    }
}

/// The reply to events that nobody needs any longer.
fn discarded() -> OutputReply {
    OutputReply { v: FABRIC_VERSION, committed: true, replay_from: None, earned: None }
}
