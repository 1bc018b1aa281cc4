//! With a scripted driver.

use std::{
    fs,
    sync::{Arc, Mutex},
};

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
    pub(in super::super) polled: u32,
    /// Whether a program computes on them.
    pub(in super::super) busy: bool,
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

    fn polled(&self) -> u32 {
        self.0.lock().expect("a script").polled
    }

    /// Whether the driver is open: the test has one of these, and the function that opens it another.
    fn is_open(&self) -> bool {
        Arc::strong_count(&self.0) > 2
    }
}

impl Driver for Fake {
    fn gpus(&self) -> Result<Report, Closed> {
        let mut script = self.0.lock().expect("a script");
        script.polled += 1;
        let computing = if script.busy { BTreeMap::from([(1, None)]) } else { BTreeMap::new() };
        let seen = |id: &&str| GpuReadings { computing: Ok(computing.clone()), ..seen(id) };
        match &script.fails {
            Some(reason) => Err(Closed { reason: reason.clone(), installed: true, is_silent: false }),
            None => Ok(Report {
                seen: script.gpus.iter().map(seen).collect(),
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
        part_of: None,
        vendor: Vendor::Nvidia,
        name: "Some GPU".to_owned(),
        vram_mb: 8000,
        used_mb: Ok(1000),
        busy_percent: Ok(5),
        temperature_c: Ok(40),
        power_w: Ok(50.0),
        computing: Ok([].into()),
        drawing: [].into(),
        handle: Some(id.to_owned()),
    }
}

struct Fixture {
    probe: Nvidia,
    start: Instant,
    has_workers: bool,
    root: tempfile::TempDir,
}

impl Fixture {
    fn of(fake: &Fake) -> Self {
        let root = tempfile::tempdir().expect("a folder");
        let at = |folder| root.path().join(folder);
        let roots = Roots { sys: at("sys"), proc: at("proc"), share: at("share") };
        let probe = Nvidia::new(fake.open(), &roots);
        Self { probe, start: Instant::now(), has_workers: false, root }
    }

    /// Writes a file of the kernel about the GPU `a`.
    fn write(&self, file: &str, text: &str) {
        let path = self.root.path().join(file);
        fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
        fs::write(path, format!("{text}\n")).expect("written");
    }

    /// Describes the GPU `a`: whether the driver suspends it, whether the owner allows that, and whether it is now.
    fn power(&self, driver: &str, control: &str, status: &str) {
        let text = format!("Runtime D3 status:          {driver}\nVideo Memory:               Active");
        self.write("proc/driver/nvidia/gpus/0000:01:00.1/power", &text);
        self.write("sys/bus/pci/devices/0000:01:00.1/power/control", control);
        self.write("sys/bus/pci/devices/0000:01:00.1/power/runtime_status", status);
    }

    fn at(&mut self, seconds: u64) -> ProbeReport {
        let now = self.start + Duration::from_secs(seconds);
        self.probe.poll(&Moment::new(now, self.root.path()).with_workers(self.has_workers))
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
        script.closed = Some(Closed { reason: "not loaded".into(), installed: true, is_silent: false });
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
    assert_eq!((report.seen.len(), report.problems.as_slice()), (1, ["bb is lost".to_owned()].as_slice()));
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
    let slot = watch.root.path().join("proc/driver/nvidia/gpus/0000:02:00.0");
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
    let closed =
        Closed { reason: "no NVIDIA driver is installed".into(), installed: false, is_silent: false };
    fake.set(|script| script.closed = Some(closed));
    let report = Fixture::of(&fake).at(0);
    assert_eq!(report.none.as_deref(), Some("no NVIDIA driver is installed"));
    assert!(report.problems.is_empty());
}

const FINE: &str = "Enabled (fine-grained)";

#[test]
fn idle_gpus_of_a_laptop_are_left_alone_until_somebody_uses_them() {
    let fake = Fake::default();
    fake.set(|script| script.gpus = vec!["a"]);
    let mut watch = Fixture::of(&fake);
    watch.power(FINE, "auto", "active");
    (0..30).step_by(5).for_each(|second| drop(watch.at(second)));
    assert_eq!((fake.polled(), fake.is_open()), (6, true), "a worker may just have ended");
    let last = watch.at(30);
    assert_eq!((fake.polled(), fake.is_open()), (7, false), "while it is open, no GPU is suspended");
    assert_eq!(watch.at(60), last);
    watch.power(FINE, "auto", "suspended");
    for second in [65, 95, 4000] {
        let report = watch.at(second);
        let seen = &report.seen[0];
        assert_eq!((&seen.used_mb, seen.missing().len()), (&Ok(1000), 0), "its memory is known");
        assert_eq!(seen.temperature_c, Err(super::super::ASLEEP.to_owned()));
    }
    assert_eq!(fake.polled(), 7);
    fake.set(|script| script.busy = true);
    watch.power(FINE, "auto", "active");
    assert!(watch.at(4005).seen[0].computing.as_ref().is_ok_and(|computing| computing.len() == 1));
    watch.at(4010);
    assert_eq!((fake.polled(), fake.is_open()), (9, true), "it is in use");
    fake.set(|script| script.busy = false);
    (4015..=4045).step_by(5).for_each(|second| drop(watch.at(second)));
    assert!(!fake.is_open());
    watch.has_workers = true;
    watch.at(4050);
    assert!(fake.is_open(), "a worker was granted it");
}

#[test]
fn a_gpu_that_somebody_has_woken_is_polled_until_it_was_idle_for_some_time() {
    let fake = Fake::default();
    fake.set(|script| script.gpus = vec!["a"]);
    let mut watch = Fixture::of(&fake);
    watch.power(FINE, "auto", "active");
    (0..=30).step_by(5).for_each(|second| drop(watch.at(second)));
    assert!(!fake.is_open());
    // Still awake after its rest, as with a program that draws.
    (90..120).step_by(5).for_each(|second| drop(watch.at(second)));
    assert!(fake.is_open(), "its values change");
    watch.at(120);
    assert!(!fake.is_open());
}

#[test]
fn gpus_that_are_never_suspended_are_always_polled() {
    for (driver, control) in [("Not supported", "auto"), ("Disabled by default", "auto"), (FINE, "on")] {
        let fake = Fake::default();
        fake.set(|script| script.gpus = vec!["a"]);
        let mut watch = Fixture::of(&fake);
        watch.power(driver, control, "active");
        (0..100).for_each(|second| drop(watch.at(second)));
        assert_eq!((fake.polled(), fake.is_open()), (100, true), "{driver}, {control}");
    }
}
