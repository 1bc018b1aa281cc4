//! Connecting, registering, and connecting again when that is what it takes.

use std::{sync::Arc, time::Duration};

use async_nats::{Auth, Client, ConnectOptions, Event};
use island_coordinator_client::backoff::Backoff;
use island_daemon::{chain::Chain, notify, progress::Progress};
use island_protocol::{
    FABRIC_VERSION,
    fabric::{Register, Registered},
    subjects::{self, REGISTER},
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{
    credentials::Credentials,
    dispatch::{self, Dispatch},
};
use crate::{
    clock,
    fabric::{Fabric, FabricError},
    identity::Identity,
    supervisor::Supervisor,
};

/// Registering again now and then tells a coordinator that restarted what this Island has.
const REGISTER_EVERY: Duration = Duration::from_secs(30);
/// Time that handling one message may take before this process counts as deadlocked. Nothing in it waits for work to be done.
const DISPATCH_LIMIT: Duration = Duration::from_mins(1);
/// Time a registration gets.
const REGISTER_TIMEOUT: Duration = Duration::from_secs(3);

/// What a session needs.
#[derive(Debug)]
pub struct Session {
    /// The key that answers the server's challenge.
    pub identity: Arc<Identity>,
    /// The token it goes with.
    pub credentials: Arc<Credentials>,
    /// Everybody's handle, filled here.
    pub fabric: Arc<Fabric>,
    /// Takes what coordinators send.
    pub supervisor: Arc<Supervisor>,
    /// Fabric address that replaces the coordinator's.
    pub nats_url: Option<String>,
    /// What is said at registration.
    pub about: About,
    /// Steps of handling messages.
    pub progress: Progress,
}

/// What an Island says of itself at registration.
#[derive(Debug, Clone)]
pub struct About {
    /// Name its owner gave it.
    pub name: String,
    /// Where it is.
    pub region: Option<String>,
}

/// A session that could not go on.
#[derive(Debug, thiserror::Error)]
enum SessionError {
    #[error("connect to the fabric at {0}")]
    Connect(String, #[source] async_nats::ConnectError),
    #[error("subscribe to this Island's subjects")]
    Subscribe(#[source] async_nats::SubscribeError),
    #[error("the connection is closed")]
    Closed,
    #[error("connected, but no answer to lease renewals arrives")]
    Unresponsive,
}

/// Keeps a session until stopped.
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
        tracing::warn!(error = %Chain(&error), "lost the fabric");
        // Only new credentials help against a refusal, and they hurt nothing otherwise.
        if matches!(error, SessionError::Connect(..) | SessionError::Closed) {
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
        let client = self.connect(events).await?;
        let mut messages = dispatch::subscribe(&client, self.fabric.host_id()).await?;
        self.fabric.set_client(Some(client.clone()));
        *backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(4), u32::MAX);
        let dispatch =
            Dispatch { fabric: &self.fabric, supervisor: &self.supervisor, credentials: &self.credentials };
        let mut fresh_token = self.credentials.changed();
        fresh_token.mark_unchanged();
        let register = self.keep_registered();
        tokio::pin!(register);
        loop {
            tokio::select! {
                biased;
                event = inbox.recv() => match event {
                    Some(Event::Disconnected) => self.fabric.set_down(),
                    Some(Event::Connected) => self.fabric.request_registration(),
                    Some(Event::Closed) | None => return Err(SessionError::Closed),
                    Some(event) => tracing::warn!(%event, "the fabric says"),
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
                Ok(()) = fresh_token.changed() => {
                    // The server ends a connection whose token runs out; this way nothing waits for that.
                    if client.force_reconnect().await.is_err() {
                        return Err(SessionError::Closed);
                    }
                }
                () = &mut register => unreachable!("registering goes on for ever"),
            }
        }
    }

    async fn connect(&self, events: mpsc::UnboundedSender<Event>) -> Result<Client, SessionError> {
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
        let url = self.nats_url.clone().unwrap_or_else(|| self.credentials.current().nats_url);
        let host = self.fabric.host_id();
        options
            .name(format!("island-agent {host}"))
            .custom_inbox_prefix(subjects::inbox_prefix(host))
            .ping_interval(Duration::from_secs(10))
            .reconnect_delay_callback(reconnect_delay)
            .event_callback(move |event| {
                let _ = events.send(event);
                async {}
            })
            .connect(&url)
            .await
            .map_err(|error| SessionError::Connect(url, error))
    }

    /// Registers whenever asked to and now and then.
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
                Err(error) => {
                    tracing::info!(error = %Chain(&error), "not registered yet");
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
            sent_at: clock::now(),
        };
        let answer: Registered = self.fabric.request_signed(REGISTER, &message, REGISTER_TIMEOUT).await?;
        for key in &answer.drop {
            self.supervisor.forget(*key, "nobody waits for it");
        }
        let was_up = self.fabric.is_up();
        self.fabric.set_registered(&answer);
        if !was_up {
            tracing::info!("registered");
            notify::ready("registered with the coordinator");
        }
        Ok(())
    }
}

impl From<async_nats::SubscribeError> for SessionError {
    fn from(error: async_nats::SubscribeError) -> Self {
        Self::Subscribe(error)
    }
}

/// Quick at first, and never together with everybody else.
fn reconnect_delay(tries: usize) -> Duration {
    let grown = Duration::from_millis(50 << tries.min(6)).min(Duration::from_secs(2));
    if tries == 0 { Duration::ZERO } else { grown.mul_f64(0.5 + rand::random::<f64>() / 2.0) }
}
