//! Receives what Islands and other coordinators send, with one task for each subject. Nothing here decides about a job;
//! runners do. Every coordinator receives every message and replies only about its own jobs, and about jobs that have
//! ended according to SQL.

use std::sync::Arc;

use futures::StreamExt as _;
use island_daemon::latest::Latest;
use island_protocol::{
    FABRIC_VERSION, MAX_MESSAGE_BYTES,
    fabric::{
        Heartbeat, LeaseRenewal, LeaseReply, Output, OutputReply, Register, Registered, SIGNATURE_HEADER,
        Status, signed_bytes,
    },
    ids::{AttemptKey, HostId, InstanceId},
    subjects::{self, HostTopic},
    time::Timestamp,
};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::{Execution, machine::Input};
use crate::{
    fabric::{link::LinkError, signature},
    fleet::RegistrationKind,
    storage::{self, StoreError},
};

/// Registrations and renewals that are handled concurrently.
const CONCURRENCY: usize = 16;
/// Ends of attempts of other coordinators that are looked up concurrently.
pub(super) const STRANGERS: usize = 32;
/// Maximum bytes of a registration, a heartbeat and a renewal.
const MAX_REPORT: usize = 1 << 20;
/// Maximum bytes of a status message.
const MAX_STATUS: usize = 16 << 10;
/// Maximum attempts in a message.
const MAX_ATTEMPTS: usize = 1_024;
/// Maximum length of an Island's name, region and version, characters.
const MAX_NAME: usize = 100;

/// The subscriptions, one for each subject.
#[derive(Debug)]
pub(crate) struct Inbox {
    output: async_nats::Subscriber,
    status: async_nats::Subscriber,
    heartbeat: async_nats::Subscriber,
    register: async_nats::Subscriber,
    lease: async_nats::Subscriber,
    cancel_requests: async_nats::Subscriber,
}

impl Inbox {
    /// Subscribes to all subjects. Messages wait in the subscriptions until [`Self::spawn`].
    pub(crate) async fn open(link: &crate::fabric::link::Link, own: InstanceId) -> Result<Self, LinkError> {
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
    pub(crate) fn spawn(self, execution: &Arc<Execution>) {
        // Events of a job and heartbeats of an Island are handled in the order of their arrival; what waits for the
        // database is not, so that it does not hold others up.
        execution.listen(self.output, 1, |execution, message| async move { execution.on_output(message) });
        execution.listen(self.status, 1, |execution, message| async move { execution.on_status(&message) });
        execution.listen(
            self.heartbeat,
            1,
            |execution, message| async move { execution.on_heartbeat(&message) },
        );
        execution.listen(self.register, CONCURRENCY, |execution, message| async move {
            execution.on_register(&message).await;
        });
        execution.listen(self.lease, CONCURRENCY, |execution, message| async move {
            execution.on_lease(&message).await;
        });
        execution.listen(self.cancel_requests, 1, |execution, message| async move {
            execution.on_cancel_request(message);
        });
    }
}

/// Parses a message of at most `limit` bytes and the Island that sent it: the fabric's permissions allow no other sender
/// on the subject.
fn from_host<T: DeserializeOwned>(message: &async_nats::Message, limit: usize) -> Option<(HostId, T)> {
    let (host, _) = subjects::parse_host(&message.subject)?;
    Some((host, parsed(message, limit)?))
}

fn parsed<T: DeserializeOwned>(message: &async_nats::Message, limit: usize) -> Option<T> {
    if message.payload.len() > limit {
        tracing::warn!(subject = %message.subject, bytes = message.payload.len(), limit, "oversized message dropped");
        return None;
    }
    match serde_json::from_slice(&message.payload) {
        Ok(body) => Some(body),
        Err(error) => {
            tracing::warn!(%error, subject = %message.subject, "malformed message dropped");
            None
        }
    }
}

/// Whether the names of a registration are short lines of text.
fn has_valid_names(register: &Register) -> bool {
    let is_short = |name: &str| name.chars().count() <= MAX_NAME && !name.chars().any(char::is_control);
    !register.name.trim().is_empty()
        && [&register.name, &register.agent_version]
            .into_iter()
            .chain(&register.region)
            .all(|name| is_short(name))
}

impl Execution {
    /// Handles at most `concurrency` messages of a subscription at a time.
    fn listen<F, H>(self: &Arc<Self>, messages: async_nats::Subscriber, concurrency: usize, handle: H)
    where
        F: Future<Output = ()> + Send,
        H: Fn(Arc<Self>, async_nats::Message) -> F + Send + Sync + 'static,
    {
        let execution = self.clone();
        self.spawn_task(async move {
            let hard = execution.hard.clone();
            let handled =
                messages.for_each_concurrent(concurrency, |message| handle(execution.clone(), message));
            tokio::select! {
                biased;
                () = hard.cancelled() => {}
                () = handled => {}
            }
        });
    }

