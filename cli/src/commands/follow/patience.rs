//! Why a job is waiting: requested while its stream has nothing to print.

use std::time::Duration;

use island_coordinator_client::Client;
use island_protocol::{ids::JobId, job::JobStatus};
use tokio::time::Instant;

/// Time before the first question; a free Island takes a job sooner than that.
const FIRST: Duration = Duration::from_secs(2);
/// Longest time between two questions, which count against the account's requests per minute.
const MOST: Duration = Duration::from_secs(15);

/// Asks again and again, ever more rarely.
pub(super) struct Patience<'a> {
    client: &'a Client,
    job: JobId,
    at: Instant,
    pause: Duration,
}

impl<'a> Patience<'a> {
    pub(super) fn new(client: &'a Client, job: JobId) -> Self {
        Self { client, job, at: Instant::now() + FIRST, pause: FIRST }
    }

    /// Sleeps until the next question is due, and returns the reasons in words. `None` if the job does not wait, or
    /// the coordinator does not answer, which the stream reports. Safe to drop.
    pub(super) async fn reasons(&mut self) -> Option<String> {
        tokio::time::sleep_until(self.at).await;
        let job = self.client.job(self.job).await;
        self.pause = (self.pause * 2).min(MOST);
        self.at = Instant::now() + self.pause;
        let job = job.ok().filter(|job| matches!(job.status, JobStatus::Submitted | JobStatus::Pending))?;
        job.waiting_reason
    }
}
