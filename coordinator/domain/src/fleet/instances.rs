//! The runs of an Island's agent, pure: which one is the Island.
//!
//! Every run of an agent has its own id. One that was replaced by another and sends messages again is a second agent
//! with the same identity, such as that of a copied virtual machine.

use std::collections::VecDeque;

use island_protocol::ids::InstanceId;

use super::RegistrationKind;

/// Former runs that are known.
const MAX_FORMER: usize = 8;

/// The runs of one Island's agent.
#[derive(Debug, Clone, Default)]
pub(super) struct Instances {
    current: Option<InstanceId>,
    former: VecDeque<InstanceId>,
}

impl Instances {
    /// The run that gets assignments.
    pub(super) fn current(&self) -> Option<InstanceId> {
        self.current
    }

    /// Whether a message of this run is to be ignored: another run has replaced it.
    pub(super) fn is_former(&self, instance: InstanceId) -> bool {
        self.former.contains(&instance)
    }

    /// Records a registration. A former run becomes the current one again only if that is offline.
    pub(super) fn register(&mut self, instance: InstanceId, is_current_online: bool) -> RegistrationKind {
        match self.current {
            Some(current) if current == instance => return RegistrationKind::Repeated,
            Some(_) if self.is_former(instance) && is_current_online => return RegistrationKind::Duplicate,
            None => {
                self.current = Some(instance);
                return RegistrationKind::New;
            }
            Some(current) => {
                self.former.retain(|former| *former != instance);
                if self.former.len() == MAX_FORMER {
                    self.former.pop_front();
                }
                self.former.push_back(current);
            }
        }
        self.current = Some(instance);
        RegistrationKind::Restarted
    }

    /// Records a heartbeat. Returns `false` if it is to be ignored.
    pub(super) fn beat(&mut self, instance: InstanceId) -> bool {
        if self.is_former(instance) {
            return false;
        }
        // After a restart of the coordinator the heartbeat comes before the registration.
        self.current.get_or_insert(instance);
        true
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_former_run_returns_only_if_the_current_one_is_gone() {
        let [one, two] = [1, 2].map(|n| InstanceId(Uuid::from_u128(n)));
        let mut instances = Instances::default();
        assert_eq!(instances.register(one, false), RegistrationKind::New);
        assert_eq!(instances.register(two, true), RegistrationKind::Restarted);
        for _ in 0..3 {
            assert_eq!(instances.register(one, true), RegistrationKind::Duplicate);
            assert!(!instances.beat(one) && instances.beat(two));
            assert_eq!(instances.register(two, true), RegistrationKind::Repeated);
            assert_eq!(instances.current(), Some(two));
        }
        assert_eq!(instances.register(one, false), RegistrationKind::Restarted);
        assert!(instances.beat(one) && !instances.beat(two));
    }

    #[test]
    fn restarts_are_not_duplicates_and_former_runs_are_limited() {
        let mut instances = Instances::default();
        instances.register(InstanceId(Uuid::from_u128(0)), false);
        for n in 1..100 {
            let kind = instances.register(InstanceId(Uuid::from_u128(n)), true);
            assert_eq!(
                (kind, instances.former.len()),
                (RegistrationKind::Restarted, MAX_FORMER.min(n as usize))
            );
        }
    }
}
