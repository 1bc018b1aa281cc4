//! The database's machine is lost under load, and its standby takes over.

use std::{sync::Arc, time::Duration};

use island_integration::{
    chaos::{self, check::check, load::Load, network::Network},
    expect::eventually,
    has_postgres,
};

use crate::alone;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_promise_is_broken() {
    if !has_postgres() {
        island_testing::skip("database_fails_over", "PostgreSQL is not installed");
        return;
    }
    let _alone = alone().await;
    let network = Arc::new(Network::start_with_standby(chaos::SIZE, chaos::LEASE).await);
    let load = Load::start(&network, 1).await;
    let completed = || network.query("SELECT id FROM jobs WHERE status = 'completed'").len();
    let more_complete = async |than: usize| {
        eventually("jobs complete", || async {
            network.revive();
            (completed() > than + 20).then_some(())
        })
        .await;
    };
    more_complete(0).await;
    let before = completed();
    network.fail_over().await;
    assert!(completed() >= before, "a commit was acknowledged without the standby");
    more_complete(before).await;
    // Streams that began before go on meanwhile.
    tokio::time::sleep(Duration::from_secs(3)).await;
    network.settle().await;
    let (seen, _) = load.finish().await;
    let (violations, counts) = check(&network, seen).await;
    println!("{counts:?}");
    assert!(violations.is_empty(), "{}\n{}", violations.join("\n"), network.logs());
}
