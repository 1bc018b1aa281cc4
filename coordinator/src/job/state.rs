//! The transition table. Nothing else decides a job's status.

use island_protocol::job::JobStatus;

/// What can happen to a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trigger {
    /// Placement found nobody, or everybody refused.
    NoneFits,
    /// An attempt was given to an Island.
    Assign,
    /// The Island began to execute.
    Start,
    /// The attempt was lost or handed back, and another one is due.
    Requeue,
    /// The result is in.
    Complete,
    /// There will be no result.
    Fail,
    /// The consumer does not want it any more.
    Cancel,
    /// The deadline passed.
    Expire,
}

/// A transition that the table does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a job that is {from} cannot {trigger:?}")]
pub(crate) struct IllegalTransition {
    pub from: JobStatus,
    pub trigger: Trigger,
}

/// The status that follows `from` on `trigger`.
pub(crate) fn next(from: JobStatus, trigger: Trigger) -> Result<JobStatus, IllegalTransition> {
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
    fn every_open_state_can_be_left_for_good() {
        for from in JobStatus::ALL.into_iter().filter(|status| !status.is_final()) {
            assert_eq!(next(from, Trigger::Cancel), Ok(JobStatus::Cancelled));
            assert_eq!(next(from, Trigger::Expire), Ok(JobStatus::Timeout));
        }
    }

    #[test]
    fn only_work_completes() {
        let from: Vec<_> =
            JobStatus::ALL.into_iter().filter(|from| next(*from, Trigger::Complete).is_ok()).collect();
        assert_eq!(from, [JobStatus::Queued, JobStatus::Running]);
    }

    #[test]
    fn nothing_returns_to_submitted() {
        for from in JobStatus::ALL {
            for trigger in TRIGGERS {
                assert_ne!(next(from, trigger), Ok(JobStatus::Submitted));
            }
        }
    }
}
