//! When this machine runs jobs: the owner's rules and orders, and what follows from them now. Pure; [`crate::governor`] evaluates it, and
//! [`sensors`] reads the machine.
//!
//! The owner's order (pause, drain) overrides the rules; of several reasons the first in the order of [`decide`] is shown.

use std::{fmt, time::Duration};

use island_protocol::{
    asking::Asking,
    cargo::RuntimeType,
    host::{ControlState, Order},
    ids::Slug,
    time::Timestamp,
};
use serde::{Deserialize, Serialize};

pub mod gpus;
pub mod presence;
pub mod schedule;
pub mod sensors;

use crate::clock;

use gpus::{GpuRule, PausedGpus};
use schedule::{Moment, Window};
use sensors::SensorReadings;

/// How a remote order is described.
const REMOTE: &str = "ordered remotely by the owner's account";

/// Share of a limit below which work resumes, so that it does not stop and resume every minute.
const RECOVERED: f32 = 0.92;

/// The owner's rules: `[policy]` in the settings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rules {
    /// Hours in which jobs run, such as `mon-fri 18:00-08:00`; empty means always.
    pub schedule: Vec<Window>,
    /// Minutes without input at keyboard, mouse or terminal before jobs run; 0 ignores input.
    pub idle_minutes: u32,
    /// Run no jobs while another program computes on an offered GPU.
    pub yield_gpu: bool,
    /// Degrees Celsius of a GPU at which all work stops.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_gpu_temperature_c: Option<u32>,
    /// Watts of a GPU at which all work stops.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_gpu_power_w: Option<u32>,
    /// What happens to running jobs when the schedule ends or a person returns.
    pub running_jobs: RunningJobs,
    /// The only engines offered; empty means all.
    pub runtimes: Vec<RuntimeType>,
    /// Cargos that are never run.
    pub refused_cargos: Vec<Slug>,
    /// The minimum price of jobs.
    #[serde(skip_serializing_if = "is_anything")]
    pub asking: Asking,
    /// Rules for single GPUs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gpu: Vec<GpuRule>,
}

fn is_anything(asking: &Asking) -> bool {
    *asking == Asking::default()
}

/// What happens to running jobs when the rules stop work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunningJobs {
    /// They are handed back at once and continue on other Islands; memory is free within about a second.
    #[default]
    HandBack,
    /// They may finish.
    Finish,
}

/// The owner's last command on this machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "order")]
pub enum OwnerOrder {
    /// The rules decide.
    #[default]
    None,
    /// No jobs until this time, or until `resume`.
    Pause {
        /// When the pause ends; `None` means never.
        until: Option<Timestamp>,
    },
    /// No new jobs; running jobs may finish.
    Drain,
}

/// The order on this machine, and the last one from the owner's account.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Orders {
    /// The owner's last command on this machine.
    pub local: OwnerOrder,
    /// The remote order; `None` if none was given, it was ended, or the settings do not allow any.
    pub remote: Option<RemoteOrder>,
}

/// A remote order, which applies until it is ended remotely or on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RemoteOrder {
    /// No jobs.
    Pause,
    /// No new jobs; running jobs may finish.
    Drain,
}

impl From<OwnerOrder> for Orders {
    fn from(local: OwnerOrder) -> Self {
        Self { local, remote: None }
    }
}

impl Orders {
    /// The remote order, if no order on this machine overrides it.
    pub fn applied_remote(self) -> Option<RemoteOrder> {
        self.remote.filter(|_| self.local == OwnerOrder::None)
    }

    /// The order that applies. One that was given on this machine always does, also beside a stricter remote one:
    /// the person at the machine decides what happens to it.
    pub fn effective(self) -> OwnerOrder {
        match self.applied_remote() {
            Some(RemoteOrder::Pause) => OwnerOrder::Pause { until: None },
            Some(RemoteOrder::Drain) => OwnerOrder::Drain,
            None => self.local,
        }
    }

    /// What is reported about it.
    pub fn state(self, is_allowed: bool) -> ControlState {
        let order = match self.effective() {
            OwnerOrder::None => None,
            OwnerOrder::Pause { .. } => Some(Order::Pause),
            OwnerOrder::Drain => Some(Order::Drain),
        };
        ControlState { allowed: is_allowed, order, remote: self.applied_remote().is_some() }
    }
}

/// Why no jobs run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The owner paused the Island.
    Paused,
    /// The owner ordered it to drain.
    Draining,
    /// An update is about to start.
    Updating,
    /// Outside the owner's hours.
    Schedule,
    /// A person uses the machine.
    InUse,
    /// Whether a person uses the machine, or other programs use its GPUs, is unknown.
    Unknown,
    /// Another program computes on a GPU.
    GpuInUse,
    /// A GPU is too hot.
    Temperature,
    /// A GPU draws too much power.
    Power,
}

