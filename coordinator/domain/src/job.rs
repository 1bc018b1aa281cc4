//! A job as the coordinator stores it.

pub mod conversation;
pub mod input;
pub mod input_tokens;
pub mod state;

use std::collections::BTreeMap;

use island_protocol::{
    cargo::TokenPrices,
    credits::MicroCredits,
    event::{JobEvent, Numbered},
    ids::{AccountId, AttemptKey, BatchId, HostId, JobId, Slug},
    job::{FailureCode, JobStatus, Usage},
    time::Timestamp,
};
use island_protocol_api::{JobError, JobSummary, JobView, preferences::Preferences};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::placement::{Selection, reason};
use input::JobInput;

/// Code of a job that an operator cancelled. Only its consumer reads it: Islands are sent the one of any cancellation.
pub const CANCELLED_BY_OPERATOR: &str = "cancelled_by_operator";

/// Who cancels a job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Canceller {
    /// The consumer, or a client that left and alone could read the result.
    #[default]
    Consumer,
    /// An operator of the network.
    Operator {
        account: AccountId,
        /// For the audit log.
        reason: String,
    },
}

impl Canceller {
    /// Why the job did not complete, as its consumer reads it.
    pub fn error(&self) -> JobError {
        let (code, message) = match self {
            Self::Consumer => (FailureCode::CancelledByUser.as_str(), "cancelled by its consumer"),
            Self::Operator { .. } => (CANCELLED_BY_OPERATOR, "cancelled by an operator of the network"),
        };
        JobError { code: code.to_owned(), message: message.to_owned() }
    }
}

/// One row of the job table.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    pub id: JobId,
    pub account: AccountId,
    pub workload_id: i64,
    pub workload: Slug,
    pub status: JobStatus,
    pub input: JobInput,
    pub priority: u8,
    /// Held while the job is open: its maximum cost.
    pub price: MicroCredits,
    pub agreement: Agreement,
    /// Requested tokens, which determine the charged share of a cancelled job.
    pub max_tokens: Option<u64>,
    pub attempt: u32,
    pub epoch: u64,
    pub host: Option<HostId>,
    /// The Island that checks itself with this job: no other Island runs it, and nobody is paid.
    pub only: Option<HostId>,
    /// Events written before the current attempt.
    pub head: Vec<Numbered<JobEvent>>,
    pub first_event: u64,
    pub deadline: Timestamp,
    pub created_at: Timestamp,
    pub times: Times,
    /// What earlier attempts delivered of a reply that several Islands write.
    pub parts: Vec<Part>,
    /// Whether only the client that sent the request can read the result. After a restart of the coordinator the job is
    /// cancelled unless somebody reads it.
    pub cancel_unread: bool,
    /// Identifies the conversation that the job continues, see [`conversation`]. Not stored.
    pub conversation: Option<String>,
    /// The Island that ran the last job of the conversation. Not stored.
    pub holder: Option<HostId>,
    pub end: Option<End>,
}

/// When a job first got how far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Times {
    /// An Island accepted it. Stored when the job starts, moves or ends.
    pub placed_at: Option<Timestamp>,
    /// It began to execute.
    pub started_at: Option<Timestamp>,
    /// A part of its output arrived before its end. Stored when the job moves or ends.
    pub first_output_at: Option<Timestamp>,
}

/// What was agreed when a job was accepted, apart from the credits that are held.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Agreement {
    /// What a job of its Cargo costs apart from its tokens, if these have prices.
    #[serde(skip_serializing_if = "MicroCredits::is_zero")]
    pub base_price: MicroCredits,
    #[serde(flatten)]
    pub token_prices: TokenPrices,
    #[serde(skip_serializing_if = "Preferences::is_default")]
    pub preferences: Preferences,
    /// The batch whose maximum the job counts toward.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchId>,
    /// The version of the Cargo that the job runs; absent in jobs from before versions were recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

impl Agreement {
    /// Returns whether nothing was agreed on: one price, any Island, and no batch.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Work of one attempt, in tokens or another unit that is the same for all attempts of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The Island that did it.
    pub host: HostId,
    /// Units of it.
    pub units: u64,
}

/// The end of a job.
#[derive(Debug, Clone, PartialEq)]
pub struct End {
    pub completed_at: Timestamp,
    pub output: Option<Value>,
    pub usage: Usage,
    pub error: Option<JobError>,
}

