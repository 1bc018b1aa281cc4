//! Which loaded models are unloaded.

use std::time::Duration;

use island_agent::memory::{
    eviction::{self, Amount, Candidate},
    model_demand::ModelDemand,
};
use tokio::time::Instant;

use super::{Arrival, Day};

/// Memory for models, megabytes: about a sixth of all of them.
const ROOM: u64 = 20_000;

#[derive(Debug, Clone, Copy)]
struct Loaded {
    model: usize,
    since: Duration,
    /// When its last job ends or ended.
    busy_until: Duration,
}

/// The cost of a day.
#[derive(Debug, Default, Clone, Copy)]
struct Cost {
    jobs: u64,
    loads: u64,
    loading: Duration,
    /// Jobs for which nothing could be unloaded; they run on other Islands.
    refused: u64,
}

/// What is known when memory must be freed.
#[derive(Debug)]
struct View<'a> {
    day: &'a Day,
    loaded: &'a [Loaded],
    model_demand: &'a ModelDemand<usize>,
    begin: Instant,
    now: Duration,
    missing: u64,
}

type Choice = fn(&View<'_>) -> Option<Vec<usize>>;

fn replay(day: &Day, choice: Choice) -> Cost {
    let (mut loaded, mut cost): (Vec<Loaded>, Cost) = (Vec::new(), Cost::default());
    let (mut model_demand, begin) = (ModelDemand::default(), Instant::now());
    for Arrival { at, model, takes } in day.arrivals.iter().copied() {
        cost.jobs += 1;
        model_demand.note(model, begin + at);
        let mut ready = at;
        if !loaded.iter().any(|one| one.model == model) {
            let taken: u64 = loaded.iter().map(|one| day.models[one.model].mb).sum();
            let missing = (taken + day.models[model].mb).saturating_sub(ROOM);
            let view = View { day, loaded: &loaded, model_demand: &model_demand, begin, now: at, missing };
            let give_way = if missing == 0 { Some(Vec::new()) } else { choice(&view) };
            let Some(give_way) = give_way else {
                cost.refused += 1;
                continue;
            };
            loaded.retain(|one| !give_way.contains(&one.model));
            let taken: u64 = loaded.iter().map(|one| day.models[one.model].mb).sum();
            assert!(taken + day.models[model].mb <= ROOM, "memory was freed for it");
            loaded.push(Loaded { model, since: at, busy_until: at });
            cost.loads += 1;
            cost.loading += day.models[model].load;
            ready += day.models[model].load;
        }
        let one = loaded.iter_mut().find(|one| one.model == model).expect("it is loaded");
        one.busy_until = one.busy_until.max(ready + takes);
    }
    cost
}

fn ours(view: &View<'_>) -> Option<Vec<usize>> {
    let View { day, loaded, model_demand, begin, now, missing } = *view;
    let candidate = |one: &Loaded| Candidate {
        id: one.model,
        jobs: u32::from(one.busy_until > now),
        memory: Amount::ram(day.models[one.model].mb),
        resident: now.saturating_sub(one.since),
        load: day.models[one.model].load,
        demand: model_demand.of(&one.model, begin + now),
    };
    let candidates: Vec<_> = loaded.iter().map(candidate).collect();
    eviction::choose(&candidates, &Amount::ram(missing))
}

fn least_recent(view: &View<'_>) -> Option<Vec<usize>> {
    let View { day, loaded, now, missing, .. } = *view;
    let mut idle: Vec<_> = loaded.iter().filter(|one| one.busy_until <= now).collect();
    idle.sort_by_key(|one| one.busy_until);
    let (mut freed, mut chosen) = (0, Vec::new());
    for one in idle {
        if freed >= missing {
            break;
        }
        freed += day.models[one.model].mb;
        chosen.push(one.model);
    }
    (freed >= missing).then_some(chosen)
}

#[test]
fn a_day_costs_less_loading_than_with_least_recently_used() {
    let (mut our, mut their) = (Cost::default(), Cost::default());
    for seed in 0..20 {
        let day = Day::made(seed);
        for (sum, choice) in [(&mut our, ours as Choice), (&mut their, least_recent)] {
            let cost = replay(&day, choice);
            sum.jobs += cost.jobs;
            sum.loads += cost.loads;
            sum.loading += cost.loading;
            sum.refused += cost.refused;
        }
    }
    let print = |name: &str, cost: Cost| {
        let Cost { jobs, loads, loading, refused } = cost;
        println!(
            "{name}: {jobs} jobs, {loads} loads, {} s of loading, {refused} sent elsewhere",
            loading.as_secs()
        );
    };
    print("Island", our);
    print("least recently used", their);
    assert!(our.loading * 20 <= their.loading * 19, "loading: {our:?} against {their:?}");
    assert!(our.loads * 20 <= their.loads * 19, "loads: {our:?} against {their:?}");
    assert!(our.refused <= their.refused, "sent elsewhere: {our:?} against {their:?}");
}
