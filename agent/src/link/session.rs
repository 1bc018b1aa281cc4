//! Connects, registers, and reconnects.

use std::{sync::Arc, time::Duration};

use async_nats::{Auth, Client, ConnectOptions, Event, ServerError, connection::State};
use island_coordinator_client::{
    backoff::Backoff,
    transport::{self, PlainText},
};
use island_daemon::{chain::Chain, notify, progress::Progress};
use island_protocol::{
    FABRIC_VERSION,
    address::fabric_servers,
    fabric::{Register, Registered},
    subjects::{self, REGISTER},
    version::{VERSIONS, Versions, negotiate},
};
use island_runtimes_egress::Internet;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{
    credentials::Credentials,
    dispatch::{self, Dispatch},
};
use crate::{
    clock,
    fabric::{Fabric, FabricError},
    governor::Governor,
    identity::Identity,
    supervisor::Supervisor,
};

/// Time between registrations: a coordinator that restarted needs one.
const REGISTER_EVERY: Duration = Duration::from_secs(30);
/// Time that handling one message may take before this process counts as deadlocked. No handler waits for a job. Shorter than the heartbeat's
/// limit, because a handler that blocks a thread may stop the heartbeat, too, and the log names the task that is late first.
const DISPATCH_LIMIT: Duration = Duration::from_secs(20);
/// Time to wait for the answer to a registration.
const REGISTER_TIMEOUT: Duration = Duration::from_secs(3);
/// Mean time after which an Island without a connection asks the coordinator whether the fabric has another address. Renewals of the token alone
/// are most of an hour apart.
const ASK_EVERY: Duration = Duration::from_mins(1);

/// What a session is built from.
#[derive(Debug)]
pub struct Session {
    /// The key that signs the server's challenge.
    pub identity: Arc<Identity>,
    /// Supplies the token.
    pub credentials: Arc<Credentials>,
    /// Receives the connection for all other tasks.
    pub fabric: Arc<Fabric>,
    /// Stores orders of the owner's account.
    pub governor: Arc<Governor>,
    /// Handles what coordinators send.
    pub supervisor: Arc<Supervisor>,
    /// Fabric address that overrides the coordinator's.
    pub nats_url: Option<String>,
    /// Whether the fabric may be used without encryption on another machine.
    pub allow_plaintext: bool,
    /// Learns under which address the fabric's server sees this machine.
    pub internet: Arc<Internet>,
    /// Description of this Island for the registration.
    pub about: About,
    /// Progress of message handling, for the watchdog.
    pub progress: Progress,
}

/// How an Island describes itself when it registers.
#[derive(Debug, Clone)]
pub struct About {
    /// The name that its owner chose.
    pub name: String,
    /// The region that its owner set.
    pub region: Option<String>,
}

