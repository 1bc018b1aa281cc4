//! A job of the Island's own, through the whole network: what `doctor` asks the running agent for.

use std::{sync::Arc, time::Duration};

use island_coordinator_client::{Client, ClientError};
use island_protocol::api::{CheckIsland, IslandCheck, check_claim};

use crate::{clock, identity::Identity};

/// The coordinator gives up after a minute.
const PATIENCE: Duration = Duration::from_secs(75);

/// Asks for checks.
#[derive(Debug)]
pub struct Checker {
    identity: Arc<Identity>,
    http: Client,
}

impl Checker {
    /// One that asks this coordinator in the Island's name.
    pub fn new(identity: Arc<Identity>, http: Client) -> Self {
        Self { identity, http }
    }

    /// Runs one; takes up to a minute.
    pub async fn check(&self) -> Result<IslandCheck, ClientError> {
        let (host_id, sent_at) = (self.identity.host_id(), clock::now());
        let signature = self.identity.sign_text(&check_claim(host_id, sent_at));
        self.http.check_island(&CheckIsland { host_id, sent_at, signature }).timeout(PATIENCE).await
    }
}