    fn on_output(self: &Arc<Self>, message: async_nats::Message) {
        let Some((host, output)) = from_host::<Output>(&message, MAX_MESSAGE_BYTES) else { return };
        let key = output.key;
        let reply = message.reply.map(|reply| reply.to_string());
        if let Some(handle) = self.find(key.job_id)
            && handle.send(Input::Output { host, output, reply: reply.clone() })
        {
            return;
        }
        // Without a permit the Island repeats the message.
        let Ok(permit) = self.strangers.clone().try_acquire_owned() else { return };
        let Some(reply) = reply else { return };
        let execution = self.clone();
        self.spawn_task(async move {
            tokio::select! {
                biased;
                () = execution.hard.cancelled() => {}
                () = execution.reply_if_ended(host, key, &reply) => {}
            }
            drop(permit);
        });
    }

    /// Replies to the end of an attempt that this coordinator does not execute, if nobody needs it any longer.
    async fn reply_if_ended(&self, host: HostId, key: AttemptKey, reply: &str) {
        match self.has_ended(key).await {
            Ok(true) => {
                let answer =
                    OutputReply { v: FABRIC_VERSION, committed: true, replay_from: None, earned: None };
                self.context.link.reply_to_island(host, reply, &answer).await;
            }
            // The job is another coordinator's, or is being resumed; the coordinator that executes it replies.
            Ok(false) => {}
            Err(error) => {
                tracing::error!(%key, error = %island_daemon::chain::Chain(&error), "no reply sent to the end of an attempt");
            }
        }
    }

    /// Whether an attempt has ended or was superseded, according to SQL.
    async fn has_ended(&self, key: AttemptKey) -> Result<bool, StoreError> {
        let state = storage::jobs::status_and_epoch(self.context.store.reader(), key.job_id).await?;
        Ok(state.is_none_or(|(status, epoch)| status.is_final() || epoch > key.epoch))
    }

    fn on_status(&self, message: &async_nats::Message) {
        let Some((host, status)) = from_host::<Status>(message, MAX_STATUS) else { return };
        if status.state != "started" {
            return;
        }
        if let Some(handle) = self.find(status.key.job_id) {
            handle.send(Input::Started { host, key: status.key });
        }
    }

    fn on_heartbeat(&self, message: &async_nats::Message) {
        let Some((host, heartbeat)) = from_host::<Heartbeat>(message, MAX_REPORT) else { return };
        if heartbeat.host_id == host {
            self.context.fleet.heartbeat(heartbeat, Instant::now(), self.context.clock.now());
        }
    }

    /// Whether a request is signed with the enrolled key of the Island that it names.
    async fn is_signed(&self, host: HostId, sent_at: Timestamp, message: &async_nats::Message) -> bool {
        let public_key = match self.account_and_key(host).await {
            Ok(Some((_, public_key))) => public_key,
            Ok(None) => {
                tracing::warn!(%host, "message of an Island that is not enrolled dropped");
                return false;
            }
            Err(error) => {
                tracing::warn!(%host, error = %island_daemon::chain::Chain(&error), "message dropped");
                return false;
            }
        };
        let header = message.headers.as_ref().and_then(|headers| headers.get(SIGNATURE_HEADER));
        let signed = signed_bytes(&message.subject, &message.payload);
        let now = self.context.clock.now();
        let header = header.map(async_nats::HeaderValue::as_str);
        match signature::verify(&public_key, header, &signed, sent_at, now) {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(%host, %error, subject = %message.subject, "message dropped");
                false
            }
        }
    }

