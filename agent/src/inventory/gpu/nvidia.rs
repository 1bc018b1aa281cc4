//! NVIDIA's GPUs. The driver may appear, disappear and lose a GPU while the agent runs: it is opened again, at growing intervals.

use std::{
    collections::BTreeSet,
    fmt, fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use super::{GpuReadings, Moment, Probe, ProbeReport};

/// Time between losing the driver, or a GPU, and the first try to open it again; doubled after each failure.
const FIRST_WAIT: Duration = Duration::from_secs(5);
/// The longest time between two tries.
const LONGEST_WAIT: Duration = Duration::from_mins(5);

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
    /// The folder in which the kernel's driver lists its GPUs, whether NVML is open or not.
    listed: PathBuf,
    /// The GPUs listed when it was opened.
    slots: BTreeSet<String>,
    /// When to open it again.
    again: Option<Instant>,
    wait: Duration,
    was_open: bool,
}

impl Nvidia {
    pub(super) fn new(open: Open, proc: &Path) -> Self {
        Self {
            open,
            state: Err(Closed {
                reason: "the NVIDIA driver was not opened yet".to_owned(),
                installed: false,
            }),
            listed: proc.join("driver/nvidia/gpus"),
            slots: BTreeSet::new(),
            again: None,
            wait: FIRST_WAIT,
            was_open: false,
        }
    }

