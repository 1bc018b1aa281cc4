//! What the operators of the network want owners to know, requested at intervals.

use std::{collections::BTreeSet, time::Duration};

use island_coordinator_client::{Client, ClientError};
use island_daemon::chain::Chain;
use island_protocol::ids::NoticeId;
use island_protocol_api::network::NetworkNotices;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::fabric::printable;

const INTERVAL: Duration = Duration::from_mins(15);
/// The first request is sent within this time of the start.
const FIRST: Duration = Duration::from_secs(10);

/// The latest notices.
#[derive(Debug)]
pub struct Notices {
    client: Client,
    latest: Mutex<NetworkNotices>,
    /// Those that are in the log already.
    logged: Mutex<BTreeSet<NoticeId>>,
}

impl Notices {
    /// Creates one that requests notices from `client`.
    pub fn new(client: Client) -> Self {
        Self { client, latest: Mutex::default(), logged: Mutex::default() }
    }

    /// The latest texts, safe to print: maintenance first, then notices, newest first.
    pub fn texts(&self) -> Vec<String> {
        let latest = self.latest.lock().clone();
        let maintenance = latest.maintenance.map(|maintenance| {
            format!("no new jobs while the network is maintained: {}", maintenance.reason)
        });
        let texts = maintenance.into_iter().chain(latest.notices.into_iter().map(|notice| notice.text));
        texts.map(|text| printable(&text)).collect()
    }

    /// Requests notices until stopped.
    pub async fn run(&self, stop: CancellationToken) {
        // With jitter, so that Islands that started together do not send requests together.
        let mut wait = FIRST.mul_f64(rand::random::<f64>());
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
            }
            wait = INTERVAL.mul_f64(0.9 + rand::random::<f64>() * 0.2);
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                done = self.request() => if let Err(error) = done {
                    // Coordinators of earlier versions have none.
                    tracing::debug!(error = %Chain(&error), "notices could not be obtained");
                }
            }
        }
    }

    async fn request(&self) -> Result<(), ClientError> {
        let latest = self.client.network_notices().await?;
        let mut logged = self.logged.lock();
        logged.retain(|id| latest.notices.iter().any(|notice| notice.id == *id));
        for notice in &latest.notices {
            if logged.insert(notice.id) {
                tracing::info!(notice = printable(&notice.text), "notice of the network's operators");
            }
        }
        drop(logged);
        *self.latest.lock() = latest;
        Ok(())
    }
}
