//! Which files are preloaded, and which are removed for them.

use std::time::Duration;

use island_agent::preload::plan::{self, CachedFile, FetchOption};

use super::{Day, MODELS};

/// Disk space for files, megabytes: about a quarter of all of them.
const ROOM: u64 = 30_000;
/// Time between two rounds.
const ROUND: Duration = Duration::from_mins(15);
/// Speed of the link, megabytes per second.
const SPEED: f64 = 12.5;
/// Maximum download of one round, megabytes.
const BUDGET: u64 = 20_000;

#[derive(Debug, Default, Clone, Copy)]
struct Cost {
    fetched_mb: u64,
    /// Downloaded again within two hours of being removed.
    back_and_forth: u64,
    /// Credits of jobs whose file was on disk.
    earned: f64,
}

impl Cost {
    fn add(&mut self, other: Self) {
        self.fetched_mb += other.fetched_mb;
        self.back_and_forth += other.back_and_forth;
        self.earned += other.earned;
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct File {
    here: bool,
    used: Duration,
    given_up: Option<Duration>,
}

/// Whether files are chosen by what they promise, or in the order of demand with removal of the least recently used.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Governor {
    Promise,
    Popular,
}

fn replay(day: &Day, policy: Governor) -> Cost {
    let (mut files, mut cost) = ([File::default(); MODELS], Cost::default());
    let mut seen = 0;
    for round in 1..=96_u32 {
        let now = ROUND * round;
        while let Some(arrival) = day.arrivals.get(seen).filter(|arrival| arrival.at < now) {
            if files[arrival.model].here {
                cost.earned += day.models[arrival.model].price;
                files[arrival.model].used = arrival.at;
            }
            seen += 1;
        }
        let hour = now.saturating_sub(Duration::from_hours(1));
        let mut jobs = [0_u64; MODELS];
        for arrival in day.arrivals[..seen].iter().rev().take_while(|arrival| arrival.at >= hour) {
            jobs[arrival.model] += 1;
        }
        match policy {
            Governor::Promise => promise(day, &mut files, &mut cost, &jobs, now),
            Governor::Popular => popular(day, &mut files, &mut cost, &jobs, now),
        }
        let held: u64 = (0..MODELS).filter(|&at| files[at].here).map(|at| day.models[at].mb).sum();
        assert!(held <= ROOM);
    }
    cost
}

fn fetch(day: &Day, file: &mut File, at: usize, cost: &mut Cost, now: Duration) {
    cost.fetched_mb += day.models[at].mb;
    let soon = |gone: Duration| now.saturating_sub(gone) <= Duration::from_hours(2);
    cost.back_and_forth += u64::from(file.given_up.is_some_and(soon));
    *file = File { here: true, used: now, given_up: None };
}

fn give_up(file: &mut File, now: Duration) {
    *file = File { here: false, given_up: Some(now), ..*file };
}

fn promise(day: &Day, files: &mut [File; MODELS], cost: &mut Cost, jobs: &[u64; MODELS], now: Duration) {
    let bytes = |at: usize| day.models[at].mb << 20;
    let worth = |at: usize, bytes: u64| {
        plan::worth(jobs[at] as f64, day.models[at].price, bytes, SPEED * f64::from(1 << 20))
    };
    let (here, missing): (Vec<usize>, Vec<usize>) = (0..MODELS).partition(|&at| files[at].here);
    let options: Vec<_> =
        missing.iter().map(|&at| FetchOption { bytes: bytes(at), worth: worth(at, bytes(at)) }).collect();
    let held: Vec<_> = here
        .iter()
        .map(|&at| CachedFile {
            bytes: bytes(at),
            worth: worth(at, 0),
            rest: now.saturating_sub(files[at].used),
        })
        .collect();
    let taken: u64 = held.iter().map(|file| file.bytes).sum();
    let plan = plan::plan(&options, &held, (ROOM << 20) - taken, BUDGET << 20);
    for at in plan.remove {
        give_up(&mut files[here[at]], now);
    }
    for at in plan.fetch {
        fetch(day, &mut files[missing[at]], missing[at], cost, now);
    }
}

/// Files in the order of demand; the least recently used are removed.
fn popular(day: &Day, files: &mut [File; MODELS], cost: &mut Cost, jobs: &[u64; MODELS], now: Duration) {
    let mut order: Vec<usize> = (0..MODELS).filter(|&at| !files[at].here && jobs[at] > 0).collect();
    order.sort_by_key(|&at| std::cmp::Reverse(jobs[at]));
    let mut budget = BUDGET;
    for at in order {
        if day.models[at].mb > budget {
            continue;
        }
        budget -= day.models[at].mb;
        let held = |files: &[File; MODELS]| -> u64 {
            (0..MODELS).filter(|&one| files[one].here).map(|one| day.models[one].mb).sum()
        };
        while held(files) + day.models[at].mb > ROOM {
            let oldest = (0..MODELS).filter(|&one| files[one].here).min_by_key(|&one| files[one].used);
            give_up(&mut files[oldest.expect("a file occupies the space")], now);
        }
        fetch(day, &mut files[at], at, cost, now);
    }
}

#[test]
fn preloads_download_less_oscillate_less_and_earn_more_than_popularity() {
    let (mut our, mut their) = (Cost::default(), Cost::default());
    for seed in 0..20 {
        let day = Day::made(seed);
        our.add(replay(&day, Governor::Promise));
        their.add(replay(&day, Governor::Popular));
    }
    for (name, cost) in [("Island", our), ("most popular, least recently used", their)] {
        let Cost { fetched_mb, back_and_forth, earned } = cost;
        println!("{name}: {fetched_mb} MB fetched, {back_and_forth} back and forth, {earned:.0} credits");
    }
    assert!(our.fetched_mb * 2 <= their.fetched_mb, "{our:?} against {their:?}");
    assert!(our.back_and_forth * 4 <= their.back_and_forth, "{our:?} against {their:?}");
    assert!(our.earned >= their.earned, "{our:?} against {their:?}");
}
