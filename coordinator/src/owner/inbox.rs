//! What Islands send, and what other coordinators ask: one task per subject. Nothing here decides about a job; runners
//! do. Every coordinator hears everything and answers what it can answer for: its own jobs, and what SQL says is over.

use std::sync::Arc;

use futures::StreamExt as _;
use island_daemon::latest::Latest;
use island_protocol::{
    FABRIC_VERSION,
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

use super::{Owner, live::Command};
use crate::{
    fabric::{link::LinkError, signature},
    fleet::Arrival,
    storage::{self, StoreError},
};

/// What the fabric brings, one subscription each.
#[derive(Debug)]
pub(crate) struct Inbox {
    output: async_nats::Subscriber,
    status: async_nats::Subscriber,
    heartbeat: async_nats::Subscriber,
    register: async_nats::Subscriber,
    lease: async_nats::Subscriber,
    wishes: async_nats::Subscriber,
}

impl Inbox {
    /// Subscribes to everything. Messages wait in the subscriptions until [`Self::spawn`].
    pub(crate) async fn open(link: &crate::fabric::link::Link, own: InstanceId) -> Result<Self, LinkError> {
        Ok(Self {
            output: link.subscribe(&HostTopic::Output.of_all()).await?,
            status: link.subscribe(&HostTopic::Status.of_all()).await?,
            heartbeat: link.subscribe(&HostTopic::Heartbeat.of_all()).await?,
            register: link.subscribe(subjects::REGISTER).await?,
            lease: link.subscribe(subjects::LEASE).await?,
            wishes: link.subscribe(&subjects::coordinator_cancel(own)).await?,
        })
    }

    /// Begins to read. The tasks end with the owner.
    pub(crate) fn spawn(self, owner: &Arc<Owner>) {
        owner.listen(self.output, |owner, message| async move { owner.on_output(&message).await });
        owner.listen(self.status, |owner, message| async move { owner.on_status(&message) });
        owner.listen(self.heartbeat, |owner, message| async move { owner.on_heartbeat(&message) });
        owner.listen(self.register, |owner, message| async move { owner.on_register(&message).await });
        owner.listen(self.lease, |owner, message| async move { owner.on_lease(&message).await });
        owner.listen(self.wishes, |owner, message| async move { owner.on_wish(message) });
    }
}

/// A message with the Island it can only have come from: the fabric admits nobody else to the subject.
fn from_host<T: DeserializeOwned>(message: &async_nats::Message) -> Option<(HostId, T)> {
    let (host, _) = subjects::parse_host(&message.subject)?;
    match serde_json::from_slice(&message.payload) {
        Ok(body) => Some((host, body)),
        Err(error) => {
            tracing::warn!(%host, %error, subject = %message.subject, "malformed message dropped");
            None
        }
    }
}

impl Owner {
    fn listen<F, H>(self: &Arc<Self>, mut messages: async_nats::Subscriber, handle: H)
    where
        F: Future<Output = ()> + Send,
        H: Fn(Arc<Self>, async_nats::Message) -> F + Send + 'static,
    {
        let owner = self.clone();
        self.spawn_task(async move {
            loop {
                let message = tokio::select! {
                    biased;
                    () = owner.hard.cancelled() => return,
                    message = messages.next() => message,
                };
                let Some(message) = message else { return };
                handle(owner.clone(), message).await;
            }
        });
    }

    async fn on_output(&self, message: &async_nats::Message) {
        let Some((host, output)) = from_host::<Output>(message) else { return };
        let key = output.key;
        let reply = message.reply.as_ref().map(ToString::to_string);
        if let Some(live) = self.find(key.job_id)
            && live.send(Command::Output { host, output, reply: reply.clone() })
        {
            return;
        }
        let Some(reply) = reply else { return };
        match self.is_over(key).await {
            Ok(true) => {
                let answer =
                    OutputReply { v: FABRIC_VERSION, committed: true, replay_from: None, earned: None };
                self.context.link.answer(host, &reply, &answer).await;
            }
            // Somebody else's job, or one that is being taken up: whoever owns it answers.
            Ok(false) => {}
            Err(error) => {
                tracing::error!(%key, error = %island_daemon::chain::Chain(&error), "end left unanswered");
            }
        }
    }

    /// Whether nobody waits for this attempt any more, as SQL says.
    async fn is_over(&self, key: AttemptKey) -> Result<bool, StoreError> {
        let job = storage::job::get(self.context.store.reader(), key.job_id).await?;
        Ok(job.is_none_or(|job| job.status.is_final() || job.epoch > key.epoch))
    }

    fn on_status(&self, message: &async_nats::Message) {
        let Some((host, status)) = from_host::<Status>(message) else { return };
        if status.state != "started" {
            return;
        }
        if let Some(live) = self.find(status.key.job_id) {
            live.send(Command::Started { host, key: status.key });
        }
    }

    fn on_heartbeat(&self, message: &async_nats::Message) {
        let Some((host, beat)) = from_host::<Heartbeat>(message) else { return };
        if beat.host_id == host {
            self.context.fleet.beat(beat, Instant::now(), self.context.clock.now());
        }
    }

    /// Whether a request is signed by the Island it speaks for, with the key it was enrolled with.
    async fn is_signed(&self, host: HostId, sent_at: Timestamp, message: &async_nats::Message) -> bool {
        let public_key = match self.known(host).await {
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
        let Ok(register) = serde_json::from_slice::<Register>(&message.payload) else { return };
        let host = register.host_id;
        if !self.is_signed(host, register.sent_at, message).await {
            return;
        }
        let now = self.context.clock.now();
        let arrival = self.context.fleet.register(&register, Instant::now(), now);
        if let Err(error) = self.store_registration(&register, now).await {
            tracing::error!(%host, error = %island_daemon::chain::Chain(&error), "registration not stored");
        }
        if arrival != Arrival::Again {
            tracing::info!(%host, name = register.name, holding = register.holding.len(), "Island registered");
        }
        if arrival == Arrival::Restarted {
            self.lose_what_is_not_held(&register);
        }
        let mut drop = Vec::new();
        for key in &register.holding {
            if self.is_forsaken(host, *key).await {
                drop.push(*key);
            }
        }
        let Some(reply) = &message.reply else { return };
        let answer = Registered {
            v: FABRIC_VERSION,
            heartbeat_ms: self.context.heartbeat.as_millis() as u64,
            lease_ms: self.context.patience.lease.as_millis() as u64,
            drop,
        };
        self.context.link.answer(host, reply, &answer).await;
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

    /// A new run of an agent says what it took over; what is missing there is gone.
    fn lose_what_is_not_held(&self, register: &Register) {
        for live in self.all() {
            let key = live.state().run.as_ref().filter(|run| run.host == register.host_id).map(|run| run.key);
            if let Some(key) = key.filter(|key| !register.holding.contains(key)) {
                live.send(Command::Lost { key });
            }
        }
    }

    /// Whether an Island holds an attempt for nothing. In doubt it keeps it.
    async fn is_forsaken(&self, host: HostId, key: AttemptKey) -> bool {
        match self.find(key.job_id) {
            Some(live) => {
                let state = live.state();
                !state.run.as_ref().is_some_and(|run| run.host == host && run.key == key)
            }
            None => self.is_over(key).await.unwrap_or(false),
        }
    }

    async fn on_lease(&self, message: &async_nats::Message) {
        let Ok(renewal) = serde_json::from_slice::<LeaseRenewal>(&message.payload) else { return };
        let host = renewal.host_id;
        if !self.is_signed(host, renewal.sent_at, message).await {
            return;
        }
        let heard_since = self.context.link.hearing().latest().since;
        let now = Instant::now();
        let mut leases = Vec::with_capacity(renewal.jobs.len());
        for job in &renewal.jobs {
            if let Some(live) = self.find(job.key.job_id) {
                leases.push(live.renew(host, job, now, heard_since));
            } else if self.is_over(job.key).await.unwrap_or(false) {
                leases.push(island_protocol::fabric::Lease { key: job.key, held: false, replay_from: None });
            }
        }
        let Some(reply) = &message.reply else { return };
        if leases.is_empty() && !renewal.jobs.is_empty() {
            return;
        }
        self.context.link.answer(host, reply, &LeaseReply { v: FABRIC_VERSION, leases }).await;
    }
}
