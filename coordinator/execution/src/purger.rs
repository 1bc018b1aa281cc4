//! Removes the events of ended jobs from the stream: SQL has them, and a full stream discards those of open jobs.

use std::time::Duration;

use island_protocol::{
    ids::JobId,
    subjects::{JOB_EVENTS_STREAM, job_events},
};
use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;

use island_coordinator_fabric::link::Link;

/// Time from the end of a job in which its readers at other coordinators get the rest from the stream; those that do not
/// continue with SQL.
const DELAY: Duration = Duration::from_secs(10);

/// A job whose events are published, and since when.
pub(super) type Published = (JobId, Instant);

/// Runs until `hard` is triggered. What is left then is removed by its age.
pub(super) async fn run(link: Link, mut jobs: mpsc::UnboundedReceiver<Published>, hard: CancellationToken) {
    let purge_all = async {
        // Every job waits for the same time, so they are due in the order of their ends.
        while let Some((job, since)) = jobs.recv().await {
            tokio::time::sleep_until(since + DELAY).await;
            purge(&link, job).await;
        }
    };
    tokio::select! {
        biased;
        () = hard.cancelled() => {}
        () = purge_all => {}
    }
}

async fn purge(link: &Link, job: JobId) {
    let stream = match link.jetstream().get_stream_no_info(JOB_EVENTS_STREAM).await {
        Ok(stream) => stream,
        Err(error) => return tracing::debug!(%job, %error, "stream of job events not found"),
    };
    if let Err(error) = stream.purge().filter(job_events(job)).await {
        tracing::debug!(%job, %error, "events of an ended job not removed from the stream");
    }
}