/// The result of the rules and orders.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "work")]
pub enum Verdict {
    /// Accept jobs.
    Yes,
    /// Accept none; running jobs may finish.
    Finish {
        /// For programs.
        cause: Cause,
        /// For people.
        reason: String,
    },
    /// Accept none, hand back running jobs, free the memory.
    Leave {
        /// For programs.
        cause: Cause,
        /// For people.
        reason: String,
    },
}

impl Verdict {
    /// Why no jobs are accepted, for people.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Yes => None,
            Self::Finish { reason, .. } | Self::Leave { reason, .. } => Some(reason),
        }
    }

    /// Why no jobs are accepted, for programs.
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

/// Whether this Island accepts jobs now: the one value that all parts of the agent read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stance {
    /// What follows from the owner's rules and orders.
    pub verdict: Verdict,
    /// GPUs on which no worker is started, with the reason.
    pub paused_gpus: PausedGpus,
    /// Whether the agent is stopping.
    pub is_stopping: bool,
    /// The order behind the verdict, and whether remote orders are allowed.
    pub control: ControlState,
}

impl Stance {
    /// Whether a new job may be accepted.
    pub fn accepts_work(&self) -> bool {
        !self.is_stopping && self.verdict == Verdict::Yes
    }
}

impl Default for Stance {
    fn default() -> Self {
        Self {
            verdict: Verdict::Yes,
            paused_gpus: PausedGpus::new(),
            is_stopping: false,
            control: ControlState::default(),
        }
    }
}

/// Returns what follows from the rules, the owner's orders, which are not over, and the sensors; `before` is the previous result.
pub fn decide(
    rules: &Rules,
    orders: impl Into<Orders>,
    moment: Moment,
    readings: &SensorReadings,
    before: &Verdict,
) -> Verdict {
    let leave = |cause, reason: String| Verdict::Leave { cause, reason };
    let stop = |cause, reason: String| match rules.running_jobs {
        RunningJobs::HandBack => Verdict::Leave { cause, reason },
        RunningJobs::Finish => Verdict::Finish { cause, reason },
    };
    let orders = orders.into();
    match orders.effective() {
        OwnerOrder::Pause { until: None } if orders.applied_remote().is_some() => {
            return leave(Cause::Paused, format!("{REMOTE}, until resumed"));
        }
        OwnerOrder::Pause { until: None } => {
            return leave(Cause::Paused, "until `island-agent resume`".into());
        }
        OwnerOrder::Pause { until: Some(until) } => {
            return leave(Cause::Paused, format!("until {}", clock::local(until)));
        }
        OwnerOrder::Drain => {
            let reason = if orders.applied_remote().is_some() { REMOTE } else { "requested by the owner" };
            return Verdict::Finish { cause: Cause::Draining, reason: reason.into() };
        }
        OwnerOrder::None => {}
    }
    if let Some(verdict) = too_much(rules, readings, before) {
        return verdict;
    }
    let is_unmeasured = (rules.max_gpu_temperature_c.is_some() && readings.gpu_temperature_unknown)
        || (rules.max_gpu_power_w.is_some() && readings.gpu_power_unknown);
    if is_unmeasured {
        return stop(Cause::Unknown, "a GPU does not report what `[policy]` limits".into());
    }
    if rules.yield_gpu && readings.gpu_in_use {
        return stop(Cause::GpuInUse, "another program computes on a GPU".into());
    }
    if rules.yield_gpu && readings.gpu_use_unknown {
        return stop(Cause::Unknown, "it is unknown whether another program computes on a GPU".into());
    }
    if rules.idle_minutes > 0 {
        let wanted = Duration::from_mins(u64::from(rules.idle_minutes));
        match readings.idle {
            None => {
                return stop(Cause::Unknown, "it is unknown whether a person uses the machine".into());
            }
            Some(idle) if idle < wanted => {
                let minutes = rules.idle_minutes;
                return stop(Cause::InUse, format!("there was input in the last {minutes} min"));
            }
            Some(_) => {}
        }
    }
    if !rules.schedule.is_empty() && !rules.schedule.iter().any(|window| window.covers(&moment)) {
        return stop(Cause::Schedule, "outside the hours of the schedule".into());
    }
    Verdict::Yes
}

