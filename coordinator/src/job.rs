//! A job as the coordinator keeps it.

pub(crate) mod state;

use island_protocol::{
    api::{JobError, JobView},
    credits::MicroCredits,
    event::{JobEvent, Numbered},
    ids::{AccountId, AttemptKey, HostId, JobId, Slug},
    job::{JobStatus, Usage},
    time::Timestamp,
};
use serde_json::{Map, Value};

/// One row of the job table.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Job {
    pub id: JobId,
    pub account: AccountId,
    pub workload_id: i64,
    pub workload: Slug,
    pub status: JobStatus,
    pub input: Map<String, Value>,
    pub priority: u8,
    /// What is held while the job lives, and charged when it completes.
    pub price: MicroCredits,
    /// Tokens asked for: what a cancelled job's share is measured against.
    pub max_tokens: Option<u64>,
    pub attempt: u32,
    pub epoch: u64,
    pub host: Option<HostId>,
    /// The Island that checks itself with this job: nobody else runs it, and nobody is paid.
    pub only: Option<HostId>,
    /// Events written before the current attempt.
    pub head: Vec<Numbered<JobEvent>>,
    pub first_event: u64,
    pub deadline: Timestamp,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub end: Option<End>,
}

/// What is known of a job once it has ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct End {
    pub completed_at: Timestamp,
    pub output: Option<Value>,
    pub usage: Usage,
    pub error: Option<JobError>,
}

impl Job {
    /// The fence of the current attempt.
    pub(crate) fn key(&self) -> AttemptKey {
        AttemptKey { job_id: self.id, attempt: self.attempt, epoch: self.epoch }
    }

    /// What `GET /jobs/:id` shows.
    pub(crate) fn view(self) -> JobView {
        let completed_at = self.end.as_ref().map(|end| end.completed_at);
        let duration_ms = duration_ms(self.started_at, completed_at);
        let (output, usage, error) = match self.end {
            Some(end) => (end.output, Some(end.usage), end.error),
            None => (None, None, None),
        };
        JobView {
            id: self.id,
            workload_slug: self.workload,
            status: self.status,
            input: self.input,
            output,
            usage,
            error,
            waiting: None,
            created_at: self.created_at,
            started_at: self.started_at,
            completed_at,
            duration_ms,
        }
    }
}

/// Milliseconds of execution of an ended job; none if it never started.
pub(crate) fn duration_ms(started: Option<Timestamp>, completed: Option<Timestamp>) -> Option<u64> {
    let completed = completed?;
    let ran = started.map_or(0, |started| completed.unix_ms() - started.unix_ms());
    Some(u64::try_from(ran).unwrap_or(0))
}
