//! Quotas, pure: whether a new job is within them, and what its end changes.
//!
//! A job counts as one request, and its price as used, from acceptance on; at its end the part that was not charged is
//! returned, and its tokens are added. Tokens are not known before, so the job that exceeds their quota runs, and the
//! next one is refused.

use island_protocol::{credits::MicroCredits, time::Timestamp};
use island_protocol_api::quota::{QuotaLimits, QuotaPeriod, QuotaView, Quotas, Used};

/// Maximum step of a clock after which a quota remains in its later period.
const MAX_STEP_MS: i64 = 2 * 3_600_000;

/// What is limited.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, strum::EnumString, strum::IntoStaticStr,
)]
#[strum(serialize_all = "lowercase")]
pub enum Unit {
    Requests,
    Tokens,
    /// Millionths of a credit.
    Credits,
}

impl Unit {
    /// The name in SQL.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// A limit of one unit in one period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    pub period: QuotaPeriod,
    pub unit: Unit,
    pub max: i64,
    /// What was used in the period that began at `since`.
    pub used: i64,
    pub since: Timestamp,
}

/// A quota that has no room for a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exceeded {
    pub quota: Quota,
    /// When the next period begins.
    pub resets_at: Timestamp,
}

/// What the end of a job changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settlement {
    pub accepted_at: Timestamp,
    /// The part of the price that was not charged.
    pub released: MicroCredits,
    pub tokens: u64,
}

/// The begin of the period that contains `now`.
pub fn begin(period: QuotaPeriod, now: Timestamp) -> Timestamp {
    match period {
        QuotaPeriod::Day => now.day_begin(),
        QuotaPeriod::Month => now.month_begin(),
    }
}

fn end(period: QuotaPeriod, now: Timestamp) -> Timestamp {
    match period {
        QuotaPeriod::Day => now.next_day(),
        QuotaPeriod::Month => now.next_month(),
    }
}

impl Quota {
    /// The same quota in the period that contains `now`. A clock that steps back a little does not return to an earlier period, where
    /// everything would be unused again. What was used by a clock that was far ahead was used in this period.
    #[must_use]
    pub fn at(mut self, now: Timestamp) -> Self {
        let begin = begin(self.period, now);
        if self.since < begin {
            (self.since, self.used) = (begin, 0);
        } else if self.since.unix_ms().saturating_sub(now.unix_ms()) > MAX_STEP_MS {
            self.since = begin;
        }
        self
    }

    /// Adds a new job of this price.
    pub fn accept(self, price: MicroCredits, now: Timestamp) -> Result<Self, Exceeded> {
        let mut quota = self.at(now);
        let (added, has_room) = match self.unit {
            Unit::Requests => (1, quota.used < quota.max),
            Unit::Tokens => (0, quota.used < quota.max),
            Unit::Credits => (price.0, quota.used.saturating_add(price.0) <= quota.max),
        };
        if !has_room {
            return Err(Exceeded { quota, resets_at: end(self.period, quota.since.max(now)) });
        }
        quota.used = quota.used.saturating_add(added);
        Ok(quota)
    }

    /// Applies the end of a job. What it held in an earlier period is not returned to the current one.
    #[must_use]
    pub fn settle(self, settlement: &Settlement, now: Timestamp) -> Self {
        let mut quota = self.at(now);
        match self.unit {
            Unit::Tokens => {
                let tokens = i64::try_from(settlement.tokens).unwrap_or(i64::MAX);
                quota.used = quota.used.saturating_add(tokens);
            }
            Unit::Credits if settlement.accepted_at >= quota.since => {
                quota.used = (quota.used - settlement.released.0).max(0);
            }
            Unit::Requests | Unit::Credits => {}
        }
        quota
    }
}

/// The limits that are set, one by one.
pub fn limits(quotas: &Quotas) -> Vec<(QuotaPeriod, Unit, i64)> {
    let count = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let of = |period, limits: &QuotaLimits| {
        [
            (period, Unit::Requests, limits.requests.map(count)),
            (period, Unit::Tokens, limits.tokens.map(count)),
            (period, Unit::Credits, limits.credits.map(|credits| credits.0)),
        ]
    };
    let all = of(QuotaPeriod::Day, &quotas.day).into_iter().chain(of(QuotaPeriod::Month, &quotas.month));
    all.filter_map(|(period, unit, max)| Some((period, unit, max?))).collect()
}

