//! Heartbeats, in a separate task. If a sample of the load is due at about the same time, both happen together, which wakes an idle machine
//! once instead of twice; a sample never delays a heartbeat for long.

use std::{sync::Arc, time::Duration};

use fail::fail_point;
use island_daemon::{latest::Latest, progress::Progress};
use island_protocol::{fabric::Heartbeat, subjects::HostTopic};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    clock,
    fabric::{Fabric, FabricError},
    inventory::meter::Sample,
    owner::policy::Verdict,
    supervisor::Supervisor,
};

/// A heartbeat may be early or late by one part in this number of the interval, to coincide with a sample.
const LEEWAY: u32 = 4;

/// Time beyond twice the interval that a heartbeat may take before this process counts as deadlocked.
const STUCK_AFTER: Duration = Duration::from_secs(30);

/// Sends heartbeats until stopped; immediately after registering and when something in them changes.
pub async fn run(
    fabric: Arc<Fabric>,
    supervisor: Arc<Supervisor>,
    mut load: watch::Receiver<Arc<Sample>>,
    progress: Progress,
    stop: CancellationToken,
) {
    let mut seq = 0;
    let mut registered = fabric.registered();
    let (mut changes, mut stances) = (supervisor.changes(), supervisor.stances());
    loop {
        progress.next_within(fabric.heartbeat_every() * 2 + STUCK_AFTER);
        fail_point!("heartbeat");
        if fabric.is_up() {
            seq += 1;
            let message = compose(&fabric, &supervisor, &load.latest(), seq);
            // A connection that accepts no messages blocks this one; a later one replaces it.
            let sent =
                timeout(fabric.heartbeat_every(), fabric.publish(HostTopic::Heartbeat, &message)).await;
            if let Err(error) = sent.unwrap_or(Err(FabricError::TimedOut)) {
                tracing::debug!(%error, "a heartbeat was not sent");
            }
        }
        let every = fabric.heartbeat_every();
        let due = Instant::now() + every;
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            Ok(()) = registered.changed() => {}
            Ok(()) = changes.changed() => {}
            Ok(()) = stances.changed() => {}
            () = sampled_after(&mut load, due - every / LEEWAY) => {}
            () = sleep_until(due + every / LEEWAY) => {}
        }
    }
}

/// Waits for a sample that is not older than this.
async fn sampled_after(load: &mut watch::Receiver<Arc<Sample>>, moment: Instant) {
    let is_new = |sample: &Arc<Sample>| sample.taken.is_some_and(|taken| taken >= moment);
    if load.wait_for(is_new).await.is_err() {
        // No more samples arrive; only the interval counts.
        std::future::pending::<()>().await;
    }
}

fn compose(fabric: &Fabric, supervisor: &Supervisor, load: &Sample, seq: u64) -> Heartbeat {
    let stance = supervisor.stance();
    let status = match stance.verdict {
        _ if stance.is_stopping => "draining",
        Verdict::Yes => "online",
        Verdict::Finish { .. } => "draining",
        Verdict::Leave { .. } => "paused",
    };
    Heartbeat {
        v: fabric.version(),
        host_id: fabric.host_id(),
        instance: fabric.instance(),
        seq,
        status: status.to_owned(),
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        system: load.system.clone(),
        gpus: load.gpus.loads(),
        jobs: supervisor.running(),
        models: supervisor.models(),
        headroom: supervisor.headroom(),
        control: Some(stance.control),
        refusals: supervisor.refusals().reported(),
        timestamp: clock::now(),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicBool, Ordering},
        thread,
    };

    use island_protocol::{FABRIC_VERSION, fabric::Registered};

    use super::*;
    use crate::testing;

    /// Heartbeats and samples of the load are independent, so neither may wait for the other.
    #[test]
    fn heartbeats_continue_while_the_load_is_sampled() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let (samples, load) = watch::channel(Arc::new(Sample::default()));
        let (fabric, supervisor) = runtime.block_on(testing::supervisor(folder.path(), load.clone()));
        let answer = Registered {
            v: FABRIC_VERSION,
            versions: None,
            heartbeat_ms: 200,
            lease_ms: 30_000,
            drop: Vec::new(),
            duplicate: false,
            refused: None,
            unread_heartbeat: None,
        };
        fabric.set_registered(&answer, FABRIC_VERSION);
        let done = Arc::new(AtomicBool::new(false));
        let sampler = thread::spawn({
            let done = Arc::clone(&done);
            move || {
                while !done.load(Ordering::Relaxed) {
                    samples.send_replace(Arc::new(Sample::default()));
                }
            }
        });
        let (progress, stop) = (Progress::new("heartbeat"), CancellationToken::new());
        let steps = progress.steps();
        let beat = runtime.spawn(run(fabric, Arc::clone(&supervisor), load, progress, stop.clone()));
        let (enough, finished) = std::sync::mpsc::channel();
        let counter = thread::spawn(move || {
            while steps.load(Ordering::Relaxed) < 1000 {
                supervisor.wake_heartbeat();
                thread::yield_now();
            }
            let _ = enough.send(());
        });
        if finished.recv_timeout(Duration::from_mins(1)).is_err() {
            // A deadlocked thread of the runtime cannot be waited for.
            runtime.shutdown_background();
            panic!("heartbeats have stopped");
        }
        stop.cancel();
        done.store(true, Ordering::Relaxed);
        runtime.block_on(beat).expect("the heartbeat's task ends");
        sampler.join().expect("the sampler ends");
        counter.join().expect("the counter ends");
    }
}
