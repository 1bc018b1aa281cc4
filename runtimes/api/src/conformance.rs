//! The suite that every engine passes. An engine's test calls [`run_all`] with the engine and a [`Fixture`]; a violated rule of the
//! contract fails the test with a message that names it.

mod checks;
mod fixture;

pub use checks::{
    bad_input_is_a_failure_of_the_job, cancelled_before_the_start, cancelled_while_running,
    concurrent_runs_do_not_mix, dropped_runs_leave_nothing, nobody_listening, same_again,
    usage_is_what_was_sent, work_grows, writes_only_in_scratch,
};
pub use fixture::{Fixture, Played};

use crate::runtime::Runtime;

/// Runs all checks one after the other on one engine, so that state of earlier jobs must not change results.
pub async fn run_all<R: Runtime>(runtime: &R, fixture: &Fixture) {
    let probe = runtime.probe().await.expect("the engine under test is available");
    assert!(!probe.version.is_empty(), "probe: no version");
    assert_eq!(runtime.kind(), fixture.cargo.runtime_type, "kind: not the fixture's");
    same_again(runtime, fixture).await;
    usage_is_what_was_sent(runtime, fixture).await;
    work_grows(runtime, fixture).await;
    writes_only_in_scratch(runtime, fixture).await;
    bad_input_is_a_failure_of_the_job(runtime, fixture).await;
    cancelled_before_the_start(runtime, fixture).await;
    cancelled_while_running(runtime, fixture).await;
    dropped_runs_leave_nothing(runtime, fixture).await;
    nobody_listening(runtime, fixture).await;
    concurrent_runs_do_not_mix(runtime, fixture).await;
    runtime.shutdown().await;
}
