//! The engine against a real Docker daemon, started by this program, shared by all tests in it and ended with it.

#![expect(clippy::print_stdout, reason = "what a test runner expects of a test program")]

mod conformance;
mod egress;
mod hostile;
mod images;
mod life;
mod sandbox;
mod support;
mod warm_pool;

use std::{future::Future, pin::Pin, process::ExitCode, sync::Arc};

use island_runtimes_container::testing::Dockerd;
use island_testing::harness;

use crate::support::World;

type Test = fn(Arc<World>) -> Pin<Box<dyn Future<Output = ()> + Send>>;

macro_rules! tests {
    ($($module:ident :: $name:ident),* $(,)?) => {
        [$((concat!(stringify!($module), "::", stringify!($name)), (|world| Box::pin($module::$name(world))) as Test)),*]
    };
}

fn main() -> ExitCode {
    let tests = tests![
        life::a_job_streams_and_ends,
        life::ends_are_distinguished,
        life::a_cancelled_run_leaves_nothing,
        life::a_dropped_run_leaves_nothing,
        life::a_run_ends_at_its_deadline,
        life::orphans_of_dead_workers_are_removed_and_no_others,
        life::what_exists_for_too_long_is_removed,
        images::a_file_is_imported_once,
        images::an_archive_is_loaded_without_its_tags,
        images::an_invalid_image_is_the_jobs_fault,
        images::a_removed_image_is_loaded_again,
        warm_pool::the_next_job_gets_a_started_container,
        warm_pool::a_program_that_computes_without_input_is_not_started_in_advance,
        conformance::the_suite_passes,
        hostile::every_attack_is_refused,
        egress::a_program_reaches_what_its_cargo_declares,
        egress::a_program_reaches_nothing_else,
        egress::a_program_that_ends_its_forwarder_has_no_egress,
        egress::more_connections_than_allowed_are_refused,
        egress::egress_ends_with_a_cancelled_run,
        egress::egress_that_the_owner_does_not_allow_is_refused,
        egress::a_missing_forwarder_is_the_hosts_fault,
        sandbox::a_sandboxed_worker_runs_containers,
        sandbox::containers_end_with_a_worker_that_is_killed,
    ];
    let Some(chosen) = harness::select(tests) else { return ExitCode::SUCCESS };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("an async runtime").block_on(run(chosen))
}

async fn run(tests: Vec<(&'static str, Test)>) -> ExitCode {
    let daemon = match Dockerd::start_with_bridge().await {
        Ok(daemon) => daemon,
        Err(reason) => {
            for (name, _) in tests {
                island_testing::skip(name, &reason);
            }
            return ExitCode::SUCCESS;
        }
    };
    let world = Arc::new(World::new(&daemon));
    let (all, mut failed) = (tests.len(), 0);
    for (name, test) in tests {
        let result = tokio::spawn(test(Arc::clone(&world))).await;
        println!("test {name} ... {}", if result.is_ok() { "ok" } else { "FAILED" });
        failed += usize::from(result.is_err());
    }
    drop(world);
    daemon.stop().await;
    harness::end(all - failed, failed)
}
