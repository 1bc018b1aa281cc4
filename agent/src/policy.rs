//! When this machine works for others: the owner's rules and orders, and what follows from them now. Pure; [`crate::governor`] evaluates it,
//! and [`sensors`] reads the machine.
//!
//! The owner's own word (pause, drain) goes before the rules; of several reasons the one that asks for most is told.

use std::{fmt, time::Duration};

use island_protocol::{asking::Asking, cargo::RuntimeType, ids::Slug, time::Timestamp};
use serde::{Deserialize, Serialize};

pub mod gpus;
pub mod schedule;
pub mod sensors;

use gpus::{GpuRule, PausedGpus};
use schedule::{Moment, Window};
use sensors::SensorReadings;

/// Degrees and watts below a limit at which work begins again, as a share of it: or it would begin and end every minute.
const RECOVERED: f32 = 0.92;

/// What the owner allows, as `[policy]` says it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rules {
    /// When to work, such as `mon-fri 18:00-08:00`; nothing said means always.
    pub schedule: Vec<Window>,
    /// Minutes without anybody at keyboard, mouse or terminal before work begins; 0 works beside them.
    pub idle_minutes: u32,
    /// Leave the machine as long as a program that is not ours computes on a GPU.
    pub yield_gpu: bool,
    /// Degrees Celsius of a GPU at which the machine is left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_gpu_temperature_c: Option<u32>,
    /// Watts of a GPU at which it is left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_gpu_power_w: Option<u32>,
    /// What becomes of running jobs when the schedule ends or somebody comes back.
    pub running_jobs: RunningJobs,
    /// The only engines offered; nothing said means all.
    pub runtimes: Vec<RuntimeType>,
    /// Cargos that are never run.
    pub refused_cargos: Vec<Slug>,
    /// The least that jobs must pay.
    #[serde(skip_serializing_if = "is_anything")]
    pub asking: Asking,
    /// What holds for single GPUs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gpu: Vec<GpuRule>,
}

fn is_anything(asking: &Asking) -> bool {
    *asking == Asking::default()
}

/// What becomes of running jobs when the owner's rules say stop.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunningJobs {
    /// They are handed back at once and go on elsewhere; memory is free within about a second.
    #[default]
    HandBack,
    /// They may finish.
    Finish,
}

/// The owner's own word.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "order")]
pub enum OwnerOrder {
    /// The rules decide.
    #[default]
    None,
    /// No work until this moment, or until told otherwise.
    Pause {
        /// When it ends by itself.
        until: Option<Timestamp>,
    },
    /// No new work; what runs may finish.
    Drain,
}

/// Why no work is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The owner paused it.
    Paused,
    /// The owner lets it drain.
    Draining,
    /// Outside the owner's hours.
    Schedule,
    /// Somebody is at the machine.
    InUse,
    /// Whether somebody is at the machine, or at its GPUs, cannot be told.
    Unknown,
    /// Another program computes on a GPU.
    GpuInUse,
    /// A GPU is too hot.
    Temperature,
    /// A GPU draws too much.
    Power,
}

/// What follows from the rules now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "work")]
pub enum Verdict {
    /// Take jobs.
    Yes,
    /// Take none; what runs may finish.
    Finish {
        /// For programs.
        cause: Cause,
        /// For people.
        reason: String,
    },
    /// Take none, hand back what runs, free the memory.
    Leave {
        /// For programs.
        cause: Cause,
        /// For people.
        reason: String,
    },
}

impl Verdict {
    /// Why not, where it is not yes.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Yes => None,
            Self::Finish { reason, .. } | Self::Leave { reason, .. } => Some(reason),
        }
    }

    /// The cause, where it is not yes.
    pub fn cause(&self) -> Option<Cause> {
        match self {
            Self::Yes => None,
            Self::Finish { cause, .. } | Self::Leave { cause, .. } => Some(*cause),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Yes => f.write_str("working"),
            Self::Finish { reason, .. } => write!(f, "finishing: {reason}"),
            Self::Leave { reason, .. } => write!(f, "paused: {reason}"),
        }
    }
}

/// Whether this Island takes work now, in one value, so that no two answers to that question can differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stance {
    /// What follows from the owner's rules and orders.
    pub verdict: Verdict,
    /// GPUs on which nothing is started, with the reason.
    pub paused_gpus: PausedGpus,
    /// Whether the agent is stopping.
    pub is_stopping: bool,
}

