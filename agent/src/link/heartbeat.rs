//! Heartbeats: a task of their own. Where a sample of the load comes about when one is due they leave together, which wakes an idle
//! machine once instead of twice; no sample delays one for long.

use std::sync::Arc;

use island_protocol::{FABRIC_VERSION, fabric::Heartbeat, subjects::HostTopic};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::fabric::Fabric;
use crate::{clock, inventory::meter::Sample, policy::Verdict, supervisor::Supervisor};

/// So much of the time between two heartbeats, one part in so many, may the next one come early or late to go with a sample.
const LEEWAY: u32 = 4;

/// Sends heartbeats until stopped; at once when registered or when something worth telling changed.
pub async fn run(
    fabric: Arc<Fabric>,
    supervisor: Arc<Supervisor>,
    mut load: watch::Receiver<Sample>,
    stop: CancellationToken,
) {
    let mut seq = 0;
    let mut registered = fabric.registered();
    let mut news = supervisor.news();
    loop {
        if fabric.is_up() {
            seq += 1;
            let message = compose(&fabric, &supervisor, &load.borrow().clone(), seq);
            if let Err(error) = fabric.publish(HostTopic::Heartbeat, &message).await {
                tracing::debug!(%error, "a heartbeat was not sent");
            }
        }
        let every = fabric.heartbeat_every();
        let due = Instant::now() + every;
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            Ok(()) = registered.changed() => {}
            Ok(()) = news.changed() => {}
            () = sampled_after(&mut load, due - every / LEEWAY) => {}
            () = sleep_until(due + every / LEEWAY) => {}
        }
    }
}

/// Waits for a sample no older than this.
async fn sampled_after(load: &mut watch::Receiver<Sample>, moment: Instant) {
    let is_new = |sample: &Sample| sample.taken.is_some_and(|taken| taken >= moment);
    if load.wait_for(is_new).await.is_err() {
        // No more samples come, and the clock alone counts.
        std::future::pending::<()>().await;
    }
}

fn compose(fabric: &Fabric, supervisor: &Supervisor, load: &Sample, seq: u64) -> Heartbeat {
    let status = match supervisor.stance() {
        _ if supervisor.is_draining() => "draining",
        Verdict::Yes => "online",
        Verdict::Finish { .. } => "draining",
        Verdict::Leave { .. } => "paused",
    };
    Heartbeat {
        v: FABRIC_VERSION,
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
        timestamp: clock::now(),
    }
}
