//! A whole network in virtual time: coordinators, Islands, the database, the stream of events and clients, driven by a
//! seeded random generator that also injects faults.
//!
//! The job's machine, the fence, the observation of peers, the recovery of logs and the books are the real ones.
//! Everything around them is a model in this folder. A fault may strike between any two effects: a write is lost,
//! applied without a reply or slow; a message is lost, doubled or late; a process is killed or frozen; a link or the
//! database is cut off; the stream is emptied; a clock jumps. When the faults end, every job must end, too, and
//! [`World::check`] verifies what the network promises.
//!
//! `SEEDS=100000 SEED=1 cargo test --package island-coordinator --lib simulation` runs other seeds (`make sim`). A
//! failure names its seed.

mod client;
mod coordinator;
mod database;
mod island;
mod world;

use std::{env, fs, sync::Arc, time::Duration};

use super::machine::Terms;
use island_coordinator_domain::{
    catalogue::{Cargo, Catalogue},
    lease::LeaseTimeouts,
};
use world::{Defect, World};

/// Settings of all jobs.
pub(super) const TERMS: Terms = Terms {
    timeouts: LeaseTimeouts {
        lease: Duration::from_secs(30),
        run: Duration::from_secs(8),
        prepare: Duration::from_mins(2),
    },
    retries: 2,
};

/// Seeds without `SEEDS`.
const DEFAULT_SEEDS: u64 = 1_000;

const CARGO: &str = r#"
slug = "story"
name = "Story"
description = "Writes its words in order."
category = "llm"
runtime_type = "llmcpp"
price_per_job = 1
required_vram_mb = 0
required_ram_mb = 1

[limits]
timeout_s = 120
max_tokens = 1000

[engine]
simulated = true
continues = CONTINUES

[input_schema]
type = "object"
[output_schema]
type = "string"
[example]
input = {}
"#;

/// A catalogue with one Cargo that continues interrupted texts and one that does not.
pub(super) fn catalogue() -> Arc<Catalogue> {
    let folder = tempfile::tempdir().expect("a folder");
    for (slug, continues) in [("story", "true"), ("riddle", "false")] {
        let text = CARGO.replace("CONTINUES", continues).replace("\"story\"", &format!("\"{slug}\""));
        fs::write(folder.path().join(format!("{slug}.toml")), text).expect("write a Cargo");
    }
    Arc::new(Catalogue::load(folder.path(), false).expect("a valid catalogue"))
}

/// One of its Cargos.
pub(super) fn cargo(slug: &str) -> Option<Arc<Cargo>> {
    catalogue().get(slug).cloned()
}

fn setting(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is not a number")))
}

#[test]
fn every_promise_is_kept_under_faults() {
    let catalogue = catalogue();
    let (first, seeds) = (setting("SEED", 1), setting("SEEDS", DEFAULT_SEEDS));
    let mut totals = world::Totals::default();
    for seed in first..first + seeds {
        let mut world = World::new(seed, catalogue.clone(), None);
        world.run();
        if let Err(broken) = world.check() {
            panic!(
                "seed {seed}: {broken}\nreplay: SEED={seed} SEEDS=1 cargo test --locked --workspace --lib -- simulation::every --nocapture\n{}",
                world.trace()
            );
        }
        totals.add(&world.totals);
    }
    println!("{seeds} seeds: {totals:?}");
    // A simulation in which nothing happens proves nothing.
    assert!(totals.is_varied() || seeds < 50, "{totals:?}");
}

#[test]
fn a_seed_has_one_outcome() {
    let catalogue = catalogue();
    for seed in 1..20 {
        let run = || {
            let mut world = World::new(seed, catalogue.clone(), None);
            world.run();
            world.digest()
        };
        assert_eq!(run(), run(), "seed {seed}");
    }
}

/// Defects that this coordinator once had are found when they are put back. `RARE_SEEDS=100000` searches for those, too,
/// that take minutes to find.
#[test]
fn known_defects_are_found() {
    let catalogue = catalogue();
    let rare = setting("RARE_SEEDS", 0);
    let common = Defect::COMMON.map(|defect| (defect, DEFAULT_SEEDS));
    let all = common.into_iter().chain(Defect::RARE.map(|defect| (defect, rare)));
    for (defect, seeds) in all.filter(|(_, seeds)| *seeds > 0) {
        let found = (1..=seeds).find(|seed| {
            let mut world = World::new(*seed, catalogue.clone(), Some(defect));
            world.run();
            world.check().is_err()
        });
        println!("{defect:?} is found by seed {found:?}");
        assert!(found.is_some(), "{defect:?} is not found by {seeds} seeds");
    }
}