/// Why a session ended.
#[derive(Debug, thiserror::Error)]
enum SessionError {
    #[error("connect to the fabric")]
    PlainText(#[from] PlainText),
    #[error("connect to the fabric at {0}")]
    Connect(String, #[source] async_nats::ConnectError),
    #[error("connect with TLS to the fabric at {0} (allow_plaintext = true permits a server without TLS)")]
    ConnectEncrypted(String, #[source] async_nats::ConnectError),
    #[error("subscribe to this Island's subjects")]
    Subscribe(#[source] async_nats::SubscribeError),
    #[error("the connection is closed")]
    Closed,
    #[error("connected, but no answer to lease renewals arrives")]
    Unresponsive,
    #[error("the coordinator names another address of the fabric, {0}")]
    Moved(String),
}

/// Keeps a session open until stopped.
pub async fn run(session: Session, stop: CancellationToken) {
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(4), u32::MAX);
    loop {
        let lost = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            lost = session.keep(&mut backoff) => lost,
        };
        session.fabric.set_down();
        session.fabric.set_client(None);
        let Err(error) = lost;
        tracing::warn!(error = %Chain(&error), "lost the connection to the fabric");
        // A refused connection needs new credentials; in other cases they do no harm.
        if matches!(
            error,
            SessionError::Connect(..) | SessionError::ConnectEncrypted(..) | SessionError::Closed
        ) {
            session.credentials.renew_now();
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            _ = backoff.wait(None) => {}
        }
    }
    session.fabric.flush().await;
    session.fabric.set_down();
    session.fabric.set_client(None);
}

impl Session {
    async fn keep(&self, backoff: &mut Backoff) -> Result<std::convert::Infallible, SessionError> {
        let (events, mut inbox) = mpsc::unbounded_channel();
        let url = self.address();
        let client = self.connect(&url, events).await?;
        self.note_external(&client);
        let mut messages = dispatch::subscribe(&client, self.fabric.host_id()).await?;
        self.fabric.set_client(Some(client.clone()));
        *backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(4), u32::MAX);
        let dispatch = Dispatch {
            fabric: &self.fabric,
            governor: &self.governor,
            supervisor: &self.supervisor,
            credentials: &self.credentials,
            instance: self.fabric.instance(),
        };
        let mut fresh_token = self.credentials.changed();
        fresh_token.mark_unchanged();
        let register = self.keep_registered();
        let moved = self.moved(&url);
        let ask = self.ask_without_a_connection(&client);
        tokio::pin!(register, moved, ask);
        loop {
            tokio::select! {
                biased;
                event = inbox.recv() => match event {
                    Some(Event::Disconnected) => self.fabric.set_down(),
                    Some(Event::Connected) => {
                        self.note_external(&client);
                        self.fabric.request_registration();
                    }
                    Some(Event::Closed) | None => return Err(SessionError::Closed),
                    Some(event) if refuses_token(&event) => {
                        tracing::warn!(%event, "the fabric refuses this Island's token");
                        self.credentials.renew_now();
                    }
                    Some(event) => tracing::warn!(%event, "event of the fabric connection"),
                },
                message = messages.recv() => match message {
                    Some(message) => {
                        self.progress.next_within(DISPATCH_LIMIT);
                        dispatch.take(message).await;
                        self.progress.idle();
                    }
                    None => return Err(SessionError::Closed),
                },
                () = self.fabric.unresponsive() => return Err(SessionError::Unresponsive),
                address = &mut moved => return Err(SessionError::Moved(address)),
                Ok(()) = fresh_token.changed() => {
                    // The server closes a connection whose token expires; reconnecting first avoids that interruption. One that is lost
                    // is established with the new token anyway.
                    if client.connection_state() == State::Connected && client.force_reconnect().await.is_err() {
                        return Err(SessionError::Closed);
                    }
                }
                () = &mut register => unreachable!("registering never ends"),
                () = &mut ask => unreachable!("asking never ends"),
            }
        }
    }

    /// Where the fabric is: as the owner or the coordinator states.
    fn address(&self) -> String {
        self.nats_url.clone().unwrap_or_else(|| self.credentials.current().nats_url)
    }

    /// Waits until the coordinator names another address than `from` and the fabric can be used there; returns it. Until then the
    /// connection stays: the new address may be wrong, or closed by a firewall.
    async fn moved(&self, from: &str) -> String {
        let mut renewed = self.credentials.changed();
        loop {
            renewed.mark_unchanged();
            let address = self.address();
            if address != from {
                let (events, _unread) = mpsc::unbounded_channel();
                match self.connect(&address, events).await {
                    Ok(_) => return address,
                    Err(error) => tracing::warn!(
                        error = %Chain(&error),
                        "the coordinator names another address of the fabric, which cannot be used; staying at {from}"
                    ),
                }
            }
            if renewed.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Renews the credentials, which contain the address of the fabric, while there is no connection to it. At a random time, because all Islands
    /// lose a server at the same moment.
    async fn ask_without_a_connection(&self, client: &Client) {
        loop {
            tokio::time::sleep(ASK_EVERY.mul_f64(0.5 + rand::random::<f64>())).await;
            if client.connection_state() != State::Connected {
                self.credentials.renew_now();
            }
        }
    }

    async fn connect(&self, url: &str, events: mpsc::UnboundedSender<Event>) -> Result<Client, SessionError> {
        let (identity, credentials) = (Arc::clone(&self.identity), Arc::clone(&self.credentials));
        let options = ConnectOptions::with_auth_callback(move |nonce| {
            let (signature, jwt) = (identity.sign(&nonce), credentials.current().user_jwt);
            async move {
                let mut auth = Auth::new();
                auth.jwt = Some(jwt);
                auth.signature = Some(signature);
                Ok(auth)
            }
        });
        let host = self.fabric.host_id();
        // The coordinator's address as well: it must not make this Island show its token to the network in between.
        transport::fabric(options, url, self.allow_plaintext)?
            .name(format!("island-agent {host}"))
            .custom_inbox_prefix(subjects::inbox_prefix(host))
            .ping_interval(Duration::from_secs(10))
            .reconnect_delay_callback(reconnect_delay)
            .event_callback(move |event| {
                let _ = events.send(event);
                async {}
            })
            .connect(fabric_servers(url))
            .await
            .map_err(|error| {
                if transport::is_encrypted(url, self.allow_plaintext) {
                    SessionError::ConnectEncrypted(url.to_owned(), error)
                } else {
                    SessionError::Connect(url.to_owned(), error)
                }
            })
    }

    /// The server states the address from which this machine connected: behind a router that translates addresses, the router's.
    fn note_external(&self, client: &Client) {
        if let Ok(address) = client.server_info().client_ip.parse() {
            self.internet.set_external(address);
        }
    }

    /// Registers when requested, and periodically.
    async fn keep_registered(&self) {
        let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(2), u32::MAX);
        loop {
            match self.register().await {
                Ok(()) => {
                    backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(2), u32::MAX);
                    tokio::select! {
                        () = self.fabric.registration_requested() => {}
                        () = tokio::time::sleep(REGISTER_EVERY) => {}
                    }
                }
                // The other agent may stop, or the coordinator be upgraded.
                Err(error @ (FabricError::Duplicate | FabricError::Incompatible(_))) => {
                    self.fabric.set_refused(&error);
                    tracing::error!(error = %Chain(&error), "this Island gets no jobs");
                    tokio::time::sleep(REGISTER_EVERY).await;
                }
                Err(error @ FabricError::Refused(_)) => {
                    let was_refused = self.fabric.refusal().is_some();
                    self.fabric.set_refused(&error);
                    tracing::error!(error = %Chain(&error), "the coordinator refuses this Island's registration");
                    // It may be the time of the registration, which is right now.
                    clock::resynchronize();
                    if was_refused {
                        tokio::time::sleep(REGISTER_EVERY).await;
                    } else {
                        backoff.wait(None).await;
                    }
                }
                Err(error) => {
                    tracing::info!(error = %Chain(&error), "not registered yet");
                    // An older coordinator does not reply to a registration whose time is wrong. The clock may be right by now.
                    clock::resynchronize();
                    backoff.wait(None).await;
                }
            }
        }
    }

    async fn register(&self) -> Result<(), FabricError> {
        let message = Register {
            v: FABRIC_VERSION,
            host_id: self.fabric.host_id(),
            instance: self.fabric.instance(),
            name: self.about.name.clone(),
            region: self.about.region.clone(),
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            capabilities: self.supervisor.capabilities(),
            holding: self.supervisor.holding(),
            versions: Some(VERSIONS),
            reads_refusals: true,
            sent_at: clock::steady(),
        };
        let mut answer = None;
        // Each coordinator answers. One that has registered this Island is enough.
        let take = |one: Registered| {
            let is_last = one.refused.is_none();
            answer = Some(one);
            is_last
        };
        self.fabric.request_all(REGISTER, &message, REGISTER_TIMEOUT, take).await?;
        let answer = answer.ok_or(FabricError::TimedOut)?;
        if let Some(reason) = answer.refused {
            return Err(FabricError::Refused(reason));
        }
        let version = negotiate(VERSIONS, answer.versions.unwrap_or(Versions::only(answer.v)))?;
        if answer.duplicate {
            return Err(FabricError::Duplicate);
        }
        for key in &answer.drop {
            self.supervisor.forget(*key, "the coordinator dropped it");
        }
        let was_up = self.fabric.is_up();
        self.fabric.set_registered(&answer, version);
        if !was_up {
            tracing::info!(version, "registered");
            notify::ready("registered with the coordinator");
        }
        if let Some(reason) = answer.unread_heartbeat {
            let error = FabricError::UnreadHeartbeat(reason);
            tracing::error!(error = %Chain(&error), "this Island gets no jobs");
            self.fabric.set_refused(&error);
        }
        Ok(())
    }
}

impl From<async_nats::SubscribeError> for SessionError {
    fn from(error: async_nats::SubscribeError) -> Self {
        Self::Subscribe(error)
    }
}

/// Whether the server refuses this Island's token, as when it has expired. The client reports only the text of a refused
/// connection, and connects again with the token that is current then.
fn refuses_token(event: &Event) -> bool {
    let text = match event {
        Event::ServerError(ServerError::AuthorizationViolation) => return true,
        Event::ServerError(error) => error.to_string(),
        Event::ClientError(error) => error.to_string(),
        _ => return false,
    };
    let text = text.to_ascii_lowercase();
    ["authorization violation", "authentication expired", "authentication revoked"]
        .iter()
        .any(|refusal| text.contains(refusal))
}

/// Pause before an Island connects to the fabric again. It is random, up to a maximum that grows with the number of
/// tries: when a server ends, all its Islands notice at the same moment.
pub fn reconnect_delay(tries: usize) -> Duration {
    Duration::from_millis(250 << tries.min(4)).mul_f64(rand::random())
}

#[cfg(test)]
mod tests {
    use async_nats::ClientError;