    async fn on_register(&self, message: &async_nats::Message) {
        let Some(register) = parsed::<Register>(message, MAX_REPORT) else { return };
        let host = register.host_id;
        if !has_valid_names(&register) || register.holding.len() > MAX_ATTEMPTS {
            tracing::warn!(%host, "registration with invalid names or too many attempts dropped");
            return;
        }
        if !self.is_signed(host, register.sent_at, message).await {
            return;
        }
        let now = self.context.clock.now();
        let kind = self.context.fleet.register(&register, Instant::now(), now);
        let registered = Registered {
            v: FABRIC_VERSION,
            heartbeat_ms: self.context.heartbeat.as_millis() as u64,
            lease_ms: self.context.timeouts.lease.as_millis() as u64,
            drop: Vec::new(),
            duplicate: kind == RegistrationKind::Duplicate,
        };
        if registered.duplicate {
            tracing::warn!(%host, name = register.name, "two agents have this Island's identity; one of them is ignored");
            let Some(reply) = &message.reply else { return };
            return self.context.link.reply_to_island(host, reply, &registered).await;
        }
        if let Err(error) = self.store_registration(&register, now).await {
            tracing::error!(%host, error = %island_daemon::chain::Chain(&error), "registration not stored");
        }
        if kind != RegistrationKind::Repeated {
            tracing::info!(%host, name = register.name, holding = register.holding.len(), "Island registered");
        }
        if kind == RegistrationKind::Restarted {
            self.drop_missing_attempts(&register);
        }
        let mut drop = Vec::new();
        for key in &register.holding {
            if self.is_obsolete(host, *key).await {
                drop.push(*key);
            }
        }
        let Some(reply) = &message.reply else { return };
        let answer = Registered { drop, ..registered };
        self.context.link.reply_to_island(host, reply, &answer).await;
    }

    async fn store_registration(&self, register: &Register, now: Timestamp) -> Result<(), StoreError> {
        let mut tx = self.context.store.begin().await?;
        storage::host::registered(
            &mut tx,
            register.host_id,
            &register.name,
            register.region.as_deref(),
            &register.agent_version,
            &register.capabilities,
            now,
        )
        .await?;
        storage::commit(tx).await
    }

    /// A restarted agent lists the attempts that it still has; the others are lost.
    fn drop_missing_attempts(&self, register: &Register) {
        for handle in self.all() {
            let attempt = handle.attempt().filter(|(host, _)| *host == register.host_id);
            if let Some((_, key)) = attempt.filter(|(_, key)| !register.holding.contains(key)) {
                handle.send(Input::Lost { key });
            }
        }
    }

    /// Whether an Island should drop an attempt. Returns `false` if the database cannot be read.
    async fn is_obsolete(&self, host: HostId, key: AttemptKey) -> bool {
        match self.find(key.job_id) {
            Some(handle) => handle.attempt() != Some((host, key)),
            None => self.has_ended(key).await.unwrap_or(false),
        }
    }

    async fn on_lease(&self, message: &async_nats::Message) {
        let Some(renewal) = parsed::<LeaseRenewal>(message, MAX_REPORT) else { return };
        let host = renewal.host_id;
        if renewal.jobs.len() > MAX_ATTEMPTS {
            tracing::warn!(%host, jobs = renewal.jobs.len(), "renewal of too many leases dropped");
            return;
        }
        if !self.is_signed(host, renewal.sent_at, message).await {
            return;
        }
        let connected_since = self.context.link.connectivity().latest().since;
        let now = Instant::now();
        let mut leases = Vec::with_capacity(renewal.jobs.len());
        for job in &renewal.jobs {
            if let Some(handle) = self.find(job.key.job_id) {
                leases.push(handle.renew(host, job, now, connected_since));
            } else if self.has_ended(job.key).await.unwrap_or(false) {
                leases.push(island_protocol::fabric::Lease { key: job.key, held: false, replay_from: None });
            }
        }
        let Some(reply) = &message.reply else { return };
        if leases.is_empty() && !renewal.jobs.is_empty() {
            return;
        }
        self.context.link.reply_to_island(host, reply, &LeaseReply { v: FABRIC_VERSION, leases }).await;
    }
}