/// Temperature and power: running jobs end at once, because they cause the heat.
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
    fn an_order_on_this_machine_overrides_any_remote_one() {
        for remote in [None, Some(RemoteOrder::Pause), Some(RemoteOrder::Drain)] {
            for local in [OwnerOrder::Pause { until: None }, OwnerOrder::Drain] {
                let orders = Orders { local, remote };
                assert_eq!((orders.effective(), orders.applied_remote()), (local, None), "{orders:?}");
            }
        }
        let orders = Orders { local: OwnerOrder::None, remote: Some(RemoteOrder::Drain) };
        let state = ControlState { allowed: true, order: Some(Order::Drain), remote: true };
        assert_eq!((orders.effective(), orders.state(true)), (OwnerOrder::Drain, state));
    }

    #[test]
    fn without_rules_it_works() {
        assert_eq!(cause(&Rules::default(), OwnerOrder::None, &SensorReadings::default()), None);
    }

    #[test]
    fn the_owners_order_overrides_the_rules() {
        let (rules, readings) = (Rules::default(), SensorReadings::default());
        let until = |ms| OwnerOrder::Pause { until: Some(Timestamp::from_unix_ms(ms)) };
        assert_eq!(cause(&rules, OwnerOrder::Pause { until: None }, &readings), Some(Cause::Paused));
        assert_eq!(cause(&rules, until(1_000_001), &readings), Some(Cause::Paused));
        assert_eq!(cause(&rules, until(1), &readings), Some(Cause::Paused), "the governor ends a pause");
        let drains = decide(&rules, OwnerOrder::Drain, at(0, 0), &readings, &Verdict::Yes);
        assert!(matches!(drains, Verdict::Finish { cause: Cause::Draining, .. }), "running jobs may finish");
    }

    #[test]
    fn no_jobs_run_unless_the_machine_is_idle() {
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
    fn heat_stops_work_until_the_gpu_is_clearly_cooler() {
        let rules = Rules { max_gpu_temperature_c: Some(80), ..Rules::default() };
        let hot = |celsius| SensorReadings { gpu_temperature_c: Some(celsius), ..SensorReadings::default() };
        let then =
            |celsius, before: &Verdict| decide(&rules, OwnerOrder::None, at(0, 0), &hot(celsius), before);
        let left = then(80.0, &Verdict::Yes);
        assert_eq!(left.cause(), Some(Cause::Temperature));
        assert_eq!(then(79.0, &Verdict::Yes), Verdict::Yes);
        assert_eq!(then(79.0, &left).cause(), Some(Cause::Temperature), "not cool enough");
        assert_eq!(then(73.0, &left), Verdict::Yes);
    }

    #[test]
    fn a_limit_that_nothing_measures_stops_work() {
        let limit = Rules { max_gpu_temperature_c: Some(80), ..Rules::default() };
        let unknown = SensorReadings { gpu_temperature_unknown: true, ..SensorReadings::default() };
        assert_eq!(cause(&limit, OwnerOrder::None, &unknown), Some(Cause::Unknown));
        assert_eq!(cause(&Rules::default(), OwnerOrder::None, &unknown), None);
        assert_eq!(cause(&limit, OwnerOrder::None, &SensorReadings::default()), None, "there is no GPU");
        let power = SensorReadings { gpu_power_unknown: true, ..SensorReadings::default() };
        assert_eq!(cause(&limit, OwnerOrder::None, &power), None);
    }

    #[test]
    fn yielding_to_other_programs_requires_that_they_are_visible() {
        let untold = SensorReadings { gpu_use_unknown: true, ..SensorReadings::default() };
        let yields = Rules { yield_gpu: true, ..Rules::default() };
        assert_eq!(cause(&yields, OwnerOrder::None, &untold), Some(Cause::Unknown));
        assert_eq!(cause(&Rules::default(), OwnerOrder::None, &untold), None);
    }

    #[test]
    fn rules_are_read_and_invalid_ones_rejected() {
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
        /// For all readings: a paused machine never accepts jobs, and one without rules always does.
        #[test]
        fn owner_pause_wins_over_sensors(
            idle in proptest::option::of(0_u64..10_000),
            gpu_in_use in any::<bool>(),
            gpu_use_unknown in any::<bool>(),
            celsius in proptest::option::of(0.0_f32..120.0),
            weekday in 0_u8..7,
            minute in 0_u16..1440,
        ) {
            let readings = SensorReadings {
                idle: idle.map(Duration::from_secs),
                gpu_in_use,
                gpu_use_unknown,
                gpu_temperature_c: celsius,
                gpu_temperature_unknown: celsius.is_none(),
                gpu_power_w: None,
                gpu_power_unknown: true,
            };
            let verdict = |order| decide(&Rules::default(), order, at(weekday, minute), &readings, &Verdict::Yes);
            prop_assert_eq!(verdict(OwnerOrder::None), Verdict::Yes);
            prop_assert_eq!(verdict(OwnerOrder::Pause { until: None }).cause(), Some(Cause::Paused));
        }
    }
}