    use super::*;

    #[test]
    fn a_token_that_is_refused_is_told_from_other_errors() {
        let (server, client) = (
            |text: &str| Event::ServerError(ServerError::Other(text.into())),
            |text: &str| Event::ClientError(ClientError::Other(text.into())),
        );
        let refusals = [
            Event::ServerError(ServerError::AuthorizationViolation),
            server("User Authentication Expired"),
            server("User Authentication Revoked"),
            client("authorization violation"),
        ];
        assert!(refusals.iter().all(refuses_token), "{refusals:?}");
        let others = [
            Event::Disconnected,
            server("Permissions Violation for Publish to \"a\""),
            client("IO error"),
            client("timed out"),
        ];
        assert!(!others.iter().any(refuses_token), "{others:?}");
    }

    #[test]
    fn islands_that_lose_a_server_together_return_one_after_another() {
        for (tries, most_ms) in [(0, 250), (1, 500), (4, 4_000), (100, 4_000)] {
            let mut tenths = [0; 10];
            for _ in 0..10_000 {
                let share = reconnect_delay(tries).as_secs_f64() * 1e3 / f64::from(most_ms);
                tenths[(share * 10.0) as usize] += 1;
            }
            // Each tenth of the time gets a tenth of them; 200 are more than six standard deviations.
            assert!(tenths.iter().all(|count| (800..=1_200).contains(count)), "{tenths:?}");
        }
    }
}
