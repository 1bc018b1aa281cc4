//! Which files to fetch before anybody asks for them, and which to give up for them. Pure.

use std::time::Duration;

/// How far ahead earnings are counted.
pub const HORIZON: Duration = Duration::from_hours(6);
/// Time that a file keeps its place after it was last used or fetched, whatever else is wanted.
pub const MIN_RESIDENCY: Duration = Duration::from_hours(1);
/// So many times as much a byte of the new must promise than one of the old: demand swings, and every exchange costs a download.
const CLEARLY_BETTER: f64 = 2.0;

/// A Cargo that is not wholly on disk.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FetchOption {
    /// Bytes still to be fetched.
    pub bytes: u64,
    /// Credits that it promises within the horizon.
    pub worth: f64,
}

/// A file on disk.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Held {
    /// Its length.
    pub bytes: u64,
    /// Credits that it promises within the horizon, by itself.
    pub worth: f64,
    /// Since it was last used or fetched.
    pub rest: Duration,
}

/// What to do, by place in the lists that were given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Wishes to fetch, the most promising first.
    pub fetch: Vec<usize>,
    /// Files to remove before.
    pub remove: Vec<usize>,
}

/// Credits within the horizon: jobs come at `jobs_per_hour` and none while `bytes` are being fetched.
pub fn worth(jobs_per_hour: f64, credits_per_job: f64, bytes: u64, bytes_per_second: f64) -> f64 {
    let fetching = bytes as f64 / bytes_per_second.max(1.0);
    jobs_per_hour * credits_per_job * (HORIZON.as_secs_f64() - fetching).max(0.0) / 3600.0
}

/// Chooses within `room` bytes and at most `budget` bytes to fetch.
pub fn plan(options: &[FetchOption], held: &[Held], room: u64, budget: u64) -> Plan {
    let mut order: Vec<usize> = (0..options.len()).filter(|&at| options[at].worth > 0.0).collect();
    order.sort_by(|&a, &b| density(options[b]).total_cmp(&density(options[a])));
    let mut spare: Vec<usize> = (0..held.len()).filter(|&at| held[at].rest >= MIN_RESIDENCY).collect();
    spare.sort_by(|&a, &b| value(held[a]).total_cmp(&value(held[b])));
    let (mut plan, mut room, mut budget) = (Plan::default(), room, budget);
    for at in order {
        let option = options[at];
        if option.bytes > budget {
            continue;
        }
        let give_up = victims(option, held, &spare, option.bytes.saturating_sub(room));
        let Some(give_up) = give_up else { continue };
        let freed: u64 = give_up.iter().map(|&victim| held[victim].bytes).sum();
        spare.retain(|victim| !give_up.contains(victim));
        plan.remove.extend(give_up);
        plan.fetch.push(at);
        room = room + freed - option.bytes;
        budget -= option.bytes;
    }
    plan
}

/// The least promising files that make `missing` bytes free, if all of them promise clearly less than what comes.
fn victims(option: FetchOption, held: &[Held], spare: &[usize], missing: u64) -> Option<Vec<usize>> {
    let (mut chosen, mut freed) = (Vec::new(), 0);
    for &at in spare {
        if freed >= missing {
            break;
        }
        if value(held[at]) * CLEARLY_BETTER >= density(option) {
            return None;
        }
        freed += held[at].bytes;
        chosen.push(at);
    }
    (freed >= missing).then_some(chosen)
}

/// What the best choice in hindsight would have earned more than the choice that was made, within the same room. `realised` are
/// the bytes and earnings of everything that could have been chosen, `chosen` the places of what was.
pub fn regret(realised: &[FetchOption], chosen: &[usize], room: u64) -> f64 {
    let best = plan(realised, &[], room, room).fetch;
    let earned = |places: &[usize]| places.iter().map(|&at| realised[at].worth).sum::<f64>();
    (earned(&best) - earned(chosen)).max(0.0)
}

