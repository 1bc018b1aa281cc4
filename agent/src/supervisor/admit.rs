//! Measures what admission needs.

use std::collections::BTreeMap;

use island_protocol::{
    cargo::RuntimeType,
    demand::Need,
    fabric::{Assignment, Refusal, RefusalReason},
};

use super::Supervisor;
use crate::{
    attempt::state::AttemptState,
    disk::artifacts,
    job::job_space,
    memory::{
        admission::{self, Demand, Supply},
        eviction::Amount,
    },
    pool::ModelKey,
};

impl Supervisor {
    /// Whether an attempt fits in addition to the `jobs` that run here.
    pub(super) fn admit(&self, assignment: &Assignment, jobs: u32) -> Result<(), Refusal> {
        if let Some(refusal) = self.forbidden(assignment) {
            return Err(refusal);
        }
        let pool = &self.parts.pool;
        let model = ModelKey::of_attempt(assignment);
        // Nothing is measured for a job whose worker runs: it needs no more memory.
        let (memory, headroom_left) = if pool.has_place(&model, &assignment.cargo) {
            (Need::default(), Amount::default())
        } else {
            let left = self.without_promised(&model, pool.headroom_with_promises());
            (pool.demand(&model, &assignment.cargo, &left), left)
        };
        let demand = Demand {
            disk_mb: artifacts::missing_mb(&self.parts.cache, &assignment.cargo.artifacts)
                + (job_space(&assignment.cargo) >> 20),
            tier: (assignment.cargo.runtime_type == RuntimeType::Container)
                .then(|| assignment.cargo.sandbox_tier.unwrap_or_default()),
            // An invalid Cargo is rejected by the engine.
            egress: assignment.cargo.egress().unwrap_or_default(),
            ram_mb: memory.ram_mb,
            vram: memory.vram,
        };
        let binary = pool.runtimes().binary(&assignment.cargo);
        let supply = Supply {
            draining: !self.accepts_work(),
            has_runtime: binary.is_ok(),
            withheld: pool.runtimes().withheld_for(&assignment.cargo, &pool.cards()),
            jobs,
            max_jobs: self.parts.max_jobs,
            ram_mb: headroom_left.ram_mb,
            vram: headroom_left.vram,
            disk_mb: self.parts.cache.available_bytes() >> 20,
            sandbox: Some(self.capabilities().sandbox.level),
            allow_weak_sandbox: self.parts.allow_weak_sandbox,
            max_tier: pool.containers().max_tier,
            egress: pool.containers().egress.clone(),
        };
        admission::admit(&demand, &supply).map_err(|mut refusal| {
            if let (RefusalReason::NoRuntime, Err(reason)) = (refusal.reason, binary) {
                refusal.message = reason;
            }
            if let (RefusalReason::Draining, Some(reason)) = (refusal.reason, self.stance().verdict.reason())
            {
                reason.clone_into(&mut refusal.message);
            }
            refusal
        })
    }

    /// Returns why the owner does not allow this Cargo, if so.
    fn forbidden(&self, assignment: &Assignment) -> Option<Refusal> {
        let (rules, cargo) = (&self.parts.rules, &assignment.cargo);
        let message = if !rules.runtimes.is_empty() && !rules.runtimes.contains(&cargo.runtime_type) {
            format!("the owner's rules do not offer the engine {}", cargo.runtime_type)
        } else if rules.refused_cargos.contains(&cargo.slug) {
            format!("the owner's rules refuse {}", cargo.slug)
        } else if !rules.asking.is_met(cargo) {
            let (asked, paid) = (rules.asking.of(&cargo.slug), cargo.price_per_job);
            format!("the owner's minimum price for {} is {asked} credits, and it pays {paid}", cargo.slug)
        } else {
            return None;
        };
        Some(Refusal { reason: RefusalReason::NotAllowed, message })
    }

    /// What is left of the headroom without what is promised: to attempts whose worker is not started yet, except one of this model, and to
    /// each that allocates its own memory in a shared worker, where its use cannot be measured.
    fn without_promised(&self, model: &ModelKey, headroom: Amount) -> Amount {
        let mut models = BTreeMap::new();
        let mut own = Vec::new();
        for attempt in self.attempts().iter().filter(|attempt| attempt.state() <= AttemptState::Running) {
            let assignment = attempt.assignment();
            let other = ModelKey::of_attempt(assignment);
            if assignment.cargo.is_shared() {
                own.push((other, assignment.cargo.clone()));
            } else if attempt.state() <= AttemptState::Preparing {
                models.insert(other, assignment.cargo.clone());
            }
        }
        models.remove(model);
        // One after the other, so that each gets a GPU that those before it left free.
        own.into_iter().chain(models).fold(headroom, |left, (key, cargo)| {
            let need = self.parts.pool.demand(&key, &cargo, &left);
            left.less(&need.into())
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use tokio::sync::watch;

    use super::*;
    use crate::{
        attempt::handle::AttemptHandle,
        disk::spool::Spool,
        inventory::meter::Sample,
        memory::{eviction::Candidate, worker_placement::Machine},
        testing,
    };

    fn wasm(number: u128, ram_mb: u64) -> Assignment {
        let mut assignment = testing::assignment(number, 1);
        assignment.cargo.engine = serde_json::Value::Null;
        (assignment.cargo.runtime_type, assignment.cargo.required_ram_mb) = (RuntimeType::Wasm, ram_mb);
        assignment
    }

    #[tokio::test]
    async fn the_memory_of_an_idle_model_is_given_to_one_of_two_jobs() {
        let idle = Candidate {
            id: 7,
            jobs: 0,
            memory: Amount::ram(700),
            resident: Duration::from_mins(1),
            load: Duration::from_secs(1),
            demand: 1.0,
        };
        let free = Amount::ram(300);
        let machine = Machine {
            free: free.clone(),
            workers: vec![idle],
            busy: BTreeMap::new(),
            parts: std::collections::BTreeSet::new(),
        };
        let (first, second) = (wasm(1, 600), wasm(2, 600));
        let folder = tempfile::tempdir().expect("a folder");
        let (_samples, load) = watch::channel(Arc::new(Sample::default()));
        let (_, supervisor) = testing::supervisor(folder.path(), load).await;
        let left_for = |assignment: &Assignment| {
            let model = ModelKey::of_attempt(assignment);
            let left = supervisor.without_promised(&model, machine.headroom());
            (supervisor.parts.pool.demand(&model, &assignment.cargo, &left).ram_mb, left.ram_mb)
        };
        assert_eq!(left_for(&first), (600, 1000), "it fits once the model is unloaded");
        let choice = machine.choose(&first.cargo, &std::collections::BTreeSet::new()).expect("it fits");
        assert_eq!(choice.leaving, [7], "and then it is unloaded");
        let spool = Spool::open(folder.path(), first.key, 1).expect("a spool");
        supervisor.lock().insert(&AttemptHandle::new(first, spool, 0, 0));
        assert_eq!(left_for(&second), (600, 400), "the same memory is not given to another job");
    }
}