impl Stance {
    /// Whether a new job may be accepted.
    pub fn accepts_work(&self) -> bool {
        !self.is_stopping && self.verdict == Verdict::Yes
    }
}

impl Default for Stance {
    fn default() -> Self {
        Self { verdict: Verdict::Yes, paused_gpus: PausedGpus::new(), is_stopping: false }
    }
}

/// Returns what follows from the rules, the owner's order and the sensors; `before` is the previous result.
pub fn decide(
    rules: &Rules,
    order: OwnerOrder,
    moment: Moment,
    readings: &SensorReadings,
    before: &Verdict,
) -> Verdict {
    let leave = |cause, reason: String| Verdict::Leave { cause, reason };
    let stop = |cause, reason: String| match rules.running_jobs {
        RunningJobs::HandBack => Verdict::Leave { cause, reason },
        RunningJobs::Finish => Verdict::Finish { cause, reason },
    };
    match order {
        OwnerOrder::Pause { until: None } => {
            return leave(Cause::Paused, "until `island-agent resume`".into());
        }
        OwnerOrder::Pause { until: Some(until) } if moment.now < until => {
            return leave(Cause::Paused, format!("until {until}"));
        }
        OwnerOrder::Drain => {
            return Verdict::Finish { cause: Cause::Draining, reason: "the owner asked for it".into() };
        }
        OwnerOrder::Pause { .. } | OwnerOrder::None => {}
    }
    if let Some(verdict) = too_much(rules, readings, before) {
        return verdict;
    }
    if rules.yield_gpu && readings.gpu_in_use {
        return stop(Cause::GpuInUse, "another program computes on a GPU".into());
    }
    if rules.yield_gpu && readings.gpu_untold {
        return stop(Cause::Unknown, "nothing here tells whether another program computes on a GPU".into());
    }
    if rules.idle_minutes > 0 {
        let wanted = Duration::from_mins(u64::from(rules.idle_minutes));
        match readings.idle {
            None => {
                return stop(Cause::Unknown, "nothing here tells whether somebody is at the machine".into());
            }
            Some(idle) if idle < wanted => {
                let minutes = rules.idle_minutes;
                return stop(Cause::InUse, format!("somebody was here in the last {minutes} min"));
            }
            Some(_) => {}
        }
    }
    if !rules.schedule.is_empty() && !rules.schedule.iter().any(|window| window.covers(&moment)) {
        return stop(Cause::Schedule, "outside the hours of the schedule".into());
    }
    Verdict::Yes
}

