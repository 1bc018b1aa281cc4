//! The connection to NATS: sends signed requests, replies only to the sender's inbox, and records outages.

use std::{sync::Arc, time::Duration};

use async_nats::{Client, ConnectOptions, Event, HeaderMap, Request, ServerAddr, jetstream};
use bytes::Bytes;
use fail::fail_point;
use island_daemon::{
    chain::Chain,
    traces::{self, TraceContext},
};
use island_protocol::{
    MAX_MESSAGE_BYTES,
    address::{fabric_servers, is_loopback},
    fabric::SIGNATURE_HEADER,
    ids::HostId,
    subjects,
};
use serde::{Serialize, de::DeserializeOwned};
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{event_stream, jwt::MintError, keys::FabricKeys};
use island_coordinator_domain::{clock::Clock, metrics};

/// Earlier servers have known vulnerabilities by which users bypass their permissions.
const MIN_VERSION: (i64, i64, i64) = (2, 12, 7);

/// Time at the start to create the stream of job events.
const STREAM_TIMEOUT: Duration = Duration::from_secs(5);
/// Pauses between later tries.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// Why the fabric cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The coordinator's JWT cannot be signed.
    #[error(transparent)]
    Mint(#[from] MintError),
    /// No connection.
    #[error(
        "connect to the fabric at {url}, which `nats-server -c` with the nats.conf that `init` wrote starts"
    )]
    Connect {
        /// The address.
        url: String,
        /// The cause.
        #[source]
        source: async_nats::ConnectError,
    },
    /// A subscription was refused.
    #[error("subscribe to {subject}")]
    Subscribe {
        /// The subject.
        subject: String,
        /// The cause.
        #[source]
        source: async_nats::SubscribeError,
    },
    /// The stream of job events cannot be created.
    #[error("create the stream of job events")]
    Stream(#[source] jetstream::context::CreateStreamError),
}

/// State of the connection. Leases do not expire while it is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connectivity {
    pub connected: bool,
    /// When the connection was established, or this process resumed.
    pub since: Instant,
}

/// The connection. Clones share it.
#[derive(Debug, Clone)]
pub struct Link {
    client: Client,
    jetstream: jetstream::Context,
    keys: FabricKeys,
    connectivity: Arc<watch::Sender<Connectivity>>,
    metrics: metrics::Fabric,
    /// Nodes that keep the events of a job.
    replicas: u8,
}

