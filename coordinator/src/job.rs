//! A job as the coordinator keeps it.

pub(crate) mod state;

use std::collections::BTreeMap;

use island_protocol::{
    api::{JobError, JobSummary, JobView},
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

    /// What `GET /jobs/:id` shows: an end as the row holds it, else the state in memory, which was read before the row.
    pub(crate) fn view(self, standing: Option<Standing>) -> JobView {
        let standing = standing.filter(|_| !self.status.is_final());
        let (status, started_at, waiting) = match standing {
            Some(standing) => (standing.status, standing.started_at, standing.waiting),
            None => (self.status, self.started_at, None),
        };
        let completed_at = self.end.as_ref().map(|end| end.completed_at);
        let duration_ms = duration_ms(self.started_at, completed_at);
        let (output, usage, error) = match self.end {
            Some(end) => (end.output, Some(end.usage), end.error),
            None => (None, None, None),
        };
        JobView {
            id: self.id,
            workload_slug: self.workload,
            status,
            input: self.input,
            output,
            usage,
            error,
            waiting: waiting.map(|reasons| reasons.into_iter().map(|(why, n)| (why, n.into())).collect()),
            created_at: self.created_at,
            started_at,
            completed_at,
            duration_ms,
        }
    }
}

/// State of an open job in its runner's memory. SQL holds part of it later and part of it never.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Never final.
    status: JobStatus,
    started_at: Option<Timestamp>,
    /// Number of Islands per reason, while nobody fits.
    waiting: Option<BTreeMap<String, u64>>,
}

impl Standing {
    /// Returns `None` if the job has ended.
    pub(crate) fn new(
        status: JobStatus,
        started_at: Option<Timestamp>,
        waiting: Option<BTreeMap<String, u64>>,
    ) -> Option<Self> {
        (!status.is_final()).then_some(Self { status, started_at, waiting })
    }

    /// Updates a row of a list, unless the job had ended when the row was read.
    pub(crate) fn overlay(&self, summary: &mut JobSummary) {
        if !summary.status.is_final() {
            summary.status = self.status;
        }
    }
}

/// Milliseconds of execution of an ended job; none if it never started.
pub(crate) fn duration_ms(started: Option<Timestamp>, completed: Option<Timestamp>) -> Option<u64> {
    let completed = completed?;
    let ran = started.map_or(0, |started| completed.unix_ms() - started.unix_ms());
    Some(u64::try_from(ran).unwrap_or(0))
}

#[cfg(test)]
pub(crate) mod tests {
    use uuid::Uuid;

    use super::*;

    /// A job that was just accepted.
    pub(crate) fn open() -> Job {
        let now = Timestamp::from_unix_ms(1_700_000_000_000);
        Job {
            id: JobId(Uuid::from_u128(1)),
            account: AccountId(Uuid::from_u128(2)),
            workload_id: 1,
            workload: "echo".parse().expect("slug"),
            status: JobStatus::Submitted,
            input: Map::new(),
            priority: 0,
            price: MicroCredits(1_000_000),
            max_tokens: None,
            attempt: 0,
            epoch: 0,
            host: None,
            only: None,
            head: Vec::new(),
            first_event: 1,
            deadline: now.plus_ms(60_000),
            created_at: now,
            started_at: None,
            end: None,
        }
    }

    #[test]
    fn an_open_job_is_shown_as_its_runner_has_it() {
        let reasons = BTreeMap::from([("no_slot".to_owned(), 2)]);
        let standing = Standing::new(JobStatus::Pending, None, Some(reasons));
        let view = open().view(standing);
        assert_eq!(view.status, JobStatus::Pending);
        assert_eq!(view.waiting.expect("reasons")["no_slot"], 2);
        assert_eq!(open().view(None).status, JobStatus::Submitted);
    }

    #[test]
    fn an_end_is_shown_as_the_row_has_it() {
        let job = open();
        let completed_at = job.created_at.plus_ms(5);
        let end = End { completed_at, output: Some(Value::from("x")), usage: Usage::default(), error: None };
        let ended = Job { status: JobStatus::Completed, end: Some(end), ..job };
        // It was read before the row, when the job was open.
        let standing = Standing::new(JobStatus::Running, Some(completed_at), None);
        let view = ended.clone().view(standing.clone());
        assert_eq!((view.status, view.completed_at), (JobStatus::Completed, Some(completed_at)));
        assert_eq!((view.output, view.started_at), (Some(Value::from("x")), None));
        let mut summary = JobSummary {
            id: ended.id,
            workload_slug: ended.workload,
            status: JobStatus::Completed,
            created_at: ended.created_at,
            completed_at: Some(completed_at),
            duration_ms: Some(0),
        };
        standing.expect("open").overlay(&mut summary);
        assert_eq!(summary.status, JobStatus::Completed);
    }
}
