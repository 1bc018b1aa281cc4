//! The states of publications, and to whom a slug belongs: pure.
//!
//! | from | approve | reject | withdraw | a newer version |
//! | --- | --- | --- | --- | --- |
//! | submitted | approved | rejected | withdrawn | replaced |
//! | approved | – | rejected | withdrawn | replaced once that is approved |
//!
//! A slug belongs to the account whose version of it was approved first, for ever: jobs, prices and clients name it.
//! Until one was approved, it belongs to the account whose version waits.

use island_protocol::ids::{AccountId, PublicationId};
use island_protocol_api::publication::PublicationState;

/// One version of a slug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    pub id: PublicationId,
    pub publisher: AccountId,
    pub state: PublicationState,
    /// Whether it was approved at some time.
    pub was_approved: bool,
}

/// What is done about a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Approve,
    Reject,
    Withdraw,
}

/// A version that goes from one state to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    pub id: PublicationId,
    pub from: PublicationState,
    pub to: PublicationState,
}

/// Why nothing is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("this slug belongs to a Cargo of another account")]
    Taken,
    #[error("this publication is {} already", .0.as_str())]
    Final(PublicationState),
}

impl Version {
    fn holds_slug(&self) -> bool {
        self.was_approved || matches!(self.state, PublicationState::Submitted | PublicationState::Approved)
    }

    fn to(&self, to: PublicationState) -> Change {
        Change { id: self.id, from: self.state, to }
    }
}

/// What changes when `publisher` submits another version of a slug that has these.
pub fn submit(versions: &[Version], publisher: AccountId) -> Result<Vec<Change>, Refused> {
    check_owner(versions, publisher)?;
    Ok(replaced(versions, PublicationState::Submitted))
}

/// What a step about one of the versions of a slug changes. A step that was taken before changes nothing.
pub fn next(versions: &[Version], version: &Version, step: Step) -> Result<Vec<Change>, Refused> {
    let to = match step {
        Step::Approve => PublicationState::Approved,
        Step::Reject => PublicationState::Rejected,
        Step::Withdraw => PublicationState::Withdrawn,
    };
    match version.state {
        state if state == to => return Ok(Vec::new()),
        PublicationState::Submitted | PublicationState::Approved => {}
        state => return Err(Refused::Final(state)),
    }
    let mut changes = Vec::new();
    if step == Step::Approve {
        check_owner(versions, version.publisher)?;
        changes = replaced(versions, PublicationState::Approved);
    }
    changes.push(version.to(to));
    Ok(changes)
}

fn check_owner(versions: &[Version], publisher: AccountId) -> Result<(), Refused> {
    let is_taken = versions.iter().any(|version| version.publisher != publisher && version.holds_slug());
    if is_taken { Err(Refused::Taken) } else { Ok(()) }
}

