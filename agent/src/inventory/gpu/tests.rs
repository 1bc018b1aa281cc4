//! All vendors together, on an artificial tree and with a scripted driver.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio_util::sync::CancellationToken;

use super::{nvidia::tests::Fake, sysfs::tests::Tree, *};
use crate::{inventory::meter::Meter, owner::policy::gpus};

struct Machine {
    gpus: Gpus,
    start: Instant,
}

impl Machine {
    fn of(tree: &Tree, fake: &Fake) -> Self {
        let numbers = Numbers::load(tree.0.path());
        Self { gpus: Gpus::under(&tree.roots(), fake.open(), numbers, &[]), start: Instant::now() }
    }

    fn at(&mut self, seconds: u64) -> View {
        self.gpus.poll(self.start + Duration::from_secs(seconds))
    }
}

fn amd(tree: &Tree, card: u32, address: &str) {
    let files = [("vendor", "0x1002"), ("mem_info_vram_total", "8589934592"), ("mem_info_vram_used", "0")];
    tree.plug(card, address, &files);
}

fn ids(view: &View) -> Vec<(u32, &str)> {
    view.cards.iter().map(|card| (card.index, card.seen.id.as_str())).collect()
}

#[test]
fn numbers_are_shared_by_all_vendors_and_stable() {
    let (tree, fake) = (Tree::new(), Fake::default());
    fake.set(|script| script.gpus = vec!["GPU-a"]);
    amd(&tree, 0, "0000:00:08.0");
    amd(&tree, 1, "0000:41:00.0");
    let all = [(0, "0000:00:08.0"), (1, "GPU-a"), (2, "0000:41:00.0")];
    let mut machine = Machine::of(&tree, &fake);
    assert_eq!(ids(&machine.at(0)), all, "in the order of their addresses");
    tree.unplug(0);
    let view = machine.at(1);
    assert_eq!(ids(&view), all[1..]);
    assert!(view.notes().iter().any(|note| note.starts_with("GPU 0 (") && note.ends_with("has disappeared")));
    // After a restart without the first one, the others keep their numbers.
    assert_eq!(ids(&Machine::of(&tree, &fake).at(0)), all[1..]);
    amd(&tree, 7, "0000:01:00.0");
    assert_eq!(ids(&machine.at(2)), [(1, "GPU-a"), (2, "0000:41:00.0"), (3, "0000:01:00.0")]);
}

#[test]
fn a_lost_driver_affects_only_its_gpus_and_is_opened_again() {
    let (tree, fake) = (Tree::new(), Fake::default());
    fake.set(|script| script.gpus = vec!["GPU-a"]);
    amd(&tree, 0, "0000:41:00.0");
    let mut machine = Machine::of(&tree, &fake);
    let before = machine.at(0).list();
    assert_eq!(before.len(), 2);
    fake.set(|script| script.fails = Some("the driver is unloaded".into()));
    let lost = machine.at(1);
    assert_eq!(ids(&lost), [(1, "0000:41:00.0")]);
    assert_eq!(lost.problems, ["the driver is unloaded", "GPU 0 (Some GPU) has disappeared"]);
    fake.set(|script| script.fails = None);
    assert_eq!(machine.at(6).list(), before);
}

#[test]
fn a_machine_without_gpus_has_a_reason() {
    let (tree, fake) = (Tree::new(), Fake::default());
    let reason = "no NVIDIA driver is installed".to_owned();
    let closed = nvidia::Closed { reason, installed: false, is_silent: false };
    fake.set(|script| script.closed = Some(closed));
    let view = Machine::of(&tree, &fake).at(0);
    let reasons = "no NVIDIA driver is installed; no AMD GPU; no Intel GPU with dedicated memory";
    assert_eq!((view.none.as_deref(), view.problems.len()), (Some(reasons), 0));
    assert!(view.list().is_empty() && view.loads().is_empty());
}

#[test]
fn workers_do_not_count_as_other_programs() {
    // A folder in which no process is visible, as for a unit with ProtectProc=invisible.
    let tree = Tree::new();
    let mut other = std::process::Command::new("sleep").arg("60").spawn().expect("start a process");
    let (worker, foreign) = (std::process::id(), other.id());
    let mut seen = nvidia::tests::seen("GPU-a");
    seen.computing = Ok(BTreeMap::from([(worker, Some(300)), (foreign, Some(500))]));
    let own = OwnProcesses::default();
    own.add(worker);
    let mut gpus = Gpus::of(Vec::new(), Numbers::default(), tree.roots().proc).with_own(own);
    let card = gpus.card(seen.clone());
    assert_eq!((card.foreign, card.ours_mb), (Some(1), Some(300)));
    other.kill().and_then(|()| other.wait()).expect("end it");
    assert_eq!(gpus.card(seen.clone()).foreign, Some(0), "the driver lists a process that has ended");
    seen.computing = Err("not reported".into());
    let card = gpus.card(seen.clone());
    assert_eq!((card.foreign, card.ours_mb), (None, None));
    seen.computing = Ok(BTreeMap::from([(worker, None)]));
    assert_eq!(gpus.card(seen).ours_mb, None, "no sum without the values");
}