    /// Opens the driver if it is time to.
    fn reopen(&mut self, now: Instant) {
        let slots = slots(&self.listed);
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

    fn later(&mut self, now: Instant) {
        self.again = Some(now + self.wait);
        self.wait = (self.wait * 2).min(LONGEST_WAIT);
    }
}

impl Probe for Nvidia {
    fn poll(&mut self, moment: &Moment<'_>) -> ProbeReport {
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
                ProbeReport { seen: report.seen, none, problems }
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

fn slots(listed: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(listed).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::{Arc, Mutex};

    use super::{super::Vendor, *};

    /// What the scripted driver reports next.
    #[derive(Debug, Clone, Default)]
    pub(in super::super) struct Fake(pub(in super::super) Arc<Mutex<Script>>);

    #[derive(Debug, Default)]
    pub(in super::super) struct Script {
        pub(in super::super) closed: Option<Closed>,
        pub(in super::super) fails: Option<String>,
        pub(in super::super) gpus: Vec<&'static str>,
        pub(in super::super) lost: Vec<&'static str>,
        pub(in super::super) opened: u32,
    }

    impl Fake {
        pub(in super::super) fn open(&self) -> Open {
            let fake = self.clone();
            Box::new(move || {
                let mut script = fake.0.lock().expect("a script");
                script.opened += 1;
                match &script.closed {
                    Some(closed) => Err(closed.clone()),
                    None => Ok(Box::new(fake.clone())),
                }
            })
        }

        pub(in super::super) fn set(&self, change: impl FnOnce(&mut Script)) {
            change(&mut self.0.lock().expect("a script"));
        }

        fn opened(&self) -> u32 {
            self.0.lock().expect("a script").opened
        }
    }

    impl Driver for Fake {
        fn gpus(&self) -> Result<Report, String> {
            let script = self.0.lock().expect("a script");
            match &script.fails {
                Some(reason) => Err(reason.clone()),
                None => Ok(Report {
                    seen: script.gpus.iter().map(|id| seen(id)).collect(),
                    lost: script.lost.iter().map(|id| format!("{id} is lost")).collect(),
                    left_out: Vec::new(),
                }),
            }
        }
    }

    pub(in super::super) fn seen(id: &str) -> GpuReadings {
        GpuReadings {
            id: id.to_owned(),
            address: format!("0000:01:00.{}", id.len()),
            vendor: Vendor::Nvidia,
            name: "Some GPU".to_owned(),
            vram_mb: 8000,
            used_mb: Ok(1000),
            busy_percent: Ok(5),
            temperature_c: Ok(40),
            power_w: Ok(50.0),
            computing: Ok([].into()),
            handle: Some(id.to_owned()),
        }
    }

    struct Fixture {
        probe: Nvidia,
        start: Instant,
        proc: tempfile::TempDir,
    }

    impl Fixture {
        fn of(fake: &Fake) -> Self {
            let proc = tempfile::tempdir().expect("a folder");
            Self { probe: Nvidia::new(fake.open(), proc.path()), start: Instant::now(), proc }
        }

        fn at(&mut self, seconds: u64) -> ProbeReport {
            let now = self.start + Duration::from_secs(seconds);
            self.probe.poll(&Moment::new(now, self.proc.path()))
        }
    }

    #[test]
    fn a_lost_driver_is_opened_again_at_growing_intervals() {
        let fake = Fake::default();
        fake.set(|script| script.gpus = vec!["a"]);
        let mut watch = Fixture::of(&fake);
        assert_eq!(watch.at(0).seen.len(), 1);
        fake.set(|script| {
            script.fails = Some("the driver is unloaded".into());
            script.closed = Some(Closed { reason: "not loaded".into(), installed: true });
        });
        assert_eq!(watch.at(5).problems, ["the driver is unloaded"]);
        let opened = |watch: &mut Fixture, seconds: std::ops::Range<u64>| {
            let before = fake.opened();
            for second in seconds {
                assert!(watch.at(second).seen.is_empty());
            }
            fake.opened() - before
        };
        assert_eq!(opened(&mut watch, 6..10), 0, "not immediately");
        assert_eq!(opened(&mut watch, 10..100), 4, "after 5, 15, 35 and 75 seconds");
        assert_eq!(opened(&mut watch, 100..2000), 7, "finally every five minutes");
        fake.set(|script| (script.fails, script.closed) = (None, None));
        let back = (2000..2301).find(|second| !watch.at(*second).seen.is_empty());
        assert!(back.is_some(), "it is found again");
        assert!(watch.at(2301).problems.is_empty());
    }

    #[test]
    fn a_lost_gpu_does_not_affect_others() {
        let fake = Fake::default();
        fake.set(|script| (script.gpus, script.lost) = (vec!["a"], vec!["bb"]));
        let mut watch = Fixture::of(&fake);
        let report = watch.at(0);
        assert_eq!(
            (report.seen.len(), report.problems.as_slice()),
            (1, ["bb is lost".to_owned()].as_slice())
        );
        assert_eq!(watch.at(4).seen.len(), 1);
        assert_eq!(fake.opened(), 1);
        fake.set(|script| (script.gpus, script.lost) = (vec!["a", "bb"], vec![]));
        assert_eq!(watch.at(5).seen.len(), 2);
        assert_eq!(fake.opened(), 2, "opened again for the lost one");
        watch.at(500);
        assert_eq!(fake.opened(), 2, "and not again");
    }

    #[test]
    fn an_added_gpu_is_found_at_the_next_poll() {
        let fake = Fake::default();
        fake.set(|script| script.gpus = vec!["a"]);
        let mut watch = Fixture::of(&fake);
        watch.at(0);
        let slot = watch.proc.path().join("driver/nvidia/gpus/0000:02:00.0");
        fs::create_dir_all(slot).expect("folders");
        fake.set(|script| script.gpus = vec!["a", "bb"]);
        watch.at(1);
        assert_eq!(fake.opened(), 2, "NVML lists only GPUs that existed when it was opened");
        watch.at(2);
        assert_eq!(fake.opened(), 2);
    }

    #[test]
    fn a_machine_without_the_driver_has_no_problem() {
        let fake = Fake::default();
        let closed = Closed { reason: "no NVIDIA driver is installed".into(), installed: false };
        fake.set(|script| script.closed = Some(closed));
        let report = Fixture::of(&fake).at(0);
        assert_eq!(report.none.as_deref(), Some("no NVIDIA driver is installed"));
        assert!(report.problems.is_empty());
    }
}
