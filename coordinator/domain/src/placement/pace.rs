//! How fast Islands run real jobs, engine by engine, pure.
//!
//! A check measures one small language model, which predicts little about pictures or large models, and nothing about the device that another engine uses.
//! So the time of every completed job counts: compared with what other Islands need for the same Cargo, on whichever device the engine took. All
//! numbers are powers of two.

use std::collections::{BTreeMap, HashMap};

use island_protocol::{
    cargo::{CargoSpec, RuntimeType},
    ids::Slug,
};

/// Weight of the latest job in a mean.
const WEIGHT: f64 = 0.2;
/// Largest difference that one job counts: a hundred times faster or slower is due to the job rather than to the Island.
const MAX_DIFFERENCE: f64 = 6.0;
/// Cargos whose usual time is kept; one is forgotten for a new one.
const MAX_CARGOS: usize = 512;
/// Replies with fewer tokens measure the reading of the prompt.
const LEAST_TOKENS: u64 = 8;

/// A completed job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Time between the beginning of its execution and its end, as this coordinator saw them, milliseconds.
    pub ms: u64,
    /// Tokens that it wrote.
    pub tokens: u64,
}

/// How much faster than usual an Island runs the jobs of each engine; slower is below 0.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Paces(BTreeMap<RuntimeType, f64>);

impl Paces {
    /// Of this Cargo's engine; 0 until a job has been compared.
    pub fn of(&self, cargo: &CargoSpec) -> f64 {
        self.0.get(&cargo.runtime_type).copied().unwrap_or(0.0)
    }
}

/// What Cargos usually take.
#[derive(Debug, Default)]
pub(crate) struct UsualTimes(HashMap<Slug, f64>);

impl UsualTimes {
    /// Compares a job with those of other Islands before it. `expected` is the speed that is known of the Island otherwise, so that only the difference from
    /// that counts.
    pub(crate) fn observe(&mut self, paces: &mut Paces, cargo: &CargoSpec, run: Run, expected: f64) {
        let generates = super::generates_text(cargo);
        if generates && run.tokens < LEAST_TOKENS {
            return;
        }
        let units = if generates { run.tokens as f64 } else { 1.0 };
        let time = (run.ms.max(1) as f64 / units).log2() + expected;
        let Some(usual) = self.0.get_mut(&cargo.slug) else {
            self.insert(cargo.slug.clone(), time);
            return;
        };
        let faster = (*usual - time).clamp(-MAX_DIFFERENCE, MAX_DIFFERENCE);
        *usual -= WEIGHT * faster;
        let pace = paces.0.entry(cargo.runtime_type.clone()).or_default();
        *pace += WEIGHT * (faster - *pace);
    }

    fn insert(&mut self, cargo: Slug, time: f64) {
        if self.0.len() >= MAX_CARGOS
            && let Some(other) = self.0.keys().next().cloned()
        {
            self.0.remove(&other);
        }
        self.0.insert(cargo, time);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cargo(slug: &str, kind: &str) -> CargoSpec {
        let cargo = serde_json::json!({ "slug": slug, "runtime_type": kind });
        serde_json::from_value(cargo).expect("a Cargo")
    }

    /// Paces of two Islands that take these times in turn.
    fn paces(cargo: &CargoSpec, tokens: u64, times: [u64; 2], expected: [f64; 2]) -> [f64; 2] {
        let (mut usual, mut paces) = (UsualTimes::default(), [Paces::default(), Paces::default()]);
        for _ in 0..50 {
            for ((paces, ms), expected) in paces.iter_mut().zip(times).zip(expected) {
                usual.observe(paces, cargo, Run { ms, tokens }, expected);
            }
        }
        paces.map(|paces| paces.of(cargo))
    }

    #[test]
    fn the_faster_island_of_an_engine_is_known_after_some_jobs() {
        let [fast, slow] = paces(&cargo("pictures", "diffusers"), 0, [1000, 8000], [0.0; 2]);
        assert!(fast - slow > 2.0, "an eighth of the time: {fast}, {slow}");
        let other = cargo("texts", "onnx");
        let mut all = Paces::default();
        UsualTimes::default().observe(
            &mut all,
            &cargo("pictures", "diffusers"),
            Run { ms: 1, tokens: 0 },
            0.0,
        );
        assert_eq!(all.of(&other), 0.0, "engines are compared one by one");
    }

    #[test]
    fn what_a_check_predicted_does_not_count_twice() {
        // 64 and 8 tokens per second in the check, and the same relation in jobs.
        let [one, other] = paces(&cargo("chat", "llmcpp"), 100, [1000, 8000], [6.0, 3.0]);
        assert!(one.abs() < 0.1 && other.abs() < 0.1, "{one}, {other}");
        // The second one is as fast as the first with real models.
        let [one, other] = paces(&cargo("chat", "llmcpp"), 100, [1000, 1000], [6.0, 3.0]);
        assert!((6.0 + one - 3.0 - other).abs() < 1.5, "{one}, {other}");
    }

    #[test]
    fn short_replies_and_first_jobs_are_not_compared() {
        let (mut usual, mut paces) = (UsualTimes::default(), Paces::default());
        let chat = cargo("chat", "llmcpp");
        usual.observe(&mut paces, &chat, Run { ms: 10, tokens: LEAST_TOKENS - 1 }, 0.0);
        assert!(usual.0.is_empty());
        usual.observe(&mut paces, &chat, Run { ms: 10, tokens: 100 }, 0.0);
        assert_eq!(paces, Paces::default());
    }

    proptest! {
        #[test]
        fn paces_and_memory_are_bounded(runs in proptest::collection::vec((0_u16..2000, any::<u64>(), any::<u64>()), 0..800)) {
            let (mut usual, mut paces) = (UsualTimes::default(), Paces::default());
            for (number, ms, tokens) in runs {
                let cargo = cargo(&format!("c{number}"), if number % 2 == 0 { "llmcpp" } else { "wasm" });
                usual.observe(&mut paces, &cargo, Run { ms, tokens }, 0.0);
                prop_assert!(paces.of(&cargo).abs() <= MAX_DIFFERENCE);
            }
            prop_assert!(usual.0.len() <= MAX_CARGOS);
        }
    }
}
