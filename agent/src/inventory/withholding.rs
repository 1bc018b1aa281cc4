//! Engines, devices and Cargos that this Island does not offer for some time, because jobs failed there through its own fault: an engine on a device, or one Cargo there.
//!
//! The decision is [`Table`], which is pure. A failure counts for the engine on its device and for the Cargo on it. [`THRESHOLD`] failures in
//! a row withhold the engine there if it has never worked on that device, or if they are of several Cargos; otherwise the Cargo alone. After a
//! pause it is offered again; each further failure withholds it for twice as long, and a job that completes ends that.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use island_protocol::ids::{JobId, Slug};
use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};

/// Failures in a row after which something is withheld.
const THRESHOLD: usize = 3;
/// The first pause; doubles with each further one.
const FIRST: Duration = Duration::from_mins(1);
/// The longest pause.
const LONGEST: Duration = Duration::from_hours(6);
/// Time without a failure after which the former ones no longer count.
const FORGOTTEN: Duration = Duration::from_hours(24);
/// Entries of the table; there are few engines and devices, and Cargos are bounded by this.
const MAX_ENTRIES: usize = 1000;

/// An engine on one device.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The engine.
    pub engine: String,
    /// The number of a GPU; `None` for the processor.
    pub gpu: Option<u32>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.gpu {
            Some(gpu) => write!(f, "{} on GPU {gpu}", self.engine),
            None => write!(f, "{} on the processor", self.engine),
        }
    }
}

/// Cause of a failure: a job counts once, however often it is tried.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Cause {
    Job(JobId),
    /// A worker that failed before it had a job.
    Load(u32),
}

/// Subject of withholding: a place, for all Cargos or for one.
type Subject = (Place, Option<Slug>);

#[derive(Debug, Default)]
struct Record {
    causes: BTreeSet<Cause>,
    cargos: BTreeSet<Slug>,
    has_worked: bool,
    /// Number of pauses since a job completed.
    pauses: u32,
    until: Option<Instant>,
    last: Option<Instant>,
    reason: String,
}

impl Record {
    fn note(&mut self, job: Option<JobId>, cargo: &Slug, reason: &str, now: Instant) {
        if self.last.is_some_and(|last| now.duration_since(last) >= FORGOTTEN) {
            *self = Self { has_worked: self.has_worked, ..Self::default() };
        }
        let loads = u32::try_from(self.causes.len()).unwrap_or(u32::MAX);
        self.causes.insert(job.map_or(Cause::Load(loads), Cause::Job));
        self.cargos.insert(cargo.clone());
        self.last = Some(now);
        reason.clone_into(&mut self.reason);
    }

    fn is_due(&self) -> bool {
        self.causes.len() >= THRESHOLD || (self.pauses > 0 && !self.causes.is_empty())
    }

    fn withhold(&mut self, now: Instant) {
        let pause = FIRST.saturating_mul(1 << self.pauses.min(16)).min(LONGEST);
        self.until = Some(now + pause);
        self.pauses += 1;
        self.causes.clear();
        self.cargos.clear();
    }

    fn is_withheld(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }
}

/// Failures and pauses.
#[derive(Debug, Default)]
pub struct Table(BTreeMap<Subject, Record>);

impl Table {
    /// Counts a failure of this Island. `job` is the job that ran; `None` for a worker that had none yet. Returns what is withheld from now
    /// on, if anything is.
    pub fn failed(
        &mut self,
        place: &Place,
        cargo: &Slug,
        job: Option<JobId>,
        reason: &str,
        now: Instant,
    ) -> Option<String> {
        let (of_all, of_one) = ((place.clone(), None), (place.clone(), Some(cargo.clone())));
        if self.0.len() >= MAX_ENTRIES {
            self.0.retain(|(_, cargo), record| cargo.is_none() || record.is_withheld(now));
        }
        for subject in [&of_all, &of_one] {
            self.0.entry(subject.clone()).or_default().note(job, cargo, reason, now);
        }
        let all = self.0.entry(of_all).or_default();
        if all.is_due() && (!all.has_worked || all.cargos.len() > 1) {
            all.withhold(now);
            // None of its Cargos is at fault.
            self.0.retain(|(other, cargo), record| {
                other != place || cargo.is_none() || record.is_withheld(now)
            });
            return Some(place.to_string());
        }
        let one = self.0.entry(of_one).or_default();
        one.is_due().then(|| {
            one.withhold(now);
            format!("{cargo} with {place}")
        })
    }

