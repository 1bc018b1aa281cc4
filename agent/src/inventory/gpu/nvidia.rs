//! NVIDIA's GPUs. The driver may appear, disappear and lose a GPU while the agent runs: it is opened again, at growing intervals.
//!
//! GPUs of laptops are suspended while no program has them open, and each poll wakes them. So the driver is closed while they are idle, and
//! what it reported last is repeated until a worker is granted one of them or somebody else has woken one.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::{Duration, Instant},
};

use island_protocol::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::{GpuReadings, Moment, Probe, ProbeReport, Roots, suspension::Suspension};
use crate::clock;

/// Time between losing the driver, or a GPU, and the first try to open it again; doubled after each failure.
const FIRST_WAIT: Duration = Duration::from_secs(5);
/// The longest time between two tries.
const LONGEST_WAIT: Duration = Duration::from_mins(5);

/// How long GPUs are idle before the driver is closed: after a worker has ended, its memory is seen to be free.
const IDLE: Duration = Duration::from_secs(30);
/// Time for which it remains closed at least. A GPU is suspended some seconds after the last program has closed it.
const REST: Duration = Duration::from_mins(1);

/// The open driver.
pub trait Driver: fmt::Debug + Send {
    /// All GPUs now.
    fn gpus(&self) -> Result<Report, Closed>;
}

/// The report of the driver.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// The GPUs that answer.
    pub seen: Vec<GpuReadings>,
    /// Reasons of GPUs that opening the driver again may restore.
    pub lost: Vec<String>,
    /// Reasons of GPUs that it will not restore.
    pub left_out: Vec<String>,
}

/// Why the driver is not open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Closed {
    /// The reason.
    pub reason: String,
    /// Whether the driver is installed.
    pub installed: bool,
    /// Whether it hangs or crashes, so that nothing is known about its GPUs.
    pub is_silent: bool,
}

/// Opens the driver.
pub type Open = Box<dyn FnMut() -> Result<Box<dyn Driver>, Closed> + Send>;

/// Polls NVIDIA's GPUs.
pub(super) struct Nvidia {
    open: Open,
    state: Result<Box<dyn Driver>, Closed>,
    suspension: Suspension,
    /// The GPUs that the kernel's driver listed when it was opened.
    slots: BTreeSet<String>,
    /// Since when no program computes.
    idle_since: Option<Instant>,
    rest: Option<Rest>,
    /// When to open it again.
    again: Option<Instant>,
    wait: Duration,
    was_open: bool,
    opened: Option<Instant>,
    /// Since when it hangs or crashes.
    silent_since: Option<Timestamp>,
}

/// The time in which the driver is closed so that idle GPUs are suspended.
#[derive(Debug)]
struct Rest {
    until: Instant,
    /// What it reported last.
    report: ProbeReport,
}

impl Nvidia {
    pub(super) fn new(open: Open, roots: &Roots) -> Self {
        Self {
            open,
            state: Err(Closed {
                reason: "the NVIDIA driver was not opened yet".to_owned(),
                installed: false,
                is_silent: false,
            }),
            suspension: Suspension::of(roots),
            slots: BTreeSet::new(),
            idle_since: None,
            rest: None,
            again: None,
            wait: FIRST_WAIT,
            was_open: false,
            opened: None,
            silent_since: None,
        }
    }

    /// Opens the driver if it is time to.
    fn reopen(&mut self, now: Instant) {
        let slots = self.suspension.gpus();
        let due = self.again.map_or(self.state.is_err(), |again| now >= again);
        if !due && slots == self.slots {
            return;
        }
        // Closed first: the library is one per process.
        let reason = "the NVIDIA driver is being opened".to_owned();
        self.state = Err(Closed { reason, installed: true, is_silent: false });
        self.state = (self.open)();
        self.slots = slots;
        match &self.state {
            Ok(_) => {
                self.was_open = true;
                self.opened = Some(now);
                self.again = None;
            }
            Err(_) => self.later(now),
        }
    }