fn density(option: FetchOption) -> f64 {
    option.worth / option.bytes.max(1) as f64
}

fn value(held: Held) -> f64 {
    held.worth / held.bytes.max(1) as f64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn option(bytes: u64, worth: f64) -> FetchOption {
        FetchOption { bytes, worth }
    }

    fn held(bytes: u64, worth: f64, rest_min: u64) -> Held {
        Held { bytes, worth, rest: Duration::from_mins(rest_min) }
    }

    #[test]
    fn what_promises_most_for_its_size_comes_first_and_nothing_for_nothing() {
        let options = [option(100, 1.0), option(10, 5.0), option(10, 0.0), option(50, 2.0)];
        assert_eq!(plan(&options, &[], 60, 1000).fetch, [1, 3]);
        assert_eq!(plan(&options, &[], 1000, 105).fetch, [1, 3], "the budget bounds a round");
    }

    #[test]
    fn old_files_go_for_clearly_better_ones_and_young_ones_never() {
        let wanted = [option(100, 10.0)];
        assert_eq!(plan(&wanted, &[held(100, 1.0, 120)], 0, 1000).remove, [0]);
        assert_eq!(plan(&wanted, &[held(100, 1.0, 30)], 0, 1000), Plan::default(), "it came just now");
        assert_eq!(plan(&wanted, &[held(100, 6.0, 120)], 0, 1000), Plan::default(), "hardly better");
        assert_eq!(plan(&wanted, &[held(100, 1.0, 120)], 100, 1000).remove, [0_usize; 0], "there is room");
    }

    #[test]
    fn a_fetch_that_outlasts_the_demand_is_worth_nothing() {
        assert!(worth(10.0, 0.5, 1 << 30, 1e6) > 0.0);
        assert!(worth(10.0, 0.5, 1 << 30, 1e6) < worth(10.0, 0.5, 1 << 30, 1e9));
        assert!(worth(10.0, 0.5, 1 << 40, 1e6) <= 0.0);
    }

    #[test]
    fn hindsight_knows_what_was_missed() {
        let realised = [option(10, 1.0), option(10, 7.0)];
        assert!((regret(&realised, &[0], 10) - 6.0).abs() < 1e-9);
        assert!(regret(&realised, &[1], 10) < 1e-9);
        assert!(regret(&realised, &[0, 1], 20) < 1e-9);
    }

    proptest! {
        #[test]
        fn a_plan_fits_and_disturbs_nobody(
            options in proptest::collection::vec((1_u64..1000, 0.0_f64..10.0), 0..20),
            files in proptest::collection::vec((1_u64..1000, 0.0_f64..10.0, 0_u64..180), 0..20),
            room in 0_u64..3000,
            budget in 0_u64..5000,
        ) {
            let options: Vec<_> = options.into_iter().map(|(bytes, worth)| option(bytes, worth)).collect();
            let files: Vec<_> = files.into_iter().map(|(bytes, worth, rest)| held(bytes, worth, rest)).collect();
            let plan = plan(&options, &files, room, budget);
            let fetched: u64 = plan.fetch.iter().map(|&at| options[at].bytes).sum();
            let freed: u64 = plan.remove.iter().map(|&at| files[at].bytes).sum();
            prop_assert!(fetched <= room + freed && fetched <= budget);
            prop_assert!(plan.remove.iter().all(|&at| files[at].rest >= MIN_RESIDENCY));
            let mut distinct = plan.remove.clone();
            distinct.sort_unstable();
            distinct.dedup();
            prop_assert_eq!(distinct.len(), plan.remove.len());
            let best = plan.fetch.iter().map(|&at| density(options[at])).fold(0.0, f64::max);
            prop_assert!(plan.remove.iter().all(|&at| value(files[at]) * CLEARLY_BETTER < best));
            // What was just fetched is not given up for the same options: nothing goes back and forth.
            prop_assert!(plan.fetch.iter().all(|&at| options[at].worth > 0.0));
        }
    }
}
