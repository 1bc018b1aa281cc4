//! The connection to NATS: publishing, signed requests, and whether the Island is registered.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use async_nats::{
    Client, HeaderMap, Request, StatusCode,
    client::{PublishError, PublishErrorKind, RequestErrorKind},
    connection::State,
};
use bytes::Bytes;
use fail::fail_point;
use futures::StreamExt as _;
use island_daemon::latest::Latest;
use island_protocol::{
    FABRIC_VERSION,
    fabric::{Registered, SIGNATURE_HEADER, Status},
    ids::{HostId, InstanceId},
    subjects::HostTopic,
    version::Mismatch,
};
use parking_lot::Mutex;
use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::{Notify, watch};

use crate::identity::Identity;

/// Maximum characters that are shown of a text of another machine.
const MAX_CHARACTERS: usize = 1000;
/// Share of a lease, in tenths, after which an Island that could not renew it stops publishing.
const FENCE_TENTHS: u64 = 8;

/// A message that was not delivered.
#[derive(Debug, thiserror::Error)]
pub enum FabricError {
    /// There is no connection.
    #[error("not connected")]
    NotConnected,
    /// The server accepts no message of this size.
    #[error("the message is larger than the server accepts (max_payload)")]
    TooLarge,
    /// The client refused the message.
    #[error("publish")]
    Publish(#[source] PublishError),
    /// Subscribing to the answers failed.
    #[error("subscribe to answers")]
    Subscribe(#[source] async_nats::SubscribeError),
    /// No coordinator listens on the subject.
    #[error("no coordinator answers")]
    NobodyThere,
    /// No answer in time.
    #[error("no answer in time")]
    TimedOut,
    /// The request failed for another reason.
    #[error("request")]
    Request(#[source] async_nats::RequestError),
    /// The message or its answer is not valid JSON of the expected form.
    #[error("encode or decode a message")]
    Json(#[source] serde_json::Error),
    /// Another agent with this identity has registered.
    #[error(
        "another agent has this Island's identity; give each machine its own: stop one agent, delete its state folder, \
         and enroll it again"
    )]
    Duplicate,
    /// The registration has no effect, for this reason.
    #[error("{0}")]
    Refused(String),
    /// Heartbeats have no effect, for this reason.
    #[error("the coordinator cannot read the heartbeats: {0}")]
    UnreadHeartbeat(String),
    /// The coordinator speaks no version of the messages that this agent speaks.
    #[error(transparent)]
    Incompatible(#[from] Mismatch),
}

/// Publishes and requests for this Island, on the current connection.
#[derive(Debug)]
pub struct Fabric {
    identity: Arc<Identity>,
    instance: InstanceId,
    client: watch::Sender<Option<Client>>,
    /// Number of the current registration; 0 without a registered connection.
    registered: watch::Sender<u64>,
    registrations: AtomicU64,
    lease_ms: AtomicU64,
    heartbeat_ms: AtomicU64,
    unresponsive: Notify,
    register_again: Notify,
    /// Version of the messages that was agreed on.
    version: AtomicU32,
    /// Why the coordinator refuses this Island.
    refusal: Mutex<Option<String>>,
}

impl Fabric {
    /// Creates a handle without a connection.
    pub fn new(identity: Arc<Identity>, instance: InstanceId) -> Arc<Self> {
        Arc::new(Self {
            identity,
            instance,
            client: watch::Sender::new(None),
            registered: watch::Sender::new(0),
            registrations: AtomicU64::new(0),
            lease_ms: AtomicU64::new(30_000),
            heartbeat_ms: AtomicU64::new(5_000),
            unresponsive: Notify::new(),
            register_again: Notify::new(),
            version: AtomicU32::new(FABRIC_VERSION),
            refusal: Mutex::default(),
        })
    }

    /// The id of this Island.
    pub fn host_id(&self) -> HostId {
        self.identity.host_id()
    }

    /// The id of this run of the agent.
    pub fn instance(&self) -> InstanceId {
        self.instance
    }

    /// Follows registrations: a new number for each, 0 without a registration.
    pub fn registered(&self) -> watch::Receiver<u64> {
        self.registered.subscribe()
    }

    /// Whether this process has ever registered.
    pub fn was_registered(&self) -> bool {
        self.registrations.load(Ordering::Relaxed) > 0
    }

    /// Whether there is a registered connection.
    pub fn is_up(&self) -> bool {
        self.registered.latest() != 0
    }

    /// The version of the messages that this Island and the coordinator agreed on last.
    pub fn version(&self) -> u32 {
        self.version.load(Ordering::Relaxed)
    }

    /// Why the coordinator refuses this Island, until it registers.
    pub fn refusal(&self) -> Option<String> {
        self.refusal.lock().clone()
    }

    /// Waits for a registered connection.
    pub async fn up(&self) {
        let mut registered = self.registered();
        let _ = registered.wait_for(|number| *number != 0).await;
    }

    /// Milliseconds after which an unconfirmed attempt publishes nothing.
    pub fn fence_ms(&self) -> u64 {
        self.lease_ms.load(Ordering::Relaxed) * FENCE_TENTHS / 10
    }

    /// Time between heartbeats, as the coordinator set it.
    pub fn heartbeat_every(&self) -> Duration {
        Duration::from_millis(self.heartbeat_ms.load(Ordering::Relaxed).clamp(200, 60_000))
    }

    /// Time between lease renewals: several tries fit before publishing stops.
    pub fn renew_every(&self) -> Duration {
        Duration::from_millis((self.lease_ms.load(Ordering::Relaxed) / 6).clamp(100, 5_000))
    }

    /// Publishes on a subject of this Island.
    pub async fn publish(&self, topic: HostTopic, message: &impl Serialize) -> Result<(), FabricError> {
        let client = self.connected()?;
        let payload = encode(message)?;
        client.publish(topic.of(self.host_id()), payload).await.map_err(unpublished)
    }

    /// Publishes where an attempt stands, for people and dashboards. Jobs do not depend on it.
    pub async fn publish_status(&self, status: &Status) {
        if let Err(error) = self.publish(HostTopic::Status, status).await {
            tracing::debug!(%error, key = %status.key, "a status was not sent");
        }
    }

    /// Sends a request on a subject of this Island.
    pub async fn request<T: DeserializeOwned>(
        &self,
        topic: HostTopic,
        message: &impl Serialize,
        timeout: Duration,
    ) -> Result<T, FabricError> {
        let request = Request::new().payload(encode(message)?);
        self.send(topic.of(self.host_id()), request, timeout).await
    }

    /// Sends a signed request to all subscribers. Collects answers until `take` returns `true` or `timeout` has passed; no answer at all is
    /// an error.
    pub async fn request_all<T: DeserializeOwned>(
        &self,
        subject: &str,
        message: &impl Serialize,
        timeout: Duration,
        mut take: impl FnMut(T) -> bool,
    ) -> Result<(), FabricError> {
        let client = self.connected()?;
        let payload = encode(message)?;
        let headers = self.signed(subject, &payload);
        let inbox = client.new_inbox();
        let mut answers = client.subscribe(inbox.clone()).await.map_err(FabricError::Subscribe)?;
        let sent = client.publish_with_reply_and_headers(subject.to_owned(), inbox, headers, payload);
        sent.await.map_err(unpublished)?;
        fail_point!("request.sent", |action| {
            if action.is_none() { island_daemon::failpoint::crash(None) } else { Err(FabricError::TimedOut) }
        });
        let end = tokio::time::sleep(timeout);
        tokio::pin!(end);
        let mut heard = false;
        loop {
            let answer = tokio::select! {
                () = &mut end => return if heard { Ok(()) } else { Err(FabricError::TimedOut) },
                answer = answers.next() => answer.ok_or(FabricError::NotConnected)?,
            };
            if answer.status == Some(StatusCode::NO_RESPONDERS) {
                return Err(FabricError::NobodyThere);
            }
            heard = true;
            fail_point!("request.answered", |action| {
                if action.is_none() {
                    island_daemon::failpoint::crash(None)
                } else {
                    Err(FabricError::TimedOut)
                }
            });
            if take(serde_json::from_slice(&answer.payload).map_err(FabricError::Json)?) {
                return Ok(());
            }
        }
    }

    fn signed(&self, subject: &str, payload: &[u8]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(SIGNATURE_HEADER, self.identity.sign_message(subject, payload).as_str());
        headers
    }

    /// Answers a request.
    pub async fn answer(
        &self,
        reply: async_nats::Subject,
        message: &impl Serialize,
    ) -> Result<(), FabricError> {
        let client = self.connected()?;
        client.publish(reply, encode(message)?).await.map_err(FabricError::Publish)
    }

    /// Flushes published messages.
    pub async fn flush(&self) {
        if let Ok(client) = self.connected() {
            let _ = tokio::time::timeout(Duration::from_secs(2), client.flush()).await;
        }
    }

    /// Reports that the connection seems alive but no answer arrives: it is replaced.
    pub fn report_unresponsive(&self) {
        self.unresponsive.notify_one();
    }

    /// Requests a registration: the coordinator may have lost its state.
    pub fn request_registration(&self) {
        self.register_again.notify_one();
    }

    pub(super) fn set_client(&self, client: Option<Client>) {
        self.client.send_replace(client);
    }

    /// Records why the coordinator refuses this Island. One whose messages it does not read sends none.
    pub(super) fn set_refused(&self, error: &FabricError) {
        // The reason is a text of the coordinator, which `status` and `doctor` print on the owner's terminal.
        *self.refusal.lock() = Some(printable(&error.to_string()));
        if matches!(error, FabricError::Incompatible(_)) {
            self.set_down();
        }
    }

    pub(super) fn set_registered(&self, answer: &Registered, version: u32) {
        *self.refusal.lock() = None;
        self.version.store(version, Ordering::Relaxed);
        self.lease_ms.store(answer.lease_ms.max(1000), Ordering::Relaxed);
        self.heartbeat_ms.store(answer.heartbeat_ms, Ordering::Relaxed);
        let number = self.registrations.fetch_add(1, Ordering::Relaxed) + 1;
        self.registered.send_replace(number);
    }

    pub(super) fn set_down(&self) {
        self.registered.send_replace(0);
    }

    pub(super) async fn unresponsive(&self) {
        self.unresponsive.notified().await;
    }

    pub(super) async fn registration_requested(&self) {
        self.register_again.notified().await;
    }

    fn connected(&self) -> Result<Client, FabricError> {
        let client = self.client.latest().ok_or(FabricError::NotConnected)?;
        // Messages given to a client without a connection would be queued and sent late, after publishing had to stop.
        if client.connection_state() == State::Connected {
            Ok(client)
        } else {
            Err(FabricError::NotConnected)
        }
    }

    async fn send<T: DeserializeOwned>(
        &self,
        subject: String,
        request: Request,
        timeout: Duration,
    ) -> Result<T, FabricError> {
        let client = self.connected()?;
        let answer = client.send_request(subject, request.timeout(Some(timeout))).await;
        let answer = answer.map_err(|error| match error.kind() {
            RequestErrorKind::TimedOut => FabricError::TimedOut,
            RequestErrorKind::NoResponders => FabricError::NobodyThere,
            RequestErrorKind::MaxPayloadExceeded => FabricError::TooLarge,
            _ => FabricError::Request(error),
        })?;
        // The coordinator has served the request, and its answer is lost.
        fail_point!("request.served", |action| {
            if action.is_none() { island_daemon::failpoint::crash(None) } else { Err(FabricError::TimedOut) }
        });
        serde_json::from_slice(&answer.payload).map_err(FabricError::Json)
    }
}

fn unpublished(error: PublishError) -> FabricError {
    match error.kind() {
        PublishErrorKind::MaxPayloadExceeded => FabricError::TooLarge,
        _ => FabricError::Publish(error),
    }
}

fn encode(message: &impl Serialize) -> Result<Bytes, FabricError> {
    serde_json::to_vec(message).map(Bytes::from).map_err(FabricError::Json)
}

/// Text of another machine as one line of a limited length, without what a terminal would execute.
pub(crate) fn printable(text: &str) -> String {
    let plain = |character: char| if character.is_control() { ' ' } else { character };
    text.chars().take(MAX_CHARACTERS).map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_of_the_coordinator_cannot_control_a_terminal() {
        let folder = tempfile::tempdir().expect("a folder");
        let identity =
            Identity::load_or_create(folder.path(), || HostId(uuid::Uuid::new_v4())).expect("an identity");
        let fabric = Fabric::new(Arc::new(identity), InstanceId(uuid::Uuid::new_v4()));
        fabric
            .set_refused(&FabricError::Refused("a\u{1b}]0;title\u{7}b\nstate: connected\u{9b}2J".to_owned()));
        assert_eq!(fabric.refusal().as_deref(), Some("a ]0;title b state: connected 2J"));
        fabric.set_refused(&FabricError::UnreadHeartbeat("\r".repeat(2_000)));
        let refusal = fabric.refusal().expect("a reason");
        assert!(refusal.starts_with("the coordinator cannot read the heartbeats: "), "{refusal:?}");
        assert!(!refusal.contains(char::is_control) && refusal.len() == 1_000, "{refusal:?}");
    }

    #[test]
    fn a_text_of_others_cannot_control_a_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb\nc\u{9b}d"), "a [2Jb c d");
        assert_eq!(printable(&"x".repeat(2_000)).len(), MAX_CHARACTERS);
    }
}
