//! The first attempt of a new job, chosen before the job is stored: where an Island is free, accepting a job and giving it away is one
//! transaction instead of two.

use std::sync::Arc;

use island_protocol::{
    cargo::CargoSpec,
    event::{JobEvent, Numbered},
    ids::{AttemptKey, HostId},
};
use tokio::time::Instant;

use crate::{
    fleet::{Fleet, Past},
    job::{
        Job,
        state::{self, Trigger},
    },
};

/// An Island claimed for the first attempt of a job. Dropped unused it is free again.
#[derive(Debug)]
pub(crate) struct First {
    host: HostId,
    key: AttemptKey,
    fleet: Option<Arc<Fleet>>,
}

impl First {
    /// Claims the best Island for a job that was never tried, and writes the attempt into it. `None`: nobody is free, or the job
    /// cannot be given away as it stands; it is to be stored as it is.
    pub(super) fn claim(fleet: &Arc<Fleet>, job: &mut Job, cargo: &CargoSpec) -> Option<Self> {
        let status = state::next(job.status, Trigger::Assign).ok()?;
        let key = AttemptKey { job_id: job.id, attempt: 1, epoch: job.epoch + 1 };
        let host = fleet.place(cargo, key, &Past::none(job.only), Instant::now()).ok()?;
        let n = job.head.len() as u64 + 1;
        job.head.push(Numbered { n, event: JobEvent::Status { state: status.as_str().to_owned() } });
        (job.attempt, job.epoch, job.host, job.status) = (key.attempt, key.epoch, Some(host), status);
        job.first_event = n + 1;
        Some(Self { host, key, fleet: Some(Arc::clone(fleet)) })
    }

    /// The Island and the fence, for whoever offers the attempt and sees to the claim from now on.
    pub(super) fn take(mut self) -> (HostId, AttemptKey) {
        self.fleet = None;
        (self.host, self.key)
    }
}

impl Drop for First {
    fn drop(&mut self) {
        if let Some(fleet) = self.fleet.take() {
            fleet.release(self.host, self.key);
        }
    }
}
