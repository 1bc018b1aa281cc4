//! The states of an attempt on this Island. Pure.

/// The five states, in their only order. `Reported` can be reached from each if the coordinator drops the attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AttemptState {
    /// The coordinator received the acceptance.
    Accepted,
    /// Its files are downloaded, its model is loaded.
    Preparing,
    /// A worker runs it.
    Running,
    /// It has ended; the end is being reported.
    Finishing,
    /// The coordinator has committed its end, or dropped it.
    Reported,
}

/// A change of an attempt's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptStep {
    /// Its task began.
    Prepare,
    /// A worker accepted it.
    Start,
    /// Its worker died before the first output: it starts again.
    Retry,
    /// Its last event is written.
    End,
    /// The coordinator committed its end.
    Commit,
    /// The coordinator dropped it.
    Drop,
}

impl AttemptState {
    /// The state after `step`; `None` if that cannot happen now.
    pub fn after(self, step: AttemptStep) -> Option<Self> {
        match (self, step) {
            (Self::Accepted, AttemptStep::Prepare)
            | (Self::Preparing | Self::Running, AttemptStep::Retry) => Some(Self::Preparing),
            // An attempt found in a worker after a restart of the agent skips the preparation.
            (Self::Accepted | Self::Preparing, AttemptStep::Start) => Some(Self::Running),
            (Self::Accepted | Self::Preparing | Self::Running, AttemptStep::End) => Some(Self::Finishing),
            (Self::Finishing, AttemptStep::Commit) => Some(Self::Reported),
            (state, AttemptStep::Drop) if state != Self::Reported => Some(Self::Reported),
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

    const STEPS: [AttemptStep; 6] = [
        AttemptStep::Prepare,
        AttemptStep::Start,
        AttemptStep::Retry,
        AttemptStep::End,
        AttemptStep::Commit,
        AttemptStep::Drop,
    ];

    proptest! {
        #[test]
        fn ends_once_and_stays_ended(steps in prop::collection::vec(0_usize..6, 0..40)) {
            let mut state = AttemptState::Accepted;
            let mut ends = 0;
            for step in steps.into_iter().map(|index| STEPS[index]) {
                let Some(next) = state.after(step) else { continue };
                prop_assert!(next >= state || step == AttemptStep::Retry);
                prop_assert!(state != AttemptState::Reported);
                ends += u32::from(next == AttemptState::Finishing);
                state = next;
            }
            prop_assert!(ends <= 1);
        }
    }
}