    /// Notes that a job of a Cargo completed. Returns whether something that was withheld, or on trial, is offered again.
    pub fn succeeded(&mut self, place: &Place, cargo: &Slug) -> bool {
        let one = self.0.remove(&(place.clone(), Some(cargo.clone())));
        let all = self.0.entry((place.clone(), None)).or_default();
        let was_paused = all.until.is_some() || one.is_some_and(|one| one.until.is_some());
        *all = Record { has_worked: true, ..Record::default() };
        was_paused
    }

    /// Why an engine is not used on a device: for any Cargo, or for this one.
    pub fn reason(&self, place: &Place, cargo: Option<&Slug>, now: Instant) -> Option<String> {
        let subjects = [Some(None), cargo.map(|cargo| Some(cargo.clone()))];
        subjects.into_iter().flatten().find_map(|cargo| {
            let record = self.0.get(&(place.clone(), cargo)).filter(|record| record.is_withheld(now))?;
            Some(format!("withheld after repeated failures, the last one: {}", record.reason))
        })
    }

    /// Withheld subjects in words, each with the rest of its pause.
    pub fn list(&self, now: Instant) -> Vec<(String, Duration)> {
        let withheld = self.0.iter().filter(|(_, record)| record.is_withheld(now));
        let described = withheld.filter_map(|((place, cargo), record)| {
            let what =
                cargo.as_ref().map_or_else(|| place.to_string(), |cargo| format!("{cargo} with {place}"));
            let rest = record.until?.duration_since(now);
            Some((
                format!("{what} is withheld after repeated failures, the last one: {}", record.reason),
                rest,
            ))
        });
        described.collect()
    }

    /// When the next pause ends.
    fn next_end(&self, now: Instant) -> Option<Instant> {
        self.0.values().filter_map(|record| record.until).filter(|until| *until > now).min()
    }
}

/// The table that the parts of the agent share.
#[derive(Debug, Default)]
pub struct Withholding {
    table: Mutex<Table>,
    changed: Notify,
}

impl Withholding {
    /// See [`Table::failed`]; what is withheld is logged.
    pub fn failed(&self, place: &Place, cargo: &Slug, job: Option<JobId>, reason: &str) {
        let withheld = self.table.lock().failed(place, cargo, job, reason, Instant::now());
        if let Some(what) = withheld {
            tracing::warn!(what, reason, "withheld after repeated failures of this Island");
            self.changed.notify_one();
        }
    }

    /// See [`Table::succeeded`].
    pub fn succeeded(&self, place: &Place, cargo: &Slug) {
        if self.table.lock().succeeded(place, cargo) {
            tracing::info!(%place, %cargo, "works again");
            self.changed.notify_one();
        }
    }

    /// See [`Table::reason`].
    pub fn reason(&self, place: &Place, cargo: Option<&Slug>) -> Option<String> {
        self.table.lock().reason(place, cargo, Instant::now())
    }

    /// See [`Table::list`].
    pub fn list(&self) -> Vec<(String, Duration)> {
        self.table.lock().list(Instant::now())
    }

