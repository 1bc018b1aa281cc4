//! Brings the fabric's list of revoked users up to date with the database.

use std::time::Duration;

use island_daemon::{chain::Chain, latest::Latest as _};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use island_coordinator_domain::clock::Clock;
use island_coordinator_fabric::{
    keys::FabricKeys,
    link::Link,
    revocation::{self as fabric, Revoked},
};
use island_coordinator_storage::{Store, revocation};

/// Time between two looks at the database: a part of the five seconds within which a revocation takes effect.
const INTERVAL: Duration = Duration::from_secs(1);

/// The task.
#[derive(Debug)]
pub struct Revocations {
    pub store: Store,
    pub link: Link,
    pub keys: FabricKeys,
    /// Address of the fabric.
    pub url: String,
    pub clock: Clock,
    pub stop: CancellationToken,
}

/// What the fabric was sent, and over which connection: a server that was replaced may know nothing of it.
#[derive(Debug, PartialEq, Eq)]
struct Sent {
    revoked: Vec<Revoked>,
    connected_since: Instant,
}

impl Revocations {
    /// Runs until `stop` is triggered.
    pub async fn run(self) {
        let Some(authority) = self.keys.authority() else {
            tracing::warn!(
                "the fabric's folder has no operator.seed or system.seed: credentials of Islands that leave and of \
                 revoked keys remain valid until they expire"
            );
            return;
        };
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut sent, mut is_failing) = (None, false);
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                _ = ticks.tick() => {}
            }
            let Some(due) = self.due().await else { continue };
            if sent.as_ref() == Some(&due) || (sent.is_none() && due.revoked.is_empty()) {
                continue;
            }
            let update = fabric::update(&self.url, &authority, &due.revoked, self.clock.latest());
            let done = tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                done = update => done,
            };
            match done {
                Ok(()) => {
                    sent = Some(due);
                    is_failing = false;
                }
                Err(error) if !is_failing => {
                    is_failing = true;
                    tracing::warn!(error = %Chain(&error), "revoked users not sent to the fabric; will retry");
                }
                Err(_) => {}
            }
        }
    }

    /// What the fabric should know, if that can be found out now.
    async fn due(&self) -> Option<Sent> {
        let connectivity = self.link.connectivity().latest();
        if !connectivity.connected {
            return None;
        }
        let revocations = revocation::list(self.store.reader()).await;
        let revocations = revocations
            .inspect_err(|error| tracing::warn!(error = %Chain(error), "revoked users not read; will retry"))
            .ok()?;
        let revoked = revocations
            .into_iter()
            .map(|revocation| Revoked { public_key: revocation.public_key, until: revocation.until });
        Some(Sent { revoked: revoked.collect(), connected_since: connectivity.since })
    }
}
