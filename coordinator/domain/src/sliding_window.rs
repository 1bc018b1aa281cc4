//! Rate limit: the number of requests in any minute, exact to a tenth of a second. Pure.
//!
//! A sliding window that counts the requests of each tenth of a second. There are never more than the limit in any
//! minute; a burst of the whole limit is admitted after a quiet minute; a refused request does not count.

use std::fmt::Write as _;

/// Milliseconds that are counted together.
const STEP_MS: i64 = 100;

/// The limit on requests in any minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlidingWindow {
    pub limit: u32,
}

/// The decision on one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Admission {
    pub admitted: bool,
    /// Further requests that would be admitted now.
    pub remaining: u32,
    /// When the oldest counted request leaves the window, in milliseconds since 1970.
    pub frees_at: i64,
}

impl SlidingWindow {
    /// Length of the window.
    pub const LENGTH_MS: i64 = 60_000;

    /// Decides on a request at `now`, given the counts so far as this function returned them (empty text: none).
    /// Returns new counts only if the request is admitted.
    pub fn admit(self, hits: &str, now: i64) -> (Admission, Option<String>) {
        let step = now.div_euclid(STEP_MS);
        // After the clock is set back, earlier counts lie in the future; those beyond one window are ignored, so that
        // they do not block the account.
        let length = Self::LENGTH_MS / STEP_MS;
        let mut steps: Vec<(i64, u32)> = parse(hits).filter(|(at, _)| (at - step).abs() <= length).collect();
        let counted: u64 = steps.iter().map(|(_, count)| u64::from(*count)).sum();
        let admitted = counted < u64::from(self.limit);
        if admitted {
            match steps.iter_mut().find(|(at, _)| *at == step) {
                Some((_, count)) => *count += 1,
                None => steps.push((step, 1)),
            }
        }
        let oldest = steps.iter().map(|(at, _)| *at).min().unwrap_or(step);
        let admission = Admission {
            admitted,
            remaining: u64::from(self.limit).saturating_sub(counted + u64::from(admitted)) as u32,
            frees_at: (oldest + length + 1) * STEP_MS,
        };
        (admission, admitted.then(|| print(&steps)))
    }
}

fn parse(hits: &str) -> impl Iterator<Item = (i64, u32)> {
    hits.split(' ').filter_map(|hit| {
        let (at, count) = hit.split_once(':')?;
        Some((at.parse().ok()?, count.parse().ok()?))
    })
}

fn print(steps: &[(i64, u32)]) -> String {
    let mut text = String::with_capacity(steps.len() * 14);
    for (at, count) in steps {
        let space = if text.is_empty() { "" } else { " " };
        let _ = write!(text, "{space}{at}:{count}");
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn run(limit: u32, pauses: &[i64]) -> Vec<(i64, Admission)> {
        let (mut hits, mut now, mut admissions) = (String::new(), 1_800_000_000_000, Vec::new());
        for pause in pauses {
            now += pause;
            let (admission, next) = SlidingWindow { limit }.admit(&hits, now);
            hits = next.unwrap_or(hits);
            admissions.push((now, admission));
        }
        admissions
    }

    proptest! {
        #[test]
        fn no_minute_has_more_than_the_limit(limit in 1_u32..20, pauses in prop::collection::vec(0_i64..20_000, 1..200)) {
            let admitted: Vec<i64> =
                run(limit, &pauses).into_iter().filter(|(_, a)| a.admitted).map(|(at, _)| at).collect();
            for (index, at) in admitted.iter().enumerate() {
                let within = admitted[index..].iter().filter(|later| **later - at < SlidingWindow::LENGTH_MS).count();
                prop_assert!(within <= limit as usize, "{within} from {at}");
            }
        }

        #[test]
        fn a_refused_request_is_admitted_at_the_reported_time(limit in 1_u32..20, pauses in prop::collection::vec(0_i64..3_000, 1..200)) {
            let (mut hits, mut now) = (String::new(), 1_800_000_000_000);
            for pause in pauses {
                now += pause;
                let (admission, next) = SlidingWindow { limit }.admit(&hits, now);
                if !admission.admitted {
                    let (later, _) = SlidingWindow { limit }.admit(&hits, admission.frees_at);
                    prop_assert!(later.admitted && admission.frees_at > now);
                }
                prop_assert!(admission.remaining < limit);
                hits = next.unwrap_or(hits);
            }
        }

        #[test]
        fn malformed_stored_counts_are_ignored(hits in "\\PC{0,80}", now in 0_i64..4_000_000_000_000) {
            let (admission, _) = SlidingWindow { limit: 1_000_000 }.admit(&hits, now);
            prop_assert!(admission.admitted || hits.contains(':'));
        }
    }

    #[test]
    fn a_quiet_minute_allows_the_whole_limit_at_once() {
        let admissions = run(100, &[0; 150]);
        assert_eq!(admissions.iter().filter(|(_, admission)| admission.admitted).count(), 100);
        assert_eq!(admissions[0].1.remaining, 99);
        assert_eq!(admissions[120].1.remaining, 0);
    }

    #[test]
    fn a_clock_set_back_by_an_hour_blocks_no_account() {
        let (_, hits) = SlidingWindow { limit: 1 }.admit("", 1_800_003_600_000);
        let (admission, _) = SlidingWindow { limit: 1 }.admit(&hits.expect("counted"), 1_800_000_000_000);
        assert!(admission.admitted);
    }
}
