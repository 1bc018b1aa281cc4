//! A network of the previous version is upgraded part by part under load. `make upgrade` builds that version and runs this.

use std::path::Path;

use island_integration::{
    chaos::{
        self,
        check::check,
        load::Load,
        network::{Network, Version},
        plan::Part,
    },
    expect::eventually,
};

fn previous() -> Version {
    let folder = |name: &str| std::env::var_os(name).unwrap_or_else(|| panic!("{name} names a folder"));
    let (programs, catalogue) = (folder("ISLAND_PREVIOUS_BIN"), folder("ISLAND_PREVIOUS_CARGOS"));
    Version::in_folders(Path::new(&programs), Path::new(&catalogue))
}

fn coordinators() -> Vec<Part> {
    (0..chaos::SIZE.coordinators).map(Part::Coordinator).collect()
}

fn agents() -> Vec<Part> {
    (0..chaos::SIZE.islands).map(Part::Agent).collect()
}

/// Waits until every Island is online and further jobs have completed.
async fn works(network: &Network, what: &str) {
    network.settle().await;
    let completed = || network.query("SELECT id FROM jobs WHERE status = 'completed'").len();
    let before = completed();
    eventually(what, || async {
        let ended = network.revive();
        assert!(ended.is_empty(), "{what}: {ended:?}\n{}", network.logs());
        (completed() > before + 20).then_some(())
    })
    .await;
}

/// Replaces the parts in this order, one after another, and checks every promise.
#[expect(clippy::print_stdout, reason = "how the jobs ended is part of the report")]
async fn replace(first: Vec<Part>, then: Vec<Part>) {
    let network = Network::start_version(chaos::SIZE, chaos::LEASE, previous()).await;
    let load = Load::start(&network, 1).await;
    works(&network, "the previous version works").await;
    for part in first.into_iter().chain(then) {
        network.replace(part, &Version::current()).await;
        works(&network, &format!("jobs complete after {part} was upgraded")).await;
    }
    let (seen, _) = load.finish().await;
    let (violations, counts) = check(&network, seen).await;
    println!("{counts:?}");
    assert!(violations.is_empty(), "{}\n{}", violations.join("\n"), network.logs());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn coordinators_are_upgraded_before_agents() {
    replace(coordinators(), agents()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_are_upgraded_before_coordinators() {
    replace(agents(), coordinators()).await;
}

/// The previous version goes on with a database that this one has migrated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_is_undone() {
    let network = Network::start_version(chaos::SIZE, chaos::LEASE, Version::current()).await;
    let load = Load::start(&network, 1).await;
    works(&network, "this version works").await;
    for part in coordinators().into_iter().chain(agents()) {
        network.replace(part, &previous()).await;
        works(&network, &format!("jobs complete after {part} was downgraded")).await;
    }
    let (seen, _) = load.finish().await;
    let (violations, counts) = check(&network, seen).await;
    println!("{counts:?}");
    assert!(violations.is_empty(), "{}\n{}", violations.join("\n"), network.logs());
}