impl Job {
    /// A job that was just accepted, of the Cargo with this number and slug. It may wait until `created_at`, and no longer.
    pub fn new(
        id: JobId,
        account: AccountId,
        (workload_id, workload): (i64, Slug),
        price: MicroCredits,
        created_at: Timestamp,
    ) -> Self {
        let status = JobStatus::Submitted;
        Self {
            id,
            account,
            workload_id,
            workload,
            status,
            input: JobInput::default(),
            priority: 0,
            price,
            agreement: Agreement::default(),
            max_tokens: None,
            attempt: 0,
            epoch: 0,
            host: None,
            only: None,
            head: vec![Numbered { n: 1, event: JobEvent::status(status.as_str()) }],
            first_event: 2,
            deadline: created_at,
            created_at,
            times: Times::default(),
            parts: Vec::new(),
            cancel_unread: false,
            conversation: None,
            holder: None,
            end: None,
        }
    }

    /// Key of the current attempt.
    pub fn key(&self) -> AttemptKey {
        AttemptKey { job_id: self.id, attempt: self.attempt, epoch: self.epoch }
    }

    /// Which Islands may run it, and which comes first.
    pub fn selection(&self) -> Selection {
        let preferences = self.agreement.preferences.clone();
        Selection { account: Some(self.account), preferences, holder: self.holder, continues_form: false }
    }

    /// The answer to `GET /jobs/:id`: an end as in the row, otherwise the state in memory, which must have been read
    /// before the row.
    pub fn view(self, live_state: Option<LiveState>) -> JobView {
        let live_state = live_state.filter(|_| !self.status.is_final());
        let (status, times, waiting) = match live_state {
            Some(live_state) => (live_state.status, live_state.times, live_state.waiting),
            None => (self.status, self.times, None),
        };
        let completed_at = self.end.as_ref().map(|end| end.completed_at);
        let duration_ms = duration_ms(self.times.started_at, completed_at);
        let (output, usage, error) = match self.end {
            Some(end) => (end.output, Some(end.usage), end.error),
            None => (None, None, None),
        };
        JobView {
            id: self.id,
            workload_slug: self.workload,
            status,
            input: self.input.fields(),
            output,
            usage,
            error,
            waiting_reason: waiting.as_ref().map(reason::in_words),
            waiting: waiting.map(|reasons| reasons.into_iter().map(|(why, n)| (why, n.into())).collect()),
            created_at: self.created_at,
            placed_at: times.placed_at,
            started_at: times.started_at,
            first_output_at: times.first_output_at,
            completed_at,
            duration_ms,
            data_deleted_at: None,
        }
    }
}

/// State of an open job in its runner's memory. SQL contains part of it later, and the reasons for waiting never.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveState {
    /// Never final.
    status: JobStatus,
    times: Times,
    /// Number of Islands for each reason, while no Island can take the job.
    waiting: Option<BTreeMap<String, u64>>,
}

impl LiveState {
    /// Returns `None` if the job has ended.
    pub fn new(status: JobStatus, times: Times, waiting: Option<BTreeMap<String, u64>>) -> Option<Self> {
        (!status.is_final()).then_some(Self { status, times, waiting })
    }

    /// Updates a row of a list, unless the job had ended when the row was read.
    pub fn overlay(&self, summary: &mut JobSummary) {
        if !summary.status.is_final() {
            summary.status = self.status;
        }
    }
}

/// Milliseconds from the start to the end of a job; 0 if it never started, `None` if it is open.
pub fn duration_ms(started: Option<Timestamp>, completed: Option<Timestamp>) -> Option<u64> {
    let completed = completed?;
    let ran = started.map_or(0, |started| completed.unix_ms() - started.unix_ms());
    Some(u64::try_from(ran).unwrap_or(0))
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::samples::job as open;

    #[test]
    fn an_open_job_is_shown_as_in_memory() {
        let reasons = BTreeMap::from([("no_slot".to_owned(), 2)]);
        let live_state = LiveState::new(JobStatus::Pending, Times::default(), Some(reasons));
        let view = open().view(live_state);
        assert_eq!(view.status, JobStatus::Pending);
        assert_eq!(view.waiting.expect("reasons")["no_slot"], 2);
        assert_eq!(open().view(None).status, JobStatus::Submitted);
    }

    #[test]
    fn an_end_is_shown_as_in_the_row() {
        let job = open();
        let completed_at = job.created_at.plus_ms(5);
        let end = End { completed_at, output: Some(Value::from("x")), usage: Usage::default(), error: None };
        let ended = Job { status: JobStatus::Completed, end: Some(end), ..job };
        // The state was read before the row, when the job was open.
        let times = Times { started_at: Some(completed_at), ..Times::default() };
        let live_state = LiveState::new(JobStatus::Running, times, None);
        let view = ended.clone().view(live_state.clone());
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
        live_state.expect("open").overlay(&mut summary);
        assert_eq!(summary.status, JobStatus::Completed);
    }
}
