//! The transition table. It alone decides a job's status.

use island_protocol::job::JobStatus;

/// An event that changes the status of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    /// No Island can take the job, or all of them refused.
    NoneFits,
    /// An attempt was assigned to an Island.
    Assign,
    /// The Island began to execute.
    Start,
    /// The attempt was lost or handed back, and another one is due.
    Requeue,
    /// The result was received.
    Complete,
    /// The job failed.
    Fail,
    /// The consumer cancelled the job.
    Cancel,
    /// The deadline passed.
    Expire,
}

/// A transition that is not in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a job in state {from} cannot change by {trigger:?}")]
pub struct IllegalTransition {
    pub from: JobStatus,
    pub trigger: Trigger,
}

/// The status that follows `from` on `trigger`.
pub fn next(from: JobStatus, trigger: Trigger) -> Result<JobStatus, IllegalTransition> {
    use JobStatus::{Cancelled, Completed, Failed, Pending, Queued, Running, Submitted, Timeout};
    if from.is_final() {
        return Err(IllegalTransition { from, trigger });
    }
    match (from, trigger) {
        (Submitted | Pending | Queued, Trigger::NoneFits) | (Queued | Running, Trigger::Requeue) => {
            Ok(Pending)
        }
        (Submitted | Pending | Queued, Trigger::Assign) => Ok(Queued),
        (Queued, Trigger::Start) => Ok(Running),
        (Queued | Running, Trigger::Complete) => Ok(Completed),
        (_, Trigger::Fail) => Ok(Failed),
        (_, Trigger::Cancel) => Ok(Cancelled),
        (_, Trigger::Expire) => Ok(Timeout),
        _ => Err(IllegalTransition { from, trigger }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TRIGGERS: [Trigger; 8] = [
        Trigger::NoneFits,
        Trigger::Assign,
        Trigger::Start,
        Trigger::Requeue,
        Trigger::Complete,
        Trigger::Fail,
        Trigger::Cancel,
        Trigger::Expire,
    ];

    fn any_trigger() -> impl Strategy<Value = Trigger> {
        (0..TRIGGERS.len()).prop_map(|index| TRIGGERS[index])
    }

    proptest! {
        #[test]
        fn a_job_ends_once(triggers in prop::collection::vec(any_trigger(), 0..40)) {
            let mut status = JobStatus::Submitted;
            let mut ends = 0;
            for trigger in triggers {
                let Ok(after) = next(status, trigger) else { continue };
                prop_assert!(!status.is_final());
                ends += u32::from(after.is_final());
                status = after;
            }
            prop_assert!(ends <= 1);
        }
    }

    #[test]
    fn every_open_job_can_be_cancelled_and_expire() {
        for &from in JobStatus::ALL.iter().filter(|status| !status.is_final()) {
            assert_eq!(next(from, Trigger::Cancel), Ok(JobStatus::Cancelled));
            assert_eq!(next(from, Trigger::Expire), Ok(JobStatus::Timeout));
        }
    }

    #[test]
    fn only_assigned_jobs_complete() {
        let from: Vec<_> =
            JobStatus::ALL.iter().copied().filter(|from| next(*from, Trigger::Complete).is_ok()).collect();
        assert_eq!(from, [JobStatus::Queued, JobStatus::Running]);
    }

    #[test]
    fn nothing_returns_to_submitted() {
        for &from in JobStatus::ALL {
            for trigger in TRIGGERS {
                assert_ne!(next(from, trigger), Ok(JobStatus::Submitted));
            }
        }
    }
}