#[test]
fn a_worker_on_vulkan_is_found_among_the_processes_that_draw() {
    let tree = Tree::new();
    let mut desktop = std::process::Command::new("sleep").arg("60").spawn().expect("start a process");
    let mut seen = nvidia::tests::seen("GPU-a");
    seen.drawing = BTreeMap::from([(std::process::id(), Some(300)), (desktop.id(), Some(500))]);
    let own = OwnProcesses::default();
    own.add_on_gpus(std::process::id());
    let mut gpus = Gpus::of(Vec::new(), Numbers::default(), tree.roots().proc).with_own(own);
    let card = gpus.card(seen.clone());
    assert_eq!((card.foreign, card.ours_mb), (Some(0), Some(300)));
    seen.computing = Ok(BTreeMap::from([(std::process::id(), Some(310)), (desktop.id(), None)]));
    let card = gpus.card(seen);
    assert_eq!((card.foreign, card.ours_mb), (Some(1), Some(310)), "what is in both lists counts once");
    desktop.kill().and_then(|()| desktop.wait()).expect("end it");
}

#[test]
fn the_owners_limit_decides_about_a_gpu_whose_memory_in_use_is_hidden() {
    let tree = Tree::new();
    tree.plug(0, "0000:03:00.0", &[("vendor", "0x8086"), ("tile0/physical_vram_size_bytes", "12884901888")]);
    let by_limit = |settings: &str| {
        #[derive(serde::Deserialize)]
        struct Rules {
            gpu: Vec<gpus::GpuRule>,
        }
        let rules: Rules = toml::from_str(settings).expect("rules");
        let gpus = Gpus::under(&tree.roots(), Fake::default().open(), Numbers::default(), &[]);
        let view = gpus.with_consent(gpus::consent(rules.gpu)).poll(Instant::now());
        let cards: Vec<_> = view.cards.iter().map(|card| (card.by_limit, card.is_granted())).collect();
        cards
    };
    assert_eq!(by_limit("gpu = []"), [(false, false)]);
    assert_eq!(by_limit("gpu = [{ gpu = '0000:03:00.0', max_vram_mb = 8000 }]"), [(true, true)]);
    // Where the programs of all users are visible, the use is measured.
    tree.write("proc/1/fd/0", "");
    assert_eq!(by_limit("gpu = [{ gpu = 0, max_vram_mb = 8000 }]"), [(false, true)]);
}

#[tokio::test]
async fn changes_of_the_offered_gpus_are_registered() {
    let (tree, fake) = (Tree::new(), Fake::default());
    fake.set(|script| script.gpus = vec!["GPU-a"]);
    let gpus = Gpus::under(&tree.roots(), fake.open(), Numbers::default(), &[]);
    let meter = Meter::new(gpus, tree.0.path().to_owned());
    meter.sample().await;
    let registered = Arc::new(Mutex::new(Vec::new()));
    let (known, seen) = (Mutex::new(None), Arc::clone(&registered));
    let note = move |view: &View| {
        let offered = gpus::offered(&[], view);
        let is_news = known.lock().expect("a lock").replace(offered.clone()) != Some(offered.clone());
        if is_news {
            seen.lock().expect("a lock").push(offered.0.len());
        }
        is_news
    };
    let (stop, registrations) = (CancellationToken::new(), Arc::new(tokio::sync::Semaphore::new(0)));
    let ask = Arc::clone(&registrations);
    let probes = Arc::new(Mutex::new(0));
    let probed = Arc::clone(&probes);
    let probe = async move |is_other: bool| *probed.lock().expect("a lock") += u32::from(is_other);
    let task = tokio::spawn(follow::run(
        meter.latest(),
        note,
        probe,
        Arc::default(),
        move || ask.add_permits(1),
        stop.clone(),
    ));
    let notified = async || registrations.acquire().await.expect("open").forget();
    notified().await;
    meter.sample().await;
    fake.set(|script| script.fails = Some("the driver is unloaded".into()));
    meter.sample().await;
    notified().await;
    amd(&tree, 0, "0000:41:00.0");
    meter.sample().await;
    notified().await;
    stop.cancel();
    task.await.expect("ends");
    assert_eq!(*registered.lock().expect("a lock"), [1, 0, 1], "once for each change");
    assert_eq!(*probes.lock().expect("a lock"), 2, "engines are probed again for other GPUs");
}