/// The quotas of one holder as they are shown, those of a day first.
pub fn views(quotas: &[Quota], now: Timestamp) -> Vec<QuotaView> {
    let mut views = Vec::new();
    for period in [QuotaPeriod::Day, QuotaPeriod::Month] {
        let current: Vec<Quota> =
            quotas.iter().filter(|quota| quota.period == period).map(|quota| quota.at(now)).collect();
        let find = |unit| current.iter().find(|quota| quota.unit == unit);
        let Some(first) = current.first() else { continue };
        let number = |unit| {
            find(unit).map(|quota| Used { used: quota.used.unsigned_abs(), max: quota.max.unsigned_abs() })
        };
        views.push(QuotaView {
            period,
            resets_at: end(period, first.since.max(now)),
            requests: number(Unit::Requests),
            tokens: number(Unit::Tokens),
            credits: find(Unit::Credits)
                .map(|quota| Used { used: MicroCredits(quota.used), max: MicroCredits(quota.max) }),
        });
    }
    views
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOUR_MS: i64 = 3_600_000;

    fn quota(period: QuotaPeriod, unit: Unit, max: i64) -> Quota {
        Quota { period, unit, max, used: 0, since: Timestamp::from_unix_ms(0) }
    }

    fn period() -> impl Strategy<Value = QuotaPeriod> {
        prop_oneof![Just(QuotaPeriod::Day), Just(QuotaPeriod::Month)]
    }

    #[derive(Debug, Clone)]
    enum Step {
        Wait(i64),
        Accept(i64),
        /// Ends one of the open jobs, with the share of its price that is charged, and its tokens.
        End(usize, u8, u64),
    }

    /// Acceptance, price, and once it has ended: what is charged, its tokens, its end.
    type TestJob = (Timestamp, i64, Option<(i64, u64, Timestamp)>);

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            // Clocks step back at times.
            (-HOUR_MS..20 * HOUR_MS).prop_map(Step::Wait),
            (0_i64..50).prop_map(Step::Accept),
            (any::<usize>(), 0_u8..=100, 0_u64..200)
                .prop_map(|(job, share, tokens)| Step::End(job, share, tokens)),
        ];
        prop::collection::vec(step, 0..120)
    }

    proptest! {
        /// Compares with all jobs, summed again for each period.
        #[test]
        fn what_is_used_is_what_the_jobs_of_the_period_use(period in period(), max in 0_i64..300, steps in steps()) {
            let mut now = Timestamp::from_unix_ms(1_790_000_000_000);
            // The latest time so far: periods do not return.
            let mut latest = now;
            let mut requests = quota(period, Unit::Requests, max);
            let mut credits = quota(period, Unit::Credits, max);
            let mut tokens = quota(period, Unit::Tokens, max);
            let mut jobs: Vec<TestJob> = Vec::new();
            for step in steps {
                let used_credits = |jobs: &[TestJob], since: Timestamp| -> i64 {
                    let of_period = jobs.iter().filter(|(at, ..)| *at >= since);
                    of_period.map(|(_, price, ended)| ended.map_or(*price, |(charged, ..)| charged)).sum()
                };
                match step {
                    Step::Wait(ms) => {
                        now = now.plus_ms(ms);
                        latest = latest.max(now);
                    }
                    Step::Accept(price) => {
                        // A job is dated by a clock that may have stepped back into the last period.
                        let since = begin(period, latest);
                        if now < since { continue; }
                        let results = [requests.accept(MicroCredits(price), now), credits.accept(MicroCredits(price), now), tokens.accept(MicroCredits(price), now)];
                        let fits = used_credits(&jobs, since) + price <= max;
                        prop_assert_eq!(results[1].is_ok(), fits);
                        if let [Ok(one), Ok(two), Ok(three)] = results {
                            (requests, credits, tokens) = (one, two, three);
                            jobs.push((now, price, None));
                        }
                    }
                    Step::End(which, share, count) => {
                        if begin(period, now) < begin(period, latest) { continue; }
                        let mut open: Vec<_> = jobs.iter_mut().filter(|(.., ended)| ended.is_none()).collect();
                        if open.is_empty() { continue; }
                        let which = which % open.len();
                        let (accepted_at, price, ended) = &mut *open[which];
                        let charged = *price * i64::from(share) / 100;
                        *ended = Some((charged, count, now));
                        let settlement = Settlement { accepted_at: *accepted_at, released: MicroCredits(*price - charged), tokens: count };
                        requests = requests.settle(&settlement, now);
                        credits = credits.settle(&settlement, now);
                        tokens = tokens.settle(&settlement, now);
                    }
                }
                let since = begin(period, latest);
                prop_assert_eq!(credits.at(latest).used, used_credits(&jobs, since));
                prop_assert!(credits.at(latest).used <= max);
                let of_period = jobs.iter().filter(|(at, ..)| *at >= since).count() as i64;
                prop_assert_eq!(requests.at(latest).used, of_period);
                prop_assert!(of_period <= max);
                let ended = jobs.iter().filter_map(|(.., ended)| *ended).filter(|(.., at)| *at >= since);
                prop_assert_eq!(tokens.at(latest).used, ended.map(|(_, tokens, _)| tokens as i64).sum::<i64>());
            }
        }
    }

    #[test]
    fn a_period_of_a_clock_that_was_far_ahead_ends() {
        let now = Timestamp::from_unix_ms(1_795_210_800_123);
        let hours = |hours: i64| now.plus_ms(hours * HOUR_MS);
        for period in [QuotaPeriod::Day, QuotaPeriod::Month] {
            let full =
                quota(period, Unit::Requests, 1).accept(MicroCredits::ZERO, hours(40 * 24)).expect("room");
            assert_eq!(full.at(now).since, begin(period, now));
            let refused = full.accept(MicroCredits::ZERO, now).expect_err("it was used");
            assert!(refused.resets_at <= hours(31 * 24), "{refused:?}");
            assert!(full.at(now).accept(MicroCredits::ZERO, refused.resets_at).is_ok());
        }
        let before = begin(QuotaPeriod::Day, hours(24)).plus_ms(-HOUR_MS);
        let used =
            quota(QuotaPeriod::Day, Unit::Requests, 1).accept(MicroCredits::ZERO, before.plus_ms(HOUR_MS));
        assert!(used.expect("room").accept(MicroCredits::ZERO, before).is_err(), "a small step back");
    }

    #[test]
    fn a_refusal_names_the_begin_of_the_next_period() {
        let now = Timestamp::from_unix_ms(1_795_210_800_123);
        let exceeded = quota(QuotaPeriod::Month, Unit::Requests, 0).accept(MicroCredits::ZERO, now);
        assert_eq!(exceeded.expect_err("no room").resets_at.to_string(), "2026-12-01T00:00:00.000Z");
        let exceeded = quota(QuotaPeriod::Day, Unit::Credits, 4).accept(MicroCredits(5), now);
        assert_eq!(exceeded.expect_err("no room").resets_at.to_string(), "2026-11-21T00:00:00.000Z");
    }

    #[test]
    fn only_limits_that_are_set_are_shown() {
        let quotas = Quotas {
            day: QuotaLimits { requests: Some(3), ..QuotaLimits::default() },
            month: QuotaLimits { credits: Some(MicroCredits::ONE), ..QuotaLimits::default() },
        };
        let now = Timestamp::from_unix_ms(1_795_210_800_123);
        let rows: Vec<Quota> =
            limits(&quotas).into_iter().map(|(period, unit, max)| quota(period, unit, max)).collect();
        let views = views(&rows, now);
        assert_eq!(views.len(), 2);
        assert_eq!((views[0].requests, views[0].credits), (Some(Used { used: 0, max: 3 }), None));
        assert_eq!(views[1].credits, Some(Used { used: MicroCredits::ZERO, max: MicroCredits::ONE }));
    }
}
