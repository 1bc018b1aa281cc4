//! Offers of an Island after failures of its own.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use island_protocol::{
    fabric::{Assignment, RefusalReason},
    host::RuntimeReport,
    job::{FailureCode, Fault},
};
use serde_json::json;

use crate::{
    coordinator::Received,
    fixture::{Island, assignment, workers_dir},
    gpu::Gpu,
    stories::{assert_completed, failure},
};

/// A program in place of the scripted engine that answers probes, and whose workers end where the script `ends` is true.
fn engine(folder: &Path, ends: &str) {
    let program = folder.join("island-worker-simulated");
    let real = workers_dir().join("island-worker-simulated");
    let script =
        format!("#!/bin/sh\n[ \"$1\" = --dir ] && {ends} && kill -ABRT $$\nexec {} \"$@\"\n", real.display());
    fs::write(&program, script).expect("write");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("chmod");
}

fn on_gpu() -> Assignment {
    let mut job = assignment(json!({"prompt": "a", "max_tokens": 3}));
    job.cargo.required_vram_mb = 1000;
    job
}

/// The scripted engine as it was registered last.
fn simulated(seen: &Received) -> Option<&RuntimeReport> {
    seen.registers.last()?.capabilities.runtimes.iter().find(|engine| engine.simulated)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gpu_whose_workers_end_is_withheld() {
    let Some(gpu) = Gpu::of_mb(8000) else { return };
    let programs = tempfile::tempdir().expect("temporary folder");
    engine(programs.path(), "grep -q '\"memory_mb\"' \"$2/launch.json\"");
    let island = Island::on_gpu_with_programs(&gpu, programs.path()).await;
    let gpus = |seen: &Received| Some(simulated(seen)?.gpus.clone()?.len());
    assert_eq!(gpus(&island.coordinator.seen()), Some(1), "its probe passes");
    let mut failures = 0;
    loop {
        let key = island.run(&on_gpu()).await;
        let events = island.coordinator.end(key).await;
        if matches!(crate::stories::outcome(&events), island_protocol::job::Outcome::Completed { .. }) {
            assert_completed(&events, "a", 3);
            break;
        }
        assert_eq!(failure(&events), (Fault::Host, FailureCode::RuntimeCrashed));
        failures += 1;
        assert!(failures < 4, "the processor is used instead");
    }
    island.coordinator.wait("a registration without the GPU", |seen| (gpus(seen)? == 0).then_some(())).await;
    let status = island.agent(&["status"]);
    assert!(status.contains("simulated on GPU 0 is withheld after repeated failures"), "{status}");
    let doctor = String::from_utf8(island.try_agent_with(&gpu, &["doctor"]).stdout).expect("text");
    let line = doctor.lines().find(|line| line.contains("is withheld")).expect("a finding");
    assert!(line.starts_with("PROBLEM"), "{doctor}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cargo_whose_workers_end_is_refused() {
    let programs = tempfile::tempdir().expect("temporary folder");
    engine(programs.path(), "grep -q 'sim-broken' \"$2/launch.json\"");
    let island = Island::with_programs(programs.path()).await;
    let good = assignment(json!({"prompt": "a", "max_tokens": 3}));
    let key = island.run(&good).await;
    assert_completed(&island.coordinator.end(key).await, "a", 3);
    let broken = || {
        let mut job = assignment(json!({"prompt": "a"}));
        job.cargo.slug = "sim-broken".parse().expect("a slug");
        job.cargo.limits.context_tokens = 99;
        job
    };
    let mut refusal = None;
    for _ in 0..4 {
        let job = broken();
        let reply = island.coordinator.assign(island.host, &job).await;
        if reply.refusal.is_some() {
            refusal = reply.refusal;
            break;
        }
        assert_eq!(failure(&island.coordinator.end(job.key).await).0, Fault::Host);
    }
    let refusal = refusal.expect("it is refused after some failures");
    assert_eq!(refusal.reason, RefusalReason::Other);
    assert!(refusal.message.contains("withheld after repeated failures"), "{refusal:?}");
    assert!(simulated(&island.coordinator.seen()).is_some_and(|engine| engine.available));
    let key = island.run(&assignment(json!({"prompt": "b", "max_tokens": 3}))).await;
    assert_completed(&island.coordinator.end(key).await, "b", 3);
}

#[tokio::test]
async fn failures_of_jobs_withhold_nothing() {
    let island = Island::start().await;
    for _ in 0..8 {
        let key = island.run(&assignment(json!({"prompt": 7}))).await;
        assert_eq!(failure(&island.coordinator.end(key).await).0, Fault::Job);
    }
    let key = island.run(&assignment(json!({"prompt": "a", "max_tokens": 3}))).await;
    assert_completed(&island.coordinator.end(key).await, "a", 3);
}