    /// Resolves when what is offered may have changed: something is withheld, or a pause has ended. Cancel safe.
    pub async fn changed(&self) {
        let end = self.table.lock().next_end(Instant::now());
        tokio::select! {
            biased;
            () = self.changed.notified() => {}
            () = tokio::time::sleep_until(end.unwrap_or_else(Instant::now)), if end.is_some() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn place(gpu: Option<u32>) -> Place {
        Place { engine: "llmcpp".into(), gpu }
    }

    fn slug(name: &str) -> Slug {
        name.parse().expect("a slug")
    }

    fn job(number: u128) -> JobId {
        JobId(uuid::Uuid::from_u128(number))
    }

    #[test]
    fn a_device_that_never_worked_is_withheld() {
        let (mut table, now, gpu) = (Table::default(), Instant::now(), place(Some(0)));
        assert_eq!(table.failed(&gpu, &slug("a"), None, "signal 6", now), None);
        assert_eq!(table.failed(&gpu, &slug("a"), None, "signal 6", now), None);
        let withheld = table.failed(&gpu, &slug("a"), None, "signal 6", now);
        assert_eq!(withheld.as_deref(), Some("llmcpp on GPU 0"));
        assert!(table.reason(&gpu, Some(&slug("b")), now).is_some_and(|reason| reason.ends_with("signal 6")));
        assert_eq!(table.reason(&place(None), Some(&slug("a")), now), None, "the processor is used");
        let later = now + FIRST;
        assert_eq!(table.reason(&gpu, None, later), None, "it is tried again");
        assert!(table.failed(&gpu, &slug("a"), Some(job(9)), "signal 6", later).is_some(), "once");
        assert!(table.reason(&gpu, None, later + FIRST).is_some(), "the pause has doubled");
    }

    #[test]
    fn a_cargo_that_fails_alone_is_withheld_alone() {
        let (mut table, now, gpu) = (Table::default(), Instant::now(), place(Some(0)));
        table.succeeded(&gpu, &slug("good"));
        let failed =
            (1..=3).filter_map(|number| table.failed(&gpu, &slug("bad"), Some(job(number)), "no", now));
        assert_eq!(failed.collect::<Vec<_>>(), ["bad with llmcpp on GPU 0"]);
        assert_eq!(table.reason(&gpu, Some(&slug("good")), now), None);
        assert!(table.reason(&gpu, Some(&slug("bad")), now).is_some());
        table.failed(&gpu, &slug("other"), None, "no", now);
        assert!(table.reason(&gpu, None, now).is_some(), "those of several Cargos are the device's");
    }

    #[test]
    fn one_job_that_fails_often_withholds_nothing() {
        let (mut table, now) = (Table::default(), Instant::now());
        let failed = (0..50).filter_map(|_| table.failed(&place(None), &slug("a"), Some(job(1)), "no", now));
        assert_eq!(failed.count(), 0);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Fails(u8, u8),
        Completes(u8, u8),
        Waits(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (0..2_u8, 0..3_u8).prop_map(|(gpu, cargo)| Step::Fails(gpu, cargo)),
            (0..2_u8, 0..3_u8).prop_map(|(gpu, cargo)| Step::Completes(gpu, cargo)),
            (1..10_000_u64).prop_map(Step::Waits),
        ];
        prop::collection::vec(step, 0..200)
    }

    proptest! {
        /// Nothing is withheld without as many failures in a row, for ever, or after a job that completed there.
        #[test]
        fn pauses_are_earned_and_end(steps in steps()) {
            let (mut table, mut now, mut number) = (Table::default(), Instant::now(), 0);
            let mut in_a_row = BTreeMap::<u8, usize>::new();
            let on = |gpu: u8| place(Some(gpu.into()));
            let named = |cargo: u8| slug(&format!("cargo-{cargo}"));
            for step in steps {
                match step {
                    Step::Fails(gpu, cargo) => {
                        number += 1;
                        table.failed(&on(gpu), &named(cargo), Some(job(number)), "no", now);
                        *in_a_row.entry(gpu).or_default() += 1;
                    }
                    Step::Completes(gpu, cargo) => {
                        table.succeeded(&on(gpu), &named(cargo));
                        in_a_row.insert(gpu, 0);
                        prop_assert_eq!(table.reason(&on(gpu), Some(&named(cargo)), now), None);
                    }
                    Step::Waits(seconds) => now += Duration::from_secs(seconds),
                }
                for gpu in 0..2 {
                    let is_withheld = table.reason(&on(gpu), None, now).is_some();
                    let failures = in_a_row.get(&gpu).copied().unwrap_or(0);
                    prop_assert!(!is_withheld || failures >= THRESHOLD);
                }
                prop_assert!(table.list(now).iter().all(|(_, rest)| *rest <= LONGEST));
            }
            prop_assert!(table.list(now + LONGEST).is_empty());
        }

        /// A device that always fails is tried ever less often: a few times an hour at first, then a few times a day.
        #[test]
        fn a_broken_device_costs_few_tries(minutes in 60..6000_u64) {
            let (mut table, start, gpu, mut tries) = (Table::default(), Instant::now(), place(Some(0)), 0_u64);
            for minute in 0..minutes {
                let now = start + Duration::from_mins(minute);
                if table.reason(&gpu, None, now).is_none() {
                    tries += 1;
                    table.failed(&gpu, &slug("a"), None, "no", now);
                }
            }
            prop_assert!(tries <= 12 + minutes / 300, "{} tries in {} minutes", tries, minutes);
        }
    }
}
