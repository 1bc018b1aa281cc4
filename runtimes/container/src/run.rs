//! One job in its container: writes the input, reads the lines, and reports how it ended.

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

/// Time between two updates of the work counter for a program that writes nothing: that is not a stall, the deadline limits it.
const SIGN_OF_LIFE: Duration = Duration::from_secs(1);

/// Writes a started program's input and follows it to its end.
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
        // A program may ignore its input or a part of it.
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
        () = signs_of_life(context) => unreachable!("it never ends"),
        exit = reading => exit,
        exit = feeding => exit,
    };
    lines.finish(exit)
}

/// Reads what the program writes until it closes its output.
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

/// How the program ended; it may continue for a while after closing its output.
async fn end(daemon: &Daemon, id: &str, limits: &ResourceLimits) -> Exit {
    let until_ended = WaitContainerOptionsBuilder::new().condition("not-running").build();
    let ended = daemon.slow.wait_container(id, Some(until_ended)).next().await;
    match ended {
        Some(Ok(_)) => Exit::Code(0),
        // The exit code shows a failure; only the daemon knows whether memory was the reason.
        Some(Err(bollard::errors::Error::DockerContainerWaitError { .. })) => {
            match daemon.quick.inspect_container(id, None).await {
                Ok(container) => verdict(&container.state.unwrap_or_default(), limits),
                Err(error) => Exit::Failed(failed("query how the program ended", &error)),
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

/// A job that could not be started.
pub(crate) fn no_image() -> Failure {
    Failure::of_host(
        FailureCode::ModelUnavailable,
        "the image was removed repeatedly before the job could start",
    )
}