    /// Returns what was last reported, if GPUs are still left alone.
    fn resting(&mut self, moment: &Moment) -> Option<ProbeReport> {
        let rest = self.rest.take()?;
        let suspended = self.suspension.suspended();
        // One that is awake after that time was woken by somebody, and its values change.
        let is_over = moment.now >= rest.until && suspended.len() < self.slots.len();
        let has_changed = self.suspension.gpus() != self.slots || !self.suspension.is_possible();
        if moment.has_workers || is_over || has_changed {
            self.idle_since = None;
            return None;
        }
        let mut report = rest.report.clone();
        let asleep = report.seen.iter_mut().filter(|seen| suspended.contains(&seen.address));
        asleep.for_each(GpuReadings::fall_asleep);
        self.rest = Some(rest);
        Some(report)
    }

    /// Closes the driver if the GPUs have been idle for some time, and are suspended then.
    fn rest_if_idle(&mut self, report: &ProbeReport, moment: &Moment) {
        let is_idle = |seen: &GpuReadings| seen.computing.as_ref().is_ok_and(BTreeMap::is_empty);
        let are_idle = !moment.has_workers && self.again.is_none() && report.seen.iter().all(is_idle);
        if !are_idle || !self.suspension.is_possible() {
            self.idle_since = None;
            return;
        }
        let since = *self.idle_since.get_or_insert(moment.now);
        if moment.now.saturating_duration_since(since) >= IDLE {
            let reason = "the NVIDIA driver is closed while its GPUs are idle".to_owned();
            self.state = Err(Closed { reason, installed: true, is_silent: false });
            self.rest = Some(Rest { until: moment.now + REST, report: report.clone() });
        }
    }

    /// The report while the driver is closed.
    fn without(&mut self, closed: Closed) -> ProbeReport {
        let Closed { mut reason, installed, is_silent } = closed;
        if is_silent {
            let since = *self.silent_since.get_or_insert_with(clock::now);
            reason = format!("{reason}, since {}", clock::local(since));
        } else {
            self.silent_since = None;
        }
        // A driver that disappeared is a problem; one that was never installed is not.
        if self.was_open || installed {
            ProbeReport { problems: vec![reason], is_silent, ..ProbeReport::default() }
        } else {
            ProbeReport { none: Some(reason), ..ProbeReport::default() }
        }
    }

    fn later(&mut self, now: Instant) {
        self.again = Some(now + self.wait);
        self.wait = (self.wait * 2).min(LONGEST_WAIT);
    }
}

impl Probe for Nvidia {
    fn name(&self) -> &'static str {
        "NVIDIA GPUs"
    }

    fn poll(&mut self, moment: &Moment) -> ProbeReport {
        if let Some(report) = self.resting(moment) {
            return report;
        }
        self.reopen(moment.now);
        let report = match &self.state {
            Ok(driver) => driver.gpus(),
            Err(closed) => {
                let closed = closed.clone();
                return self.without(closed);
            }
        };
        match report {
            Ok(report) => {
                self.silent_since = None;
                if report.lost.is_empty() {
                    self.again = None;
                    // A driver that fails soon after it was opened is opened ever less often.
                    if self.opened.is_none_or(|opened| moment.now.duration_since(opened) >= self.wait) {
                        self.wait = FIRST_WAIT;
                    }
                } else if self.again.is_none() {
                    self.later(moment.now);
                }
                let none = report.seen.is_empty().then(|| "the NVIDIA driver finds no GPU".to_owned());
                let problems = report.lost.into_iter().chain(report.left_out).collect();
                let report = ProbeReport { seen: report.seen, none, problems, is_silent: false };
                self.rest_if_idle(&report, moment);
                report
            }
            Err(closed) => {
                self.state = Err(closed.clone());
                self.later(moment.now);
                self.without(closed)
            }
        }
    }
}

impl fmt::Debug for Nvidia {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nvidia")
            .field("state", &self.state)
            .field("again", &self.again)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(super) mod tests;