/// A request without a usable reply.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    #[error("sign the request")]
    Sign(#[source] nkeys::error::Error),
    #[error("send the request")]
    Send(#[source] async_nats::RequestError),
    #[error("read the reply")]
    Reply(#[source] serde_json::Error),
}

impl Link {
    /// Connects and creates the stream of job events. Retries for `patience` if the server is not reachable, as it may
    /// be starting; once connected, the client reconnects forever.
    pub async fn open(
        url: &str,
        replicas: u8,
        keys: &FabricKeys,
        clock: &Clock,
        patience: Duration,
    ) -> Result<Self, LinkError> {
        let begin = Instant::now();
        let mut is_reported = false;
        loop {
            match Self::connect(url, replicas, keys.clone(), clock).await {
                Err(error) if begin.elapsed() < patience => {
                    if !std::mem::replace(&mut is_reported, true) {
                        tracing::warn!(url, error = %Chain(&error), "waiting for the fabric; `nats-server -c` with the nats.conf that `init` wrote starts it");
                    }
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
                result => return result,
            }
        }
    }

    async fn connect(url: &str, replicas: u8, keys: FabricKeys, clock: &Clock) -> Result<Self, LinkError> {
        let jwt = keys.coordinator_jwt(clock.now())?;
        let connectivity =
            Arc::new(watch::Sender::new(Connectivity { connected: true, since: Instant::now() }));
        let signer = keys.clone();
        let sign = move |nonce: Vec<u8>| {
            let signer = signer.clone();
            async move { signer.sign_nonce(&nonce).map_err(async_nats::AuthError::new) }
        };
        let events = connectivity.clone();
        let metrics = metrics::Fabric::default();
        let recorder = metrics.clone();
        let client = ConnectOptions::with_jwt(jwt, sign)
            .name("island-coordinator")
            .ping_interval(Duration::from_secs(5))
            .request_timeout(Some(Duration::from_secs(5)))
            .subscription_capacity(1 << 16)
            .reconnect_delay_callback(|attempt| Duration::from_millis((50 << attempt.min(5)) as u64))
            .event_callback(move |event| {
                record(&events, &recorder, &event);
                async {}
            })
            .connect(fabric_servers(url))
            .await
            .map_err(|source| LinkError::Connect { url: url.to_owned(), source })?;
        let jetstream = jetstream::new(client.clone());
        let link = Self { client, jetstream, keys, connectivity, metrics, replicas };
        match timeout(STREAM_TIMEOUT, link.ensure_stream()).await {
            Ok(Ok(())) => {}
            // Jobs run without the stream; [`Self::keep_stream`] goes on.
            Ok(Err(error)) => {
                tracing::warn!(error = %Chain(&error), "stream of job events not created; will retry");
            }
            Err(_) => tracing::warn!("stream of job events not created in time; will retry"),
        }
        let server = link.client.server_info();
        if !link.client.is_server_compatible(MIN_VERSION.0, MIN_VERSION.1, MIN_VERSION.2) {
            tracing::warn!(version = server.version, oldest = ?MIN_VERSION, "this nats-server has known security holes");
        }
        if server.max_payload < MAX_MESSAGE_BYTES {
            let (has, wanted) = (server.max_payload, MAX_MESSAGE_BYTES);
            tracing::warn!(
                max_payload = has,
                wanted,
                "large inputs and outputs will be lost: raise max_payload of nats-server"
            );
        }
        if is_refused(url, server.tls_required) {
            tracing::warn!(
                url,
                "inputs and outputs are sent to nats-server on another machine without encryption: give it a certificate, or keep the connection in a private network"
            );
        }
        Ok(link)
    }

    /// Warns if Islands refuse `public_url` because the server does not require TLS.
    pub fn check_public(&self, public_url: &str) {
        if is_refused(public_url, self.client.server_info().tls_required) {
            tracing::warn!(
                public_url,
                "Islands on other machines refuse this address: nats-server does not require TLS; see init --tls-certificate, or a reverse proxy that passes WebSockets on"
            );
        }
    }

    /// Creates the stream of job events if it does not exist, as after a restart of the server with an empty store.
    pub async fn ensure_stream(&self) -> Result<(), LinkError> {
        event_stream::ensure(&self.jetstream, self.replicas).await.map_err(LinkError::Stream)
    }

    /// Creates the stream of job events. Retries until it exists or `stop` is triggered.
    pub async fn keep_stream(self, stop: CancellationToken) {
        let created = async {
            let mut pause = FIRST_PAUSE;
            while let Err(error) = self.ensure_stream().await {
                tracing::debug!(error = %Chain(&error), "stream of job events not created; will retry");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(MAX_PAUSE);
            }
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = created => {}
        }
    }

    /// The state of the connection and its changes.
    pub fn connectivity(&self) -> watch::Receiver<Connectivity> {
        self.connectivity.subscribe()
    }

    /// Records that this process resumed after a gap.
    pub fn resumed(&self, now: Instant) {
        self.connectivity.send_modify(|connectivity| connectivity.since = now);
    }

    /// What it counts and measures.
    pub fn metrics(&self) -> &metrics::Fabric {
        &self.metrics
    }

    /// JetStream.
    pub fn jetstream(&self) -> &jetstream::Context {
        &self.jetstream
    }

    /// Subscribes to a subject.
    pub async fn subscribe(&self, subject: &str) -> Result<async_nats::Subscriber, LinkError> {
        self.client
            .subscribe(subject.to_owned())
            .await
            .map_err(|source| LinkError::Subscribe { subject: subject.to_owned(), source })
    }

    /// Sends a signed request and waits for the reply. The place in a trace is not signed: it has no effect but records.
    pub async fn request<A: DeserializeOwned>(
        &self,
        subject: String,
        message: &impl Serialize,
        timeout: Duration,
        trace: Option<TraceContext>,
    ) -> Result<A, RequestError> {
        let payload = encode(message);
        let mut headers = self.signed(&subject, &payload).map_err(RequestError::Sign)?;
        if let Some(trace) = trace {
            headers.insert(traces::HEADER, trace.to_string());
        }
        let request = Request::new().headers(headers).payload(payload).timeout(Some(timeout));
        fail_point!("fabric.request", island_daemon::failpoint::crash);
        let answer = self.client.send_request(subject, request).await.map_err(RequestError::Send)?;
        fail_point!("fabric.answered", island_daemon::failpoint::crash);
        serde_json::from_slice(&answer.payload).map_err(RequestError::Reply)
    }

    /// Publishes a signed message and flushes it.
    pub async fn publish(&self, subject: String, message: &impl Serialize) {
        let payload = encode(message);
        let Ok(headers) = self.signed(&subject, &payload) else { return };
        fail_point!("fabric.publish", island_daemon::failpoint::crash);
        let sent = self.client.publish_with_headers(subject.clone(), headers, payload).await;
        if let Err(error) = sent {
            tracing::warn!(subject, %error, "message not published");
        }
        let _ = self.client.flush().await;
    }

    /// Replies to a request of an Island if the reply subject is in the Island's own inbox; otherwise sends nothing.
    pub async fn reply_to_island(&self, host: HostId, reply: &str, message: &impl Serialize) {
        let own = reply.strip_prefix(&subjects::inbox_prefix(host)).is_some_and(|rest| rest.starts_with('.'));
        if !own {
            tracing::warn!(%host, "no reply sent: the reply subject is not in the Island's inbox");
            return;
        }
        fail_point!("fabric.reply", island_daemon::failpoint::crash);
        if let Err(error) = self.client.publish(reply.to_owned(), encode(message)).await {
            tracing::warn!(%host, %error, "reply not published");
        }
    }

    /// Replies to another coordinator.
    pub async fn reply_to_peer(&self, reply: &str, message: &impl Serialize) {
        if let Err(error) = self.client.publish(reply.to_owned(), encode(message)).await {
            tracing::warn!(%error, "reply to another coordinator not published");
        }
    }

    fn signed(&self, subject: &str, payload: &[u8]) -> Result<HeaderMap, nkeys::error::Error> {
        let mut headers = HeaderMap::new();
        headers.insert(SIGNATURE_HEADER, self.keys.sign(subject, payload)?);
        Ok(headers)
    }

    /// Flushes and closes the connection.
    pub async fn close(&self) {
        let _ = self.client.drain().await;
    }
}

/// Whether clients refuse a fabric address: it is on another machine, and its server does not require TLS. Of a list with a WebSocket they use no
/// server that does not state TLS itself.
fn is_refused(url: &str, requires_tls: bool) -> bool {
    let servers: Vec<ServerAddr> =
        fabric_servers(url).into_iter().filter_map(|server| server.parse().ok()).collect();
    let requires_tls = requires_tls && !servers.iter().any(ServerAddr::is_websocket);
    servers.iter().any(|server| {
        let is_encrypted = match server.scheme() {
            "tls" | "wss" => true,
            "ws" => false,
            _ => requires_tls,
        };
        !is_encrypted && !is_loopback(server.host())
    })
}

/// JSON of a message. Every message type serializes.
pub fn encode(message: &impl Serialize) -> Bytes {
    serde_json::to_vec(message).expect("fabric messages serialize").into()
}

fn record(connectivity: &watch::Sender<Connectivity>, metrics: &metrics::Fabric, event: &Event) {
    match event {
        Event::Connected => {
            connectivity.send_replace(Connectivity { connected: true, since: Instant::now() });
            metrics.connected();
            tracing::info!("fabric connected");
        }
        Event::Disconnected => {
            connectivity.send_modify(|connectivity| connectivity.connected = false);
            tracing::warn!("fabric disconnected");
        }
        Event::SlowConsumer(id) => {
            metrics.dropped();
            // A renewal may be among them.
            connectivity.send_modify(|connectivity| connectivity.since = Instant::now());
            tracing::debug!(subscription = id, "this client dropped a message");
        }
        other => tracing::debug!(event = %other, "fabric"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_islands_refuse_are_known() {
        assert!(is_refused("nats://nats.example.org:4222", false));
        assert!(is_refused("10.0.0.1", false));
        assert!(!is_refused("nats://nats.example.org:4222", true));
        // A server at this address has TLS, whatever the server of `fabric.url` requires.
        assert!(!is_refused("tls://nats.example.org:4222", false));
        assert!(!is_refused("nats://127.0.0.1:4222", false));
        assert!(!is_refused("wss://island.example.org/nats", false));
        assert!(is_refused("tls://n1.example.org,nats://n2.example.org", false));
        assert!(is_refused("ws://island.example.org/nats", true));
        assert!(is_refused("wss://island.example.org/nats,nats://nats.example.org", true));
        assert!(!is_refused("wss://island.example.org/nats,tls://nats.example.org", false));
    }
}
