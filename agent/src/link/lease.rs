//! Lease renewals: every few seconds, and immediately after registering.
//!
//! An answer confirms attempts from the moment at which its request was sent. Each coordinator answers for its own jobs, so answers are
//! collected until every attempt has one. Renewals without attempts are sent now and then, too: a connection on which no answer arrives is
//! replaced.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

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

/// Renews until stopped.
pub async fn run(fabric: Arc<Fabric>, supervisor: Arc<Supervisor>, stop: CancellationToken) {
    let (mut registered, mut news) = (fabric.registered(), supervisor.changes());
    let (mut missed, mut nobody_there) = (0, false);
    let (mut last, mut busy_since) = (Instant::now(), None);
    loop {
        // The first of several jobs has a fresh lease.
        busy_since = if supervisor.is_idle() { None } else { busy_since.or_else(|| Some(Instant::now())) };
        // A series of short jobs does not postpone the next renewal.
        let latest = last + IDLE_EVERY;
        let due = busy_since.map_or(latest, |since| latest.min(last.max(since) + fabric.renew_every()));
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            Ok(()) = registered.changed() => {}
            Ok(()) = news.changed() => continue,
            () = sleep_until(due) => {}
        }
        last = Instant::now();
        if !fabric.is_up() {
            continue;
        }
        let answer = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            answer = renew(&fabric, &supervisor) => answer,
        };
        match answer {
            Ok(()) => {
                missed = 0;
                // The coordinator was unreachable and may have lost its state.
                if std::mem::take(&mut nobody_there) {
                    fabric.request_registration();
                }
            }
            Err(FabricError::TimedOut) => missed += 1,
            Err(FabricError::NobodyThere) => (missed, nobody_there) = (0, true),
            Err(error) => tracing::debug!(%error, "leases were not renewed"),
        }
        if missed >= MISSED {
            missed = 0;
            fabric.report_unresponsive();
        }
    }
}

async fn renew(fabric: &Fabric, supervisor: &Supervisor) -> Result<(), FabricError> {
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
    fabric.request_all(LEASE, &message, TIMEOUT, take).await
}
