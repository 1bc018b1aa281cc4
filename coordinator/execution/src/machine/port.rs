//! What a machine takes and returns.

use std::{collections::BTreeMap, sync::Arc};

use island_protocol::{
    cargo::CargoSpec,
    credits::MicroCredits,
    event::{JobEvent, Numbered},
    fabric::{Assignment, Output, OutputReply, RefusalReason},
    ids::{AttemptKey, HostId},
    job::{FailureCode, JobStatus},
    time::Timestamp,
};
use tokio::time::Instant;

use super::Hosts;
use island_coordinator_domain::{
    fleet::{Conduct, PlacementHistory},
    job::{Canceller, End, Job, Part, Times, input::JobInput},
    metrics::Loss,
    placement::pace::Run,
};
use island_coordinator_fabric::link::Connectivity;

/// The time of an input.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    /// Decides about leases and deadlines.
    pub instant: Instant,
    /// Is written into rows and messages. It may jump.
    pub wall: Timestamp,
}

/// What happens to a job.
#[derive(Debug)]
pub(crate) enum Input {
    /// The machine is new: always the first input.
    Begin,
    /// Islands were claimed for the attempt.
    Placed { hosts: Hosts, key: AttemptKey },
    /// No Island can take the job, with the number of Islands for each reason.
    NoIsland { reasons: BTreeMap<String, u64> },
    /// The result of [`Effect::Offer`].
    Answered { key: AttemptKey, answer: OfferAnswer },
    /// An Island sent events. `reply` is the subject that waits for the commit of the end.
    Output { host: HostId, output: Output, reply: Option<String> },
    /// The Island reported that the attempt executes.
    Started { host: HostId, key: AttemptKey },
    /// The Island's agent restarted and does not have this attempt.
    Lost { key: AttemptKey },
    /// The job is cancelled.
    Cancel(Canceller),
    /// SQL names another coordinator, or the job has ended there.
    Moved,
    /// Time has passed. Renewals that arrived before `applied_until` have been applied. `has_readers` is whether a
    /// consumer follows the job, here or at another coordinator.
    Tick { connectivity: Connectivity, applied_until: Instant, has_readers: bool },
    /// The result of [`Effect::Write`].
    Written(Written),
}

/// An Island's answer to an offer.
#[derive(Debug)]
pub(crate) enum OfferAnswer {
    Accepted,
    Refused {
        reason: Option<RefusalReason>,
        message: String,
    },
    /// No reply. The Island may have the attempt all the same.
    Silent,
}

/// Result of a write.
#[derive(Debug)]
pub(crate) enum Written {
    /// It is committed. `earned` is what each Island's owner got.
    Committed { earned: Vec<(HostId, MicroCredits)> },
    /// Another coordinator executes the job; nothing was written.
    Superseded,
    /// The database does not accept these values; nothing was written.
    Rejected,
}

/// What the driver has to do.
#[derive(Debug)]
pub(crate) enum Effect {
    /// Commits this, and returns the result as the next input.
    Write(Write),
    /// Sends this to the Island, for the run of its agent that is known, and returns its answer as an input.
    Offer { host: HostId, assignment: Box<Assignment<JobInput>> },
    /// An Island has accepted the job for the first time.
    Accepted,
    /// Stops an attempt.
    SendCancel { host: HostId, key: AttemptKey, code: FailureCode },
    /// Replies to an Island's output.
    Reply { host: HostId, subject: String, reply: OutputReply },
    /// Requests an Island for the attempt.
    Place { key: AttemptKey, cargo: Arc<CargoSpec>, history: PlacementHistory },
    /// Releases the claim of an attempt.
    Release { host: HostId, key: AttemptKey },
    /// Appends the committed end to the log, where its readers see it.
    ShowEnd(Numbered<JobEvent>),
    /// Records that an attempt executes; may be delayed.
    RecordStart { key: AttemptKey, times: Times },
    /// Adds to the karma that the fleet knows of an Island.
    CreditKarma { host: HostId, ms: i64 },
    /// Compares how long the job executed, with the tokens that it wrote, with other jobs of its Cargo.
    Compare { host: HostId, run: Run },
    /// Counts how an Island treated an attempt.
    Observe { host: HostId, conduct: Conduct },
    /// An Island reports that a file of the Cargo has another hash than its entry states.
    ReportFile { host: HostId, message: String },
    /// Counts an attempt that was taken away from its Island.
    CountLoss(Loss),
}

/// A change of the job's row: a compare-and-set on the coordinator and the current attempt.
#[derive(Debug, Clone)]
pub(crate) enum Write {
    Attempt(AttemptWrite),
    End(Box<EndWrite>),
}

/// The next attempt, or the same one with another status.
#[derive(Debug, Clone)]
pub(crate) struct AttemptWrite {
    pub from: AttemptKey,
    pub to: AttemptKey,
    pub status: JobStatus,
    pub host: Option<HostId>,
    /// All events so far and those that the write adds.
    pub head: Vec<Numbered<JobEvent>>,
    /// What earlier attempts delivered.
    pub parts: Vec<Part>,
    /// How far the job got.
    pub times: Times,
}

/// The end of the job.
#[derive(Debug, Clone)]
pub(crate) struct EndWrite {
    /// The job with its current attempt.
    pub job: Job,
    pub status: JobStatus,
    pub end: End,
    /// What each Island earns.
    pub shares: Vec<(HostId, MicroCredits)>,
    /// Karma for the Island that completed it, in milliseconds of computation.
    pub karma: Option<(HostId, i64)>,
    /// Who cancelled it. What an operator did is recorded with the end.
    pub canceller: Option<Canceller>,
    /// All events, including the last.
    pub events: Vec<Numbered<JobEvent>>,
}

impl EndWrite {
    /// Sets what is charged in every place that shows it: an Island whose owner is unknown is not paid, and nobody pays
    /// for it.
    pub(crate) fn set_charged(&mut self, charged: MicroCredits) {
        self.end.usage.credits_used = Some(charged);
        if let Some(Numbered { event: JobEvent::Done { usage, .. }, .. }) = self.events.last_mut() {
            usage.credits_used = Some(charged);
        }
    }
}
