//! Lease renewals: every few seconds, and immediately after registering.
//!
//! An answer confirms attempts from the moment at which its request was sent. Each coordinator answers for its own
//! jobs, so answers are collected until every attempt has one. No renewal waits for those of the last one: a
//! coordinator that was killed never answers, and the leases of another one's jobs must not expire meanwhile. Renewals
//! without attempts are sent now and then, too: a connection on which no answer arrives is replaced.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use island_protocol::{
    fabric::{LeaseRenewal, LeaseReply},
    ids::AttemptKey,
    subjects::LEASE,
};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::{
    clock,
    fabric::{Fabric, FabricError},
    supervisor::Supervisor,
};

/// Time between renewals if there is nothing to renew.
const IDLE_EVERY: Duration = Duration::from_secs(15);
/// Time to wait for an answer.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Number of consecutive missing answers after which the connection is replaced.
const MISSED: u32 = 3;
/// Maximum renewals whose answers are awaited: more than are sent in [`TIMEOUT`] with the shortest lease.
const MAX_PENDING: usize = 32;

/// A renewal and how it ends; with the time at which it was sent.
type Renewal = BoxFuture<'static, (Instant, Result<(), FabricError>)>;

/// Renews until stopped.
pub async fn run(fabric: Arc<Fabric>, supervisor: Arc<Supervisor>, stop: CancellationToken) {
    let (mut registered, mut news) = (fabric.registered(), supervisor.changes());
    let (mut last, mut busy_since) = (Instant::now(), None);
    let mut answers = Answers::since(last);
    let mut pending: FuturesUnordered<Renewal> = FuturesUnordered::new();
    loop {
        // The first of several jobs has a fresh lease.
        busy_since = if supervisor.is_idle() { None } else { busy_since.or_else(|| Some(Instant::now())) };
        // A series of short jobs does not postpone the next renewal.
        let latest = last + IDLE_EVERY;
        let due = busy_since.map_or(latest, |since| latest.min(last.max(since) + fabric.renew_every()));
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            Some((sent, result)) = pending.next() => {
                if let Err(error) = &result {
                    tracing::debug!(%error, "leases were not renewed");
                }
                match answers.take(sent, Instant::now(), &result) {
                    Some(Step::Register) => fabric.request_registration(),
                    Some(Step::Replace) => fabric.report_unresponsive(),
                    None => {}
                }
                continue;
            }
            Ok(()) = registered.changed() => {}
            Ok(()) = news.changed() => continue,
            () = sleep_until(due) => {}
        }
        last = Instant::now();
        if fabric.is_up() && pending.len() < MAX_PENDING {
            pending.push(Box::pin(renew(Arc::clone(&fabric), Arc::clone(&supervisor), last)));
        }
    }
}

/// What the end of a renewal calls for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// A coordinator answers again. It was unreachable and may have lost its state.
    Register,
    /// The connection is replaced.
    Replace,
}

/// The ends of the renewals so far. Several are awaited at one time, so one may end that was sent before the last that ended.
#[derive(Debug)]
struct Answers {
    missed: u32,
    /// A renewal that was sent before adds nothing if it has no answer: a later one had one, or it is missing for
    /// the same reason as the last one.
    counted: Instant,
    /// When there was nobody to answer.
    nobody_there: Option<Instant>,
}

impl Answers {
    fn since(now: Instant) -> Self {
        Self { missed: 0, counted: now, nobody_there: None }
    }

    /// Takes the end of a renewal that was sent at `sent`.
    fn take(&mut self, sent: Instant, now: Instant, result: &Result<(), FabricError>) -> Option<Step> {
        match result {
            Ok(()) => {
                (self.missed, self.counted) = (0, now);
                self.nobody_there.take_if(|at| sent >= *at).map(|_| Step::Register)
            }
            Err(FabricError::NobodyThere) => {
                (self.missed, self.counted, self.nobody_there) = (0, now, Some(now));
                None
            }
            Err(FabricError::TimedOut) if sent >= self.counted => {
                (self.missed, self.counted) = (self.missed + 1, now);
                let is_unresponsive = self.missed >= MISSED;
                if is_unresponsive {
                    self.missed = 0;
                }
                is_unresponsive.then_some(Step::Replace)
            }
            Err(_) => None,
        }
    }
}

async fn renew(
    fabric: Arc<Fabric>,
    supervisor: Arc<Supervisor>,
    sent: Instant,
) -> (Instant, Result<(), FabricError>) {
    let sent_ms = clock::boot_ms();
    let jobs = supervisor.leased();
    let mut unanswered: BTreeSet<AttemptKey> = jobs.iter().map(|job| job.key).collect();
    let message = LeaseRenewal {
        v: fabric.version(),
        host_id: fabric.host_id(),
        instance: fabric.instance(),
        jobs,
        sent_at: clock::steady(),
    };
    let take = |answer: LeaseReply| {
        for lease in answer.leases {
            unanswered.remove(&lease.key);
            supervisor.take_lease(&lease, sent_ms);
        }
        unanswered.is_empty()
    };
    (sent, fabric.request_all(LEASE, &message, TIMEOUT, take).await)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The steps after renewals that were sent and ended at these seconds.
    fn steps(ends: &[(u64, u64, Result<(), FabricError>)]) -> Vec<Option<Step>> {
        let start = Instant::now();
        let at = |second: u64| start + Duration::from_secs(second);
        let mut answers = Answers::since(start);
        ends.iter().map(|(sent, ended, result)| answers.take(at(*sent), at(*ended), result)).collect()
    }

    #[test]
    fn a_connection_without_answers_is_replaced_however_many_renewals_overlap() {
        let missing = |sent: u64| (sent, sent + 3, Err(FabricError::TimedOut));
        let alone = [missing(0), missing(3), missing(6), missing(9)];
        assert_eq!(steps(&alone), [None, None, Some(Step::Replace), None]);
        let overlapping: Vec<_> = (0..=9).map(missing).collect();
        let replaced: Vec<_> =
            steps(&overlapping).iter().enumerate().filter_map(|(sent, step)| step.map(|_| sent)).collect();
        assert_eq!(replaced, [6], "the third that was sent after the one before was missing");
    }

    #[test]
    fn an_answer_counts_for_the_renewals_before_it_too() {
        let missing = |sent: u64| (sent, sent + 3, Err(FabricError::TimedOut));
        let ends = [missing(0), missing(3), (8, 8, Ok(())), missing(6), missing(9), missing(12)];
        assert_eq!(steps(&ends), [None; 6]);
    }

    #[test]
    fn an_island_registers_when_a_coordinator_answers_what_was_sent_after_nobody_was_there() {
        let nobody = |sent: u64| (sent, sent, Err(FabricError::NobodyThere));
        // The second one had an answer of one of two coordinators, before both had gone.
        let ends = [nobody(2), (1, 4, Ok(())), (5, 5, Ok(())), (6, 6, Ok(()))];
        assert_eq!(steps(&ends), [None, None, Some(Step::Register), None]);
    }
}