/// Heat and power: whatever runs ends at once, for it is what heats.
fn too_much(rules: &Rules, readings: &SensorReadings, before: &Verdict) -> Option<Verdict> {
    let over = |value: Option<f32>, limit: Option<u32>, cause| {
        let (value, limit) = (value?, limit? as f32);
        let bound = if before.cause() == Some(cause) { limit * RECOVERED } else { limit };
        (value >= bound).then_some((value, limit))
    };
    if let Some((value, limit)) =
        over(readings.gpu_temperature_c, rules.max_gpu_temperature_c, Cause::Temperature)
    {
        let reason = format!("a GPU has {value:.0} °C, the limit is {limit:.0} °C");
        return Some(Verdict::Leave { cause: Cause::Temperature, reason });
    }
    let (value, limit) = over(readings.gpu_power_w, rules.max_gpu_power_w, Cause::Power)?;
    let reason = format!("a GPU draws {value:.0} W, the limit is {limit:.0} W");
    Some(Verdict::Leave { cause: Cause::Power, reason })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(weekday: u8, minute: u16) -> Moment {
        Moment { now: Timestamp::from_unix_ms(1_000_000), weekday, minute }
    }

    fn cause(rules: &Rules, order: OwnerOrder, readings: &SensorReadings) -> Option<Cause> {
        decide(rules, order, at(0, 0), readings, &Verdict::Yes).cause()
    }

    #[test]
    fn without_rules_it_works() {
        assert_eq!(cause(&Rules::default(), OwnerOrder::None, &SensorReadings::default()), None);
    }

    #[test]
    fn the_owners_word_goes_first_and_ends_by_itself() {
        let (rules, readings) = (Rules::default(), SensorReadings::default());
        let until = |ms| OwnerOrder::Pause { until: Some(Timestamp::from_unix_ms(ms)) };
        assert_eq!(cause(&rules, OwnerOrder::Pause { until: None }, &readings), Some(Cause::Paused));
        assert_eq!(cause(&rules, until(1_000_001), &readings), Some(Cause::Paused));
        assert_eq!(cause(&rules, until(1_000_000), &readings), None);
        let drains = decide(&rules, OwnerOrder::Drain, at(0, 0), &readings, &Verdict::Yes);
        assert!(matches!(drains, Verdict::Finish { cause: Cause::Draining, .. }), "what runs may finish");
    }

    #[test]
    fn whoever_asks_for_an_idle_machine_gets_one() {
        let rules = Rules { idle_minutes: 5, ..Rules::default() };
        let idle = |idle| SensorReadings { idle, ..SensorReadings::default() };
        assert_eq!(
            cause(&rules, OwnerOrder::None, &idle(Some(Duration::from_secs(299)))),
            Some(Cause::InUse)
        );
        assert_eq!(cause(&rules, OwnerOrder::None, &idle(Some(Duration::from_mins(5)))), None);
        assert_eq!(cause(&rules, OwnerOrder::None, &idle(None)), Some(Cause::Unknown));
        let patient = Rules { running_jobs: RunningJobs::Finish, ..rules };
        let verdict =
            decide(&patient, OwnerOrder::None, at(0, 0), &idle(Some(Duration::ZERO)), &Verdict::Yes);
        assert!(matches!(verdict, Verdict::Finish { cause: Cause::InUse, .. }));
    }

    #[test]
    fn heat_ends_work_until_it_is_clearly_cooler() {
        let rules = Rules { max_gpu_temperature_c: Some(80), ..Rules::default() };
        let hot = |celsius| SensorReadings { gpu_temperature_c: Some(celsius), ..SensorReadings::default() };
        let then =
            |celsius, before: &Verdict| decide(&rules, OwnerOrder::None, at(0, 0), &hot(celsius), before);
        let left = then(80.0, &Verdict::Yes);
        assert_eq!(left.cause(), Some(Cause::Temperature));
        assert_eq!(then(79.0, &Verdict::Yes), Verdict::Yes);
        assert_eq!(then(79.0, &left).cause(), Some(Cause::Temperature), "hardly cooler");
        assert_eq!(then(73.0, &left), Verdict::Yes);
    }

    #[test]
    fn whoever_yields_to_other_programs_must_see_them() {
        let untold = SensorReadings { gpu_untold: true, ..SensorReadings::default() };
        let yields = Rules { yield_gpu: true, ..Rules::default() };
        assert_eq!(cause(&yields, OwnerOrder::None, &untold), Some(Cause::Unknown));
        assert_eq!(cause(&Rules::default(), OwnerOrder::None, &untold), None);
    }

    #[test]
    fn rules_are_read_and_nonsense_is_not() {
        let text = "schedule = ['mon-fri 18:00-08:00', 'sat-sun 00:00-24:00']\nidle_minutes = 10\nruntimes = ['llmcpp']";
        let rules: Rules = toml::from_str(text).expect("rules");
        assert_eq!((rules.schedule.len(), rules.idle_minutes, rules.runtimes.len()), (2, 10, 1));
        let shown = toml::to_string(&rules).expect("TOML");
        assert_eq!(toml::from_str::<Rules>(&shown).expect("read again"), rules);
        for wrong in
            ["schedule = ['noon']", "idle = 5", "running_jobs = 'kill'", "refused_cargos = ['No Slug']"]
        {
            assert!(toml::from_str::<Rules>(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        /// Whatever is felt: a machine that is paused never works, and one without rules always does.
        #[test]
        fn no_feeling_overrules_the_owner(
            idle in proptest::option::of(0_u64..10_000),
            gpu_in_use in any::<bool>(),
            gpu_untold in any::<bool>(),
            celsius in proptest::option::of(0.0_f32..120.0),
            weekday in 0_u8..7,
            minute in 0_u16..1440,
        ) {
            let readings = SensorReadings {
                idle: idle.map(Duration::from_secs),
                gpu_in_use,
                gpu_untold,
                gpu_temperature_c: celsius,
                gpu_power_w: None,
            };
            let verdict = |order| decide(&Rules::default(), order, at(weekday, minute), &readings, &Verdict::Yes);
            prop_assert_eq!(verdict(OwnerOrder::None), Verdict::Yes);
            prop_assert_eq!(verdict(OwnerOrder::Pause { until: None }).cause(), Some(Cause::Paused));
        }
    }
}
