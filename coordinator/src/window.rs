//! Requests in any minute, exact to a tenth of a second: pure.
//!
//! A sliding window that keeps how many requests each tenth of a second had. Never more than the limit in any minute,
//! a burst of the whole limit at once if the minute before was quiet, and a refused request does not count.

use std::fmt::Write as _;

/// Milliseconds that are counted together.
const STEP_MS: i64 = 100;

/// How many requests a minute may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Window {
    pub limit: u32,
}

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Admission {
    pub admitted: bool,
    /// Further requests that would be admitted now.
    pub remaining: u32,
    /// When the oldest counted request stops to count, milliseconds since 1970.
    pub frees_at: i64,
}

impl Window {
    /// What a window spans.
    pub(crate) const LENGTH_MS: i64 = 60_000;

    /// Judges a request at `now`, given the counts so far in the form this wrote them (none: the empty text). The new
    /// counts come with an admitted request only.
    pub(crate) fn admit(self, hits: &str, now: i64) -> (Admission, Option<String>) {
        let step = now.div_euclid(STEP_MS);
        // A clock that was set back must not lock anybody out: what lies far ahead counts no more.
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
        let (mut hits, mut now, mut seen) = (String::new(), 1_800_000_000_000, Vec::new());
        for pause in pauses {
            now += pause;
            let (admission, next) = Window { limit }.admit(&hits, now);
            hits = next.unwrap_or(hits);
            seen.push((now, admission));
        }
        seen
    }

    proptest! {
        #[test]
        fn no_minute_has_more_than_the_limit(limit in 1_u32..20, pauses in prop::collection::vec(0_i64..20_000, 1..200)) {
            let admitted: Vec<i64> =
                run(limit, &pauses).into_iter().filter(|(_, a)| a.admitted).map(|(at, _)| at).collect();
            for (index, at) in admitted.iter().enumerate() {
                let within = admitted[index..].iter().filter(|later| **later - at < Window::LENGTH_MS).count();
                prop_assert!(within <= limit as usize, "{within} from {at}");
            }
        }

        #[test]
        fn whoever_is_refused_is_admitted_when_told(limit in 1_u32..20, pauses in prop::collection::vec(0_i64..3_000, 1..200)) {
            let (mut hits, mut now) = (String::new(), 1_800_000_000_000);
            for pause in pauses {
                now += pause;
                let (admission, next) = Window { limit }.admit(&hits, now);
                if !admission.admitted {
                    let (later, _) = Window { limit }.admit(&hits, admission.frees_at);
                    prop_assert!(later.admitted && admission.frees_at > now);
                }
                prop_assert!(admission.remaining < limit);
                hits = next.unwrap_or(hits);
            }
        }

        #[test]
        fn any_stored_text_is_survived(hits in "\\PC{0,80}", now in 0_i64..4_000_000_000_000) {
            let (admission, _) = Window { limit: 1_000_000 }.admit(&hits, now);
            prop_assert!(admission.admitted || hits.contains(':'));
        }
    }

    #[test]
    fn a_quiet_minute_allows_the_whole_limit_at_once() {
        let seen = run(100, &[0; 150]);
        assert_eq!(seen.iter().filter(|(_, admission)| admission.admitted).count(), 100);
        assert_eq!(seen[0].1.remaining, 99);
        assert_eq!(seen[120].1.remaining, 0);
    }

    #[test]
    fn a_clock_set_back_an_hour_locks_nobody_out() {
        let (_, hits) = Window { limit: 1 }.admit("", 1_800_003_600_000);
        let (admission, _) = Window { limit: 1 }.admit(&hits.expect("counted"), 1_800_000_000_000);
        assert!(admission.admitted);
    }
}
