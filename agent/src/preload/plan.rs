//! Chooses which files to preload and which to remove for them. Pure.

use std::time::Duration;

/// Period for which earnings are estimated.
pub const HORIZON: Duration = Duration::from_hours(6);
/// Minimum time for which a file is kept after it was last used or downloaded.
pub const MIN_RESIDENCY: Duration = Duration::from_hours(1);
/// Factor by which a byte of a new file must promise more than one of an old file: demand varies, and every exchange costs a download.
const CLEARLY_BETTER: f64 = 2.0;

/// A Cargo of which files are missing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FetchOption {
    /// Bytes still to be downloaded.
    pub bytes: u64,
    /// Credits that it promises within the horizon.
    pub worth: f64,
}

/// A file on disk.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CachedFile {
    /// Its length.
    pub bytes: u64,
    /// Credits that it promises within the horizon.
    pub worth: f64,
    /// Time since it was last used or downloaded.
    pub rest: Duration,
}

/// The plan, as indices into the given lists.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Cargos to download, the most promising first.
    pub fetch: Vec<usize>,
    /// Files to remove first.
    pub remove: Vec<usize>,
}

/// Expected credits within the horizon: jobs arrive at `jobs_per_hour`, but not while `bytes` are downloaded.
pub fn worth(jobs_per_hour: f64, credits_per_job: f64, bytes: u64, bytes_per_second: f64) -> f64 {
    let fetching = bytes as f64 / bytes_per_second.max(1.0);
    jobs_per_hour * credits_per_job * (HORIZON.as_secs_f64() - fetching).max(0.0) / 3600.0
}

/// Plans with `free` free bytes and at most `budget` bytes of downloads.
pub fn plan(options: &[FetchOption], held: &[CachedFile], free: u64, budget: u64) -> Plan {
    let mut order: Vec<usize> = (0..options.len()).filter(|&at| options[at].worth > 0.0).collect();
    order.sort_by(|&a, &b| density(options[b]).total_cmp(&density(options[a])));
    let mut spare: Vec<usize> = (0..held.len()).filter(|&at| held[at].rest >= MIN_RESIDENCY).collect();
    spare.sort_by(|&a, &b| value(held[a]).total_cmp(&value(held[b])));
    let (mut plan, mut free, mut budget) = (Plan::default(), free, budget);
    for at in order {
        let option = options[at];
        if option.bytes > budget {
            continue;
        }
        let give_up = victims(option, held, &spare, option.bytes.saturating_sub(free));
        let Some(give_up) = give_up else { continue };
        let freed: u64 = give_up.iter().map(|&victim| held[victim].bytes).sum();
        spare.retain(|victim| !give_up.contains(victim));
        plan.remove.extend(give_up);
        plan.fetch.push(at);
        free = free + freed - option.bytes;
        budget -= option.bytes;
    }
    plan
}

/// Returns the least promising files whose removal frees `missing` bytes, if all of them promise clearly less than the new one.
fn victims(option: FetchOption, held: &[CachedFile], spare: &[usize], missing: u64) -> Option<Vec<usize>> {
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

/// Returns how much more the best choice in hindsight would have earned than the actual one, with the same space. `realised` are the bytes
/// and earnings of all options, `chosen` the indices of the chosen ones.
pub fn regret(realised: &[FetchOption], chosen: &[usize], free: u64) -> f64 {
    let best = plan(realised, &[], free, free).fetch;
    let earned = |places: &[usize]| places.iter().map(|&at| realised[at].worth).sum::<f64>();
    (earned(&best) - earned(chosen)).max(0.0)
}

fn density(option: FetchOption) -> f64 {
    option.worth / option.bytes.max(1) as f64
}

fn value(held: CachedFile) -> f64 {
    held.worth / held.bytes.max(1) as f64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn option(bytes: u64, worth: f64) -> FetchOption {
        FetchOption { bytes, worth }
    }

    fn held(bytes: u64, worth: f64, rest_min: u64) -> CachedFile {
        CachedFile { bytes, worth, rest: Duration::from_mins(rest_min) }
    }

    #[test]
    fn files_are_ordered_by_promise_per_byte_and_worthless_ones_skipped() {
        let options = [option(100, 1.0), option(10, 5.0), option(10, 0.0), option(50, 2.0)];
        assert_eq!(plan(&options, &[], 60, 1000).fetch, [1, 3]);
        assert_eq!(plan(&options, &[], 1000, 105).fetch, [1, 3], "the budget limits a round");
    }

    #[test]
    fn old_files_are_removed_for_clearly_better_ones_and_new_ones_never() {
        let wanted = [option(100, 10.0)];
        assert_eq!(plan(&wanted, &[held(100, 1.0, 120)], 0, 1000).remove, [0]);
        assert_eq!(
            plan(&wanted, &[held(100, 1.0, 30)], 0, 1000),
            Plan::default(),
            "it was downloaded just now"
        );
        assert_eq!(plan(&wanted, &[held(100, 6.0, 120)], 0, 1000), Plan::default(), "not clearly better");
        assert_eq!(plan(&wanted, &[held(100, 1.0, 120)], 100, 1000).remove, [0_usize; 0], "there is space");
    }

    #[test]
    fn a_download_longer_than_the_horizon_is_worth_nothing() {
        assert!(worth(10.0, 0.5, 1 << 30, 1e6) > 0.0);
        assert!(worth(10.0, 0.5, 1 << 30, 1e6) < worth(10.0, 0.5, 1 << 30, 1e9));
        assert!(worth(10.0, 0.5, 1 << 40, 1e6) <= 0.0);
    }

    #[test]
    fn regret_is_the_difference_to_the_best_choice() {
        let realised = [option(10, 1.0), option(10, 7.0)];
        assert!((regret(&realised, &[0], 10) - 6.0).abs() < 1e-9);
        assert!(regret(&realised, &[1], 10) < 1e-9);
        assert!(regret(&realised, &[0, 1], 20) < 1e-9);
    }

    proptest! {
        #[test]
        fn a_plan_fits_and_keeps_what_is_worth_more(
            options in proptest::collection::vec((1_u64..1000, 0.0_f64..10.0), 0..20),
            files in proptest::collection::vec((1_u64..1000, 0.0_f64..10.0, 0_u64..180), 0..20),
            free in 0_u64..3000,
            budget in 0_u64..5000,
        ) {
            let options: Vec<_> = options.into_iter().map(|(bytes, worth)| option(bytes, worth)).collect();
            let files: Vec<_> = files.into_iter().map(|(bytes, worth, rest)| held(bytes, worth, rest)).collect();
            let plan = plan(&options, &files, free, budget);
            let fetched: u64 = plan.fetch.iter().map(|&at| options[at].bytes).sum();
            let freed: u64 = plan.remove.iter().map(|&at| files[at].bytes).sum();
            prop_assert!(fetched <= free + freed && fetched <= budget);
            prop_assert!(plan.remove.iter().all(|&at| files[at].rest >= MIN_RESIDENCY));
            let mut distinct = plan.remove.clone();
            distinct.sort_unstable();
            distinct.dedup();
            prop_assert_eq!(distinct.len(), plan.remove.len());
            let best = plan.fetch.iter().map(|&at| density(options[at])).fold(0.0, f64::max);
            prop_assert!(plan.remove.iter().all(|&at| value(files[at]) * CLEARLY_BETTER < best));
            // A file that was just downloaded is not removed for the same options: there is no oscillation.
            prop_assert!(plan.fetch.iter().all(|&at| options[at].worth > 0.0));
        }
    }
}
