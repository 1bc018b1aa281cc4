//! Heartbeats: a task of their own that waits for nothing but the clock.

use std::sync::Arc;

use island_protocol::{FABRIC_VERSION, fabric::Heartbeat, subjects::HostTopic};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::fabric::Fabric;
use crate::{clock, inventory::meter::Sample, policy::Verdict, supervisor::Supervisor};

/// Sends heartbeats until stopped; at once when registered or when something worth telling changed.
pub async fn run(
    fabric: Arc<Fabric>,
    supervisor: Arc<Supervisor>,
    load: watch::Receiver<Sample>,
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
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            Ok(()) = registered.changed() => {}
            Ok(()) = news.changed() => {}
            () = tokio::time::sleep(fabric.heartbeat_every()) => {}
        }
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
