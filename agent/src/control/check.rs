//! A test job through the whole network, requested by `doctor` from the running agent.

use std::{sync::Arc, time::Duration};

use island_coordinator_client::{Client, ClientError};
use island_protocol_api::{IslandCheck, claim::ClaimVerb, problem::Code};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::{clock, identity::Identity};

/// The coordinator gives up after a minute.
const PATIENCE: Duration = Duration::from_secs(75);

/// The result of a test job and its age.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Checked {
    /// The result.
    pub check: IslandCheck,
    /// Seconds since it ended; `None` if it ran for this request.
    pub ago_s: Option<u64>,
}

/// Requests test jobs, and keeps the last result.
#[derive(Debug)]
pub struct Checker {
    identity: Arc<Identity>,
    http: Client,
    last: Mutex<Option<(Instant, IslandCheck)>>,
}

impl Checker {
    /// Creates one that sends requests to this coordinator, signed with the Island's key.
    pub fn new(identity: Arc<Identity>, http: Client) -> Self {
        Self { identity, http, last: Mutex::default() }
    }

    /// Runs a test job, which takes up to a minute; returns the last result if the coordinator allows no other one yet.
    pub async fn check(&self) -> Result<Checked, ClientError> {
        // A job of its own changes nothing for anybody, so the account is left out.
        let request = self.identity.request(ClaimVerb::Check, None, clock::now());
        let asked = self.http.check_island(&request).timeout(PATIENCE).await;
        let mut last = self.last.lock();
        match (asked, &*last) {
            (Err(error), Some((ended, check))) if error.code() == Some(Code::RateLimited.as_str()) => {
                Ok(Checked { check: check.clone(), ago_s: Some(ended.elapsed().as_secs()) })
            }
            (Err(error), _) => Err(error),
            (Ok(check), _) => {
                *last = Some((Instant::now(), check.clone()));
                Ok(Checked { check, ago_s: None })
            }
        }
    }
}
