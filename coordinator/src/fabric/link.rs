//! The connection to NATS: signed requests out, answers only to the sender's own inbox, and a memory of outages.

use std::{sync::Arc, time::Duration};

use async_nats::{
    Client, ConnectOptions, Event, HeaderMap, Request,
    jetstream::{self, stream},
};
use bytes::Bytes;
use island_protocol::{
    MAX_MESSAGE_BYTES,
    fabric::SIGNATURE_HEADER,
    ids::HostId,
    subjects::{self, JOB_EVENTS_STREAM},
};
use serde::{Serialize, de::DeserializeOwned};
use tokio::{sync::watch, time::Instant};

use super::{jwt::MintError, keys::FabricKeys};
use crate::clock::Clock;

/// Servers before this one let users past their permissions in ways since mended.
const OLDEST: (i64, i64, i64) = (2, 12, 7);
/// How long finished streams can be replayed from the fabric.
const EVENTS_MAX_AGE: Duration = Duration::from_hours(1);

/// A fabric that cannot be reached or used.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The own JWT cannot be minted.
    #[error(transparent)]
    Mint(#[from] MintError),
    /// No connection.
    #[error("connect to the fabric at {url}")]
    Connect {
        /// Where.
        url: String,
        /// Why not.
        #[source]
        source: async_nats::ConnectError,
    },
    /// A subscription was refused.
    #[error("subscribe to {subject}")]
    Subscribe {
        /// To what.
        subject: String,
        /// Why not.
        #[source]
        source: async_nats::SubscribeError,
    },
    /// The stream of job events cannot be set up.
    #[error("set the stream of job events up")]
    Stream(#[source] jetstream::context::CreateStreamError),
}

/// Whether the fabric can be heard. Leases do not run while it cannot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hearing {
    pub connected: bool,
    /// When it could last be heard again.
    pub since: Instant,
}

/// The link. A clone is the same connection.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    client: Client,
    jetstream: jetstream::Context,
    keys: FabricKeys,
    heard: Arc<watch::Sender<Hearing>>,
}

