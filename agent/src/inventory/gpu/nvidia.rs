//! NVIDIA's GPUs. The driver may appear, disappear and lose a GPU while the agent runs: it is opened again, at growing intervals.
//!
//! GPUs of laptops are suspended while no program has them open, and each poll wakes them. So the driver is closed while they are idle, and
//! what it reported last is repeated until a worker is granted one of them or somebody else has woken one.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::{Duration, Instant},
};

use super::{GpuReadings, Moment, Probe, ProbeReport, Roots, suspension::Suspension};

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
    fn gpus(&self) -> Result<Report, String>;
}

/// The report of the driver.
#[derive(Debug, Default)]
pub struct Report {
    /// The GPUs that answer.
    pub seen: Vec<GpuReadings>,
    /// Reasons of GPUs that opening the driver again may restore.
    pub lost: Vec<String>,
    /// Reasons of GPUs that it will not restore.
    pub left_out: Vec<String>,
}

/// Why the driver is not open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Closed {
    /// The reason.
    pub reason: String,
    /// Whether the driver is installed.
    pub installed: bool,
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
            }),
            suspension: Suspension::of(roots),
            slots: BTreeSet::new(),
            idle_since: None,
            rest: None,
            again: None,
            wait: FIRST_WAIT,
            was_open: false,
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
        self.state = Err(Closed { reason: "the NVIDIA driver is being opened".to_owned(), installed: true });
        self.state = (self.open)();
        self.slots = slots;
        match &self.state {
            Ok(_) => {
                self.was_open = true;
                self.again = None;
            }
            Err(_) => self.later(now),
        }
    }

    /// Returns what was last reported, if GPUs are still left alone.
    fn resting(&mut self, moment: &Moment<'_>) -> Option<ProbeReport> {
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
    fn rest_if_idle(&mut self, report: &ProbeReport, moment: &Moment<'_>) {
        let is_idle = |seen: &GpuReadings| seen.computing.as_ref().is_ok_and(BTreeMap::is_empty);
        let are_idle = !moment.has_workers && self.again.is_none() && report.seen.iter().all(is_idle);
        if !are_idle || !self.suspension.is_possible() {
            self.idle_since = None;
            return;
        }
        let since = *self.idle_since.get_or_insert(moment.now);
        if moment.now.saturating_duration_since(since) >= IDLE {
            let reason = "the NVIDIA driver is closed while its GPUs are idle".to_owned();
            self.state = Err(Closed { reason, installed: true });
            self.rest = Some(Rest { until: moment.now + REST, report: report.clone() });
        }
    }

    fn later(&mut self, now: Instant) {
        self.again = Some(now + self.wait);
        self.wait = (self.wait * 2).min(LONGEST_WAIT);
    }
}

impl Probe for Nvidia {
    fn poll(&mut self, moment: &Moment<'_>) -> ProbeReport {
        if let Some(report) = self.resting(moment) {
            return report;
        }
        self.reopen(moment.now);
        let report = match &self.state {
            Ok(driver) => driver.gpus(),
            Err(closed) => {
                let reason = closed.reason.clone();
                // A driver that disappeared is a problem; one that was never installed is not.
                return if self.was_open || closed.installed {
                    ProbeReport { problems: vec![reason], ..ProbeReport::default() }
                } else {
                    ProbeReport { none: Some(reason), ..ProbeReport::default() }
                };
            }
        };
        match report {
            Ok(report) => {
                if report.lost.is_empty() {
                    (self.again, self.wait) = (None, FIRST_WAIT);
                } else if self.again.is_none() {
                    self.later(moment.now);
                }
                let none = report.seen.is_empty().then(|| "the NVIDIA driver finds no GPU".to_owned());
                let problems = report.lost.into_iter().chain(report.left_out).collect();
                let report = ProbeReport { seen: report.seen, none, problems };
                self.rest_if_idle(&report, moment);
                report
            }
            Err(reason) => {
                self.state = Err(Closed { reason: reason.clone(), installed: true });
                self.later(moment.now);
                ProbeReport { problems: vec![reason], ..ProbeReport::default() }
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