/// The versions in this state make way for a newer one.
fn replaced(versions: &[Version], state: PublicationState) -> Vec<Change> {
    let earlier = versions.iter().filter(|version| version.state == state);
    earlier.map(|version| version.to(PublicationState::Replaced)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    fn account(number: u8) -> AccountId {
        AccountId(Uuid::from_u128(number.into()))
    }

    fn version(number: u8, publisher: u8, state: PublicationState) -> Version {
        let was_approved = state == PublicationState::Approved;
        Version {
            id: PublicationId(Uuid::from_u128(number.into())),
            publisher: account(publisher),
            state,
            was_approved,
        }
    }

    #[test]
    fn transitions() {
        use PublicationState::{Approved, Rejected, Replaced, Submitted, Withdrawn};
        for (from, approve, reject, withdraw) in [
            (Submitted, Some(Approved), Some(Rejected), Some(Withdrawn)),
            (Approved, Some(Approved), Some(Rejected), Some(Withdrawn)),
            (Rejected, None, Some(Rejected), None),
            (Withdrawn, None, None, Some(Withdrawn)),
            (Replaced, None, None, None),
        ] {
            let steps = [(Step::Approve, approve), (Step::Reject, reject), (Step::Withdraw, withdraw)];
            for (step, wanted) in steps {
                let only = version(1, 1, from);
                let changes = next(&[only], &only, step);
                let wanted = wanted
                    .ok_or(Refused::Final(from))
                    .map(|to| if to == from { Vec::new() } else { vec![only.to(to)] });
                // A version that is served and approved again does not replace itself.
                assert_eq!(changes, wanted, "{from:?} {step:?}");
            }
        }
    }

    #[test]
    fn a_newer_version_waits_while_the_earlier_one_is_served() {
        use PublicationState::{Approved, Replaced, Submitted};
        let (served, waiting) = (version(1, 1, Approved), version(2, 1, Submitted));
        assert_eq!(submit(&[served], account(1)), Ok(vec![]));
        assert_eq!(submit(&[served, waiting], account(1)), Ok(vec![waiting.to(Replaced)]));
        assert_eq!(
            next(&[served, waiting], &waiting, Step::Approve),
            Ok(vec![served.to(Replaced), waiting.to(Approved)])
        );
        assert_eq!(submit(&[served], account(2)), Err(Refused::Taken));
        assert_eq!(submit(&[waiting], account(2)), Err(Refused::Taken));
    }

    /// One slug, with all its versions.
    #[derive(Debug, Default)]
    struct Slug(Vec<Version>);

    impl Slug {
        fn apply(&mut self, changes: &[Change]) {
            for change in changes {
                let found = self.0.iter_mut().find(|version| version.id == change.id);
                let version = found.expect("a version of the slug");
                assert_eq!(version.state, change.from);
                version.state = change.to;
                version.was_approved |= change.to == PublicationState::Approved;
            }
        }

        fn count(&self, state: PublicationState) -> usize {
            self.0.iter().filter(|version| version.state == state).count()
        }
    }

    proptest! {
        /// Whatever two accounts and an operator do: at most one version is served and one waits, only an operator's
        /// approval serves one, what has ended stays so, and a slug that was ever served keeps its account.
        #[test]
        fn a_slug_has_one_account_one_served_and_one_waiting_version(
            actions in prop::collection::vec((0_u8..4, 0_u8..8, 1_u8..3), 1..60),
        ) {
            let mut slug = Slug::default();
            let mut owner = None;
            for (action, which, publisher) in actions {
                let before = slug.0.clone();
                if action == 3 {
                    match submit(&slug.0, account(publisher)) {
                        Ok(changes) => {
                            slug.apply(&changes);
                            let number = slug.0.len() as u8;
                            slug.0.push(version(number, publisher, PublicationState::Submitted));
                        }
                        Err(_) => prop_assert!(before.iter().any(|version| version.publisher != account(publisher))),
                    }
                } else if let Some(version) = slug.0.get(usize::from(which)).copied() {
                    let step = [Step::Approve, Step::Reject, Step::Withdraw][usize::from(action)];
                    if let Ok(changes) = next(&slug.0, &version, step) {
                        slug.apply(&changes);
                        let again = slug.0[usize::from(which)];
                        prop_assert_eq!(next(&slug.0, &again, step), Ok(vec![]), "a repeated step");
                        prop_assert!(step == Step::Approve || changes.len() <= 1);
                    }
                }
                prop_assert!(slug.count(PublicationState::Approved) <= 1);
                prop_assert!(slug.count(PublicationState::Submitted) <= 1);
                for (old, new) in before.iter().zip(&slug.0) {
                    let was_open =
                        matches!(old.state, PublicationState::Submitted | PublicationState::Approved);
                    prop_assert!(was_open || old.state == new.state);
                }
                let served = slug.0.iter().filter(|version| version.was_approved);
                for version in served {
                    prop_assert_eq!(*owner.get_or_insert(version.publisher), version.publisher);
                }
            }
        }
    }
}