/// A request that got no usable answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestError {
    #[error("sign the request")]
    Sign(#[source] nkeys::error::Error),
    #[error("send the request")]
    Send(#[source] async_nats::RequestError),
    #[error("read the answer")]
    Answer(#[source] serde_json::Error),
}

impl Link {
    /// Connects and makes sure the stream of job events exists. A server that is still starting is given
    /// `patience`; once connected, the link reconnects for ever.
    pub(crate) async fn open(
        url: &str,
        keys: &FabricKeys,
        clock: &Clock,
        patience: Duration,
    ) -> Result<Self, LinkError> {
        let begin = Instant::now();
        loop {
            match Self::connect(url, keys.clone(), clock).await {
                Err(error) if begin.elapsed() < patience => {
                    tracing::debug!(error = %island_daemon::chain::Chain(&error), "fabric not there yet");
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
                result => return result,
            }
        }
    }

    async fn connect(url: &str, keys: FabricKeys, clock: &Clock) -> Result<Self, LinkError> {
        let jwt = keys.coordinator_jwt(clock.now())?;
        let heard = Arc::new(watch::Sender::new(Hearing { connected: true, since: Instant::now() }));
        let signer = keys.clone();
        let sign = move |nonce: Vec<u8>| {
            let signer = signer.clone();
            async move { signer.sign_nonce(&nonce).map_err(async_nats::AuthError::new) }
        };
        let events = heard.clone();
        let client = ConnectOptions::with_jwt(jwt, sign)
            .name("island-coordinator")
            .ping_interval(Duration::from_secs(5))
            .request_timeout(Some(Duration::from_secs(5)))
            .subscription_capacity(1 << 16)
            .reconnect_delay_callback(|attempt| Duration::from_millis((50 << attempt.min(5)) as u64))
            .event_callback(move |event| {
                note(&events, &event);
                async {}
            })
            .connect(url)
            .await
            .map_err(|source| LinkError::Connect { url: url.to_owned(), source })?;
        let link = Self { jetstream: jetstream::new(client.clone()), client, keys, heard };
        link.ensure_stream().await?;
        let server = link.client.server_info();
        if !link.client.is_server_compatible(OLDEST.0, OLDEST.1, OLDEST.2) {
            tracing::warn!(version = server.version, oldest = ?OLDEST, "this nats-server has known security holes");
        }
        if server.max_payload < MAX_MESSAGE_BYTES {
            let (has, wanted) = (server.max_payload, MAX_MESSAGE_BYTES);
            tracing::warn!(
                has,
                wanted,
                "larger inputs and outputs will not get through: raise max_payload of nats-server"
            );
        }
        Ok(link)
    }

    /// Makes the stream of job events if it is not there, as after a restart of the fabric with an empty store.
    pub(crate) async fn ensure_stream(&self) -> Result<(), LinkError> {
        let config = stream::Config {
            name: JOB_EVENTS_STREAM.to_owned(),
            subjects: vec![subjects::ALL_JOB_EVENTS.to_owned()],
            max_age: EVENTS_MAX_AGE,
            storage: stream::StorageType::File,
            allow_direct: true,
            ..Default::default()
        };
        self.jetstream.get_or_create_stream(config).await.map_err(LinkError::Stream)?;
        Ok(())
    }

    /// Whether the fabric can be heard, and since when.
    pub(crate) fn hearing(&self) -> watch::Receiver<Hearing> {
        self.heard.subscribe()
    }

    /// This process was held up and can hear again since `now`.
    pub(crate) fn resumed(&self, now: Instant) {
        self.heard.send_modify(|hearing| hearing.since = now);
    }

    /// JetStream.
    pub(crate) fn jetstream(&self) -> &jetstream::Context {
        &self.jetstream
    }

    /// Listens to a subject.
    pub(crate) async fn subscribe(&self, subject: &str) -> Result<async_nats::Subscriber, LinkError> {
        self.client
            .subscribe(subject.to_owned())
            .await
            .map_err(|source| LinkError::Subscribe { subject: subject.to_owned(), source })
    }

    /// Sends a signed request and waits for the answer.
    pub(crate) async fn request<A: DeserializeOwned>(
        &self,
        subject: String,
        message: &impl Serialize,
        timeout: Duration,
    ) -> Result<A, RequestError> {
        let payload = encode(message);
        let headers = self.signed(&subject, &payload).map_err(RequestError::Sign)?;
        let request = Request::new().headers(headers).payload(payload).timeout(Some(timeout));
        let answer = self.client.send_request(subject, request).await.map_err(RequestError::Send)?;
        serde_json::from_slice(&answer.payload).map_err(RequestError::Answer)
    }

    /// Publishes a signed message and sends it off at once.
    pub(crate) async fn publish(&self, subject: String, message: &impl Serialize) {
        let payload = encode(message);
        let Ok(headers) = self.signed(&subject, &payload) else { return };
        let sent = self.client.publish_with_headers(subject.clone(), headers, payload).await;
        if let Err(error) = sent {
            tracing::warn!(subject, %error, "message not published");
        }
        let _ = self.client.flush().await;
    }

    /// Answers a request of an Island, if it asked from its own inbox; anything else gets no answer.
    pub(crate) async fn answer(&self, host: HostId, reply: &str, message: &impl Serialize) {
        let own = reply.strip_prefix(&subjects::inbox_prefix(host)).is_some_and(|rest| rest.starts_with('.'));
        if !own {
            tracing::warn!(%host, "request from outside the Island's own inbox left unanswered");
            return;
        }
        if let Err(error) = self.client.publish(reply.to_owned(), encode(message)).await {
            tracing::warn!(%host, %error, "answer not published");
        }
    }

    /// Answers another coordinator.
    pub(crate) async fn answer_peer(&self, reply: &str, message: &impl Serialize) {
        if let Err(error) = self.client.publish(reply.to_owned(), encode(message)).await {
            tracing::warn!(%error, "answer to another coordinator not published");
        }
    }

    fn signed(&self, subject: &str, payload: &[u8]) -> Result<HeaderMap, nkeys::error::Error> {
        let mut headers = HeaderMap::new();
        headers.insert(SIGNATURE_HEADER, self.keys.sign(subject, payload)?);
        Ok(headers)
    }

    /// Sends what is left and closes the connection.
    pub(crate) async fn close(&self) {
        let _ = self.client.drain().await;
    }
}

/// JSON of a message; every message type of ours has one.
pub(crate) fn encode(message: &impl Serialize) -> Bytes {
    serde_json::to_vec(message).expect("fabric messages serialise").into()
}

fn note(heard: &watch::Sender<Hearing>, event: &Event) {
    match event {
        Event::Connected => {
            heard.send_replace(Hearing { connected: true, since: Instant::now() });
            tracing::info!("fabric connected");
        }
        Event::Disconnected => {
            heard.send_modify(|hearing| hearing.connected = false);
            tracing::warn!("fabric disconnected");
        }
        Event::SlowConsumer(id) => tracing::error!(subscription = id, "messages dropped by our own client"),
        other => tracing::debug!(event = %other, "fabric"),
    }
}
