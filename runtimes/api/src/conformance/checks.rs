//! One function per rule of the contract.

use std::{collections::BTreeSet, path::Path};

use futures::future::join_all;
use island_protocol::job::{FailureCode, Fault, Outcome};

use super::fixture::{Fixture, finish, within};
use crate::{job::Phase, runtime::Runtime};

/// State of earlier jobs does not change results.
pub async fn same_again<R: Runtime>(runtime: &R, fixture: &Fixture) {
    assert!(fixture.good.len() >= 2, "fixture: two inputs are needed");
    for input in &fixture.good {
        let first = fixture.play(runtime, input).await;
        let second = fixture.play(runtime, input).await;
        assert_eq!(first.text, second.text, "same input, other text: {input}");
        assert_eq!(first.outcome, second.outcome, "same input, other outcome: {input}");
    }
}

/// The usage is the number of tokens sent, and its sum is right.
pub async fn usage_is_what_was_sent<R: Runtime>(runtime: &R, fixture: &Fixture) {
    for input in &fixture.good {
        let played = fixture.play(runtime, input).await;
        let usage = played.usage();
        assert_eq!(usage.prompt_tokens > 0, fixture.reads_tokens, "prompt tokens counted: {input}");
        assert_eq!(usage.completion_tokens, played.counted(), "usage differs from the tokens sent: {input}");
        assert_eq!(
            usage.total_tokens,
            usage.prompt_tokens + usage.completion_tokens,
            "usage does not add up"
        );
        assert!(usage.credits_used.is_none(), "an engine sets no prices");
    }
}

/// The work counter grows, and ends in the phase of running.
pub async fn work_grows<R: Runtime>(runtime: &R, fixture: &Fixture) {
    let stage = fixture.stage(&fixture.good[0]);
    let work = stage.work.clone();
    let played = finish(stage.events, within(runtime.run(stage.request, stage.context)).await).await;
    let (phase, done) = work.read();
    assert_eq!(phase, Phase::Run, "the phase at the end");
    assert!(done >= played.counted(), "work of {done} for {} tokens", played.counted());
}

/// Nothing is written outside the scratch directory, nor among the artifacts.
pub async fn writes_only_in_scratch<R: Runtime>(runtime: &R, fixture: &Fixture) {
    let stage = fixture.stage(&fixture.good[0]);
    let beside: Vec<_> = fixture.artifacts.values().filter_map(|file| file.parent()).collect();
    let before: Vec<_> = beside.iter().map(|dir| names(dir)).collect();
    within(runtime.run(stage.request, stage.context)).await;
    let expected: BTreeSet<_> = ["scratch".to_owned()].into();
    assert_eq!(names(stage.root.path()), expected, "files outside the scratch directory");
    let after: Vec<_> = beside.iter().map(|dir| names(dir)).collect();
    assert_eq!(before, after, "files among the artifacts");
}

/// Invalid input is a failure of the job with a code.
pub async fn bad_input_is_a_failure_of_the_job<R: Runtime>(runtime: &R, fixture: &Fixture) {
    for input in &fixture.bad {
        let played = fixture.play(runtime, input).await;
        let Outcome::Failed { failure, .. } = &played.outcome else { panic!("bad input ran: {input}") };
        assert_eq!(failure.fault, Fault::Job, "invalid input is not the job's failure: {input}: {failure:?}");
        assert!(
            !matches!(failure.code, FailureCode::Unknown | FailureCode::InternalError),
            "no code: {failure:?}"
        );
        assert!(!failure.message.is_empty(), "no message: {input}");
        assert_eq!(played.text, "", "invalid input produced output: {input}");
    }
}

/// A run that is cancelled before it starts ends at once, without output.
pub async fn cancelled_before_the_start<R: Runtime>(runtime: &R, fixture: &Fixture) {
    let stage = fixture.stage(&fixture.long);
    stage.cancel.cancel();
    let outcome = within(runtime.run(stage.request, stage.context)).await;
    expect_interrupted(&outcome);
    let played = finish(stage.events, outcome).await;
    assert_eq!(played.text, "", "a run cancelled before its start produced output");
}

/// A cancelled run ends as interrupted, and counts its output.
pub async fn cancelled_while_running<R: Runtime>(runtime: &R, fixture: &Fixture) {
    let mut stage = fixture.stage(&fixture.long);
    let run = runtime.run(stage.request, stage.context);
    let cancel = async {
        let first = within(stage.events.recv()).await;
        stage.cancel.cancel();
        first
    };
    let (outcome, first) = within(async { tokio::join!(run, cancel) }).await;
    assert!(first.is_some(), "the long input produced no event");
    expect_interrupted(&outcome);
    let Outcome::Failed { usage, .. } = outcome else { unreachable!("checked above") };
    assert!(
        usage.prompt_tokens > 0 || !fixture.reads_tokens,
        "what was read until the cancellation is not counted"
    );
}

/// After a dropped run the engine serves jobs as before.
pub async fn dropped_runs_leave_nothing<R: Runtime>(runtime: &R, fixture: &Fixture) {
    let before = fixture.play(runtime, &fixture.good[0]).await;
    let mut stage = fixture.stage(&fixture.long);
    {
        let mut run = Box::pin(runtime.run(stage.request, stage.context));
        let first = within(async {
            tokio::select! {
                first = stage.events.recv() => first,
                outcome = &mut run => panic!("the long input ended: {outcome:?}"),
            }
        });
        assert!(first.await.is_some(), "the long input produced no event");
    }
    while within(stage.events.recv()).await.is_some() {}
    assert_eq!(
        fixture.play(runtime, &fixture.good[0]).await.text,
        before.text,
        "a dropped run changes the next"
    );
}

/// A dropped receiver neither blocks nor fails a run.
pub async fn nobody_listening<R: Runtime>(runtime: &R, fixture: &Fixture) {
    let stage = fixture.stage(&fixture.good[0]);
    drop(stage.events);
    let outcome = within(runtime.run(stage.request, stage.context)).await;
    assert!(matches!(outcome, Outcome::Completed { .. }), "without a reader: {outcome:?}");
}

/// Concurrent runs have the same results as separate ones.
pub async fn concurrent_runs_do_not_mix<R: Runtime>(runtime: &R, fixture: &Fixture) {
    let mut alone = Vec::new();
    for input in &fixture.good {
        let played = fixture.play(runtime, input).await;
        alone.push((played.text, played.outcome));
    }
    let inputs = fixture.good.iter().cycle().take(fixture.good.len() * 4);
    let together = join_all(inputs.map(|input| fixture.play(runtime, input))).await;
    for (played, expected) in together.iter().zip(alone.iter().cycle()) {
        assert_eq!(
            &(&played.text, &played.outcome),
            &(&expected.0, &expected.1),
            "a run among others differs"
        );
    }
}

fn expect_interrupted(outcome: &Outcome) {
    let Outcome::Failed { failure, .. } = outcome else { panic!("a cancelled run completed: {outcome:?}") };
    assert_eq!(failure.fault, Fault::Interrupted, "a cancelled run is interrupted: {failure:?}");
}

fn names(dir: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(dir).expect("a readable directory");
    entries.filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned())).collect()
}
