//! Where an attempt stands on this Island. Pure.

/// The five states, in their only order; `Reported` may be reached from each, when nobody wants the attempt any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JobState {
    /// Promised to the coordinator.
    Accepted,
    /// Its files are fetched, its model is loaded.
    Preparing,
    /// It is in a worker.
    Running,
    /// Its end is known and on its way.
    Finishing,
    /// The coordinator has committed its end, or does not want it.
    Reported,
}

/// What happens to an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobStep {
    /// Its task began.
    Prepare,
    /// A worker took it.
    Start,
    /// Its worker died before the first output: it starts again.
    Retry,
    /// Its last event is written.
    End,
    /// Its end is committed.
    Commit,
    /// The coordinator does not want it any more.
    Drop,
}

impl JobState {
    /// The state after `step`; `None` if that cannot happen now.
    pub fn after(self, step: JobStep) -> Option<Self> {
        match (self, step) {
            (Self::Accepted, JobStep::Prepare) | (Self::Preparing | Self::Running, JobStep::Retry) => {
                Some(Self::Preparing)
            }
            // An attempt found in a worker after a restart of the agent skips the preparation.
            (Self::Accepted | Self::Preparing, JobStep::Start) => Some(Self::Running),
            (Self::Accepted | Self::Preparing | Self::Running, JobStep::End) => Some(Self::Finishing),
            (Self::Finishing, JobStep::Commit) => Some(Self::Reported),
            (state, JobStep::Drop) if state != Self::Reported => Some(Self::Reported),
            _ => None,
        }
    }

    /// The name in heartbeats.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accepted | Self::Preparing => "preparing",
            Self::Running => "running",
            Self::Finishing | Self::Reported => "ended",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STEPS: [JobStep; 6] =
        [JobStep::Prepare, JobStep::Start, JobStep::Retry, JobStep::End, JobStep::Commit, JobStep::Drop];

    proptest! {
        #[test]
        fn ends_once_and_stays_ended(steps in prop::collection::vec(0_usize..6, 0..40)) {
            let mut state = JobState::Accepted;
            let mut ends = 0;
            for step in steps.into_iter().map(|index| STEPS[index]) {
                let Some(next) = state.after(step) else { continue };
                prop_assert!(next >= state || step == JobStep::Retry);
                prop_assert!(state != JobState::Reported);
                ends += u32::from(next == JobState::Finishing);
                state = next;
            }
            prop_assert!(ends <= 1);
        }
    }
}
