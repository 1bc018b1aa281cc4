//! Places a new job before it is stored: if an Island is free, accepting the job and assigning it take one transaction
//! instead of two.

use std::sync::Arc;

use island_protocol::{
    cargo::CargoSpec,
    event::{JobEvent, Numbered},
    ids::{AttemptKey, HostId},
};
use tokio::time::Instant;

use super::placer::Queue;

use island_coordinator_domain::{
    fleet::{Candidates, Fleet, PlacementHistory},
    job::{
        Job,
        state::{self, Trigger},
    },
};

/// A claim on an Island for a job's first attempt. Released on drop.
#[derive(Debug)]
pub(crate) struct PlacementClaim {
    host: HostId,
    key: AttemptKey,
    fleet: Option<Arc<Fleet>>,
}

impl PlacementClaim {
    /// Claims the best Island for a job that has had no attempt, and adds the attempt to the job. Returns `None` and
    /// leaves the job as it is if no Island is free, others wait for one, or the job cannot be assigned.
    /// `among` are the Islands that could take it moments ago, if that is known.
    pub(super) fn claim(
        fleet: &Arc<Fleet>,
        queue: &Queue,
        job: &mut Job,
        cargo: &CargoSpec,
        among: Option<&Candidates>,
    ) -> Option<Self> {
        // An Island's check of itself does not wait.
        if job.only.is_none() && queue.precedes(&cargo.slug, job.priority) {
            return None;
        }
        let status = state::next(job.status, Trigger::Assign).ok()?;
        let key = AttemptKey { job_id: job.id, attempt: 1, epoch: job.epoch + 1 };
        let (history, now) = (PlacementHistory::new(job.only, job.selection()), Instant::now());
        let placed = match among {
            Some(among) => fleet.place_among(among.hosts(), cargo, key, &history, now),
            None => fleet.place(cargo, key, &history, now),
        };
        let host = placed.ok()?;
        let n = job.head.len() as u64 + 1;
        job.head.push(Numbered { n, event: JobEvent::status(status.as_str()) });
        (job.attempt, job.epoch, job.host, job.status) = (key.attempt, key.epoch, Some(host), status);
        job.first_event = n + 1;
        Some(Self { host, key, fleet: Some(Arc::clone(fleet)) })
    }

    /// Keeps the claim when this is dropped: it belongs to the attempt now.
    pub(super) fn keep(mut self) {
        self.fleet = None;
    }
}

impl Drop for PlacementClaim {
    fn drop(&mut self) {
        if let Some(fleet) = self.fleet.take() {
            fleet.release(self.host, self.key);
        }
    }
}
