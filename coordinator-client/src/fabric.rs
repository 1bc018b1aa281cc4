//! Reads the message fabric with short-lived credentials from the coordinator.

use std::sync::Arc;

use async_nats::{ConnectOptions, Event, Subscriber};
use island_protocol::address::fabric_servers;
use island_protocol_api::WatchCredentials;
use nkeys::KeyPair;
use tokio::sync::mpsc;

use crate::{error::ClientError, transport};

/// A read-only connection to the fabric.
#[derive(Debug)]
pub struct FabricWatch {
    client: async_nats::Client,
    url: String,
    refusals: mpsc::UnboundedReceiver<String>,
    /// Subjects that the credentials permit.
    subjects: Vec<String>,
}

/// An action that the server does not allow with these credentials.
#[derive(Debug, thiserror::Error)]
#[error("the fabric refuses: {reason}; this key may read {}", subjects.join(", "))]
pub struct Refused {
    reason: String,
    subjects: Vec<String>,
}

impl FabricWatch {
    /// Connects with `credentials`; `url`, if given, replaces the address in them. The connection is encrypted unless the server is on this
    /// machine or `allow_plaintext` is set.
    pub async fn connect(
        credentials: &WatchCredentials,
        url: Option<&str>,
        allow_plaintext: bool,
    ) -> Result<Self, ClientError> {
        let url = url.unwrap_or(&credentials.nats_url).to_owned();
        let key = KeyPair::from_seed(&credentials.seed).map_err(|source| fabric_error(&url, source))?;
        let key = Arc::new(key);
        let options = ConnectOptions::with_jwt(credentials.user_jwt.clone(), move |nonce| {
            let key = Arc::clone(&key);
            async move { key.sign(&nonce).map_err(async_nats::AuthError::new) }
        });
        let (refused, refusals) = mpsc::unbounded_channel();
        let client = transport::fabric(options, &url, allow_plaintext)?
            .event_callback(move |event| {
                let refused = refused.clone();
                async move {
                    if let Event::ServerError(error) = event {
                        // The receiver may have been dropped.
                        let _ = refused.send(error.to_string());
                    }
                }
            })
            .name("island sail")
            .custom_inbox_prefix(credentials.inbox_prefix.clone())
            .connect(fabric_servers(&url))
            .await
            .map_err(|source| fabric_error(&url, source))?;
        Ok(Self { client, url, refusals, subjects: credentials.subjects.clone() })
    }

    /// Subscribes to `subject`. The server refuses what the credentials do not allow.
    pub async fn subscribe(&self, subject: &str) -> Result<Subscriber, ClientError> {
        let subscriber = self
            .client
            .subscribe(subject.to_owned())
            .await
            .map_err(|source| fabric_error(&self.url, source))?;
        self.client.flush().await.map_err(|source| fabric_error(&self.url, source))?;
        Ok(subscriber)
    }

    /// Resolves when the server refuses a subscription, which it reports separately from the subscription.
    pub async fn refused(&mut self) -> ClientError {
        match self.refusals.recv().await {
            Some(reason) => fabric_error(&self.url, Refused { reason, subjects: self.subjects.clone() }),
            // The callback lives as long as the client, which this value owns.
            None => std::future::pending().await,
        }
    }
}

fn fabric_error(url: &str, source: impl std::error::Error + Send + Sync + 'static) -> ClientError {
    ClientError::Fabric { url: url.to_owned(), source: Box::new(source) }
}
