//! One job in its container: input goes in, lines come out, and how it ended is told as it was.

use std::{future::pending, time::Duration};

use bollard::{container::LogOutput, query_parameters::WaitContainerOptionsBuilder};
use futures::StreamExt;
use island_protocol::job::{Failure, FailureCode, Outcome};
use island_runtimes_api::{
    Phase, RunContext, RunRequest,
    lines::{Exit, Lines},
};
use tokio::{
    io::AsyncWriteExt,
    time::{Instant, MissedTickBehavior, interval, sleep_until},
};

use crate::{
    daemon::{Daemon, failed},
    exit::{abandoned, cancelled, too_late, verdict},
    resource_limits::ResourceLimits,
    start::{Output, Started},
};

/// Between two signs of life of a program that writes nothing: silence is no stall, the deadline bounds it.
const SIGN_OF_LIFE: Duration = Duration::from_secs(1);

/// Gives a started program its input and follows it to its end.
pub async fn follow(
    daemon: &Daemon,
    started: Started,
    limits: &ResourceLimits,
    request: &RunRequest,
    context: &RunContext,
) -> Outcome {
    let Started { container, mut output, mut input } = started;
    context.work.enter(Phase::Run);
    let mut lines =
        Lines::new(context.events.clone(), context.log.clone(), request.cargo.limits.max_output_bytes);
    let text = serde_json::to_vec(&request.input).expect("JSON is JSON");
    let feeding = async {
        // A program that does not read its input, or not all of it, is none the worse for it.
        let _ = input.write_all(&text).await;
        let _ = input.shutdown().await;
        pending::<Exit>().await
    };
    let reading = async {
        let read = read(&mut output, &mut lines, context).await;
        match read {
            Ok(()) => end(daemon, container.id(), limits).await,
            Err(failure) => Exit::Failed(failure),
        }
    };
    let exit = tokio::select! {
        biased;
        () = context.cancel.cancelled() => Exit::Failed(cancelled()),
        () = sleep_until(Instant::now() + limits.time) => Exit::Failed(too_late(limits.time)),
        () = signs_of_life(context) => unreachable!("they go on for ever"),
        exit = reading => exit,
        exit = feeding => exit,
    };
    lines.finish(exit)
}

/// Reads what the program writes until it has closed its output.
async fn read(output: &mut Output, lines: &mut Lines, context: &RunContext) -> Result<(), Failure> {
    while let Some(piece) = output.next().await {
        match piece.map_err(|_| abandoned())? {
            LogOutput::StdErr { message } => context.log.write(&message),
            LogOutput::StdOut { message } | LogOutput::Console { message } => {
                context.work.advance(1);
                lines.take(&message)?;
            }
            LogOutput::StdIn { .. } => {}
        }
    }
    Ok(())
}

/// How the program ended; it may run on for a while after it has closed its output.
async fn end(daemon: &Daemon, id: &str, limits: &ResourceLimits) -> Exit {
    let until_ended = WaitContainerOptionsBuilder::new().condition("not-running").build();
    let ended = daemon.slow.wait_container(id, Some(until_ended)).next().await;
    match ended {
        Some(Ok(_)) => Exit::Code(0),
        // Its code says that something went wrong; only the daemon knows whether that was its memory.
        Some(Err(bollard::errors::Error::DockerContainerWaitError { .. })) => {
            match daemon.quick.inspect_container(id, None).await {
                Ok(container) => verdict(&container.state.unwrap_or_default(), limits),
                Err(error) => Exit::Failed(failed("ask how the program ended", &error)),
            }
        }
        Some(Err(error)) => {
            tracing::warn!(%error, "waiting for the end of a container");
            Exit::Failed(abandoned())
        }
        None => Exit::Failed(abandoned()),
    }
}

async fn signs_of_life(context: &RunContext) {
    let mut ticks = interval(SIGN_OF_LIFE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        context.work.advance(1);
    }
}

/// A job that could not be started at all.
pub(crate) fn no_image() -> Failure {
    Failure::of_host(
        FailureCode::ModelUnavailable,
        "the image was removed again and again while the job was to start",
    )
}
