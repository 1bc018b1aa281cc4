//! Values for the tests of this crate and of the crates above it. Not compiled into a release.

use std::{sync::Arc, time::Duration};

use island_protocol::{
    cargo::{CargoSpec, Limits, RuntimeType, TokenPrices},
    credits::MicroCredits,
    fabric::Heartbeat,
    host::{Capabilities, Headroom, RunningJob, RuntimeReport, SandboxReport, SystemLoad},
    ids::{AccountId, AttemptKey, HostId, InstanceId, JobId},
    time::Timestamp,
};
use island_protocol_api::admin::Trust;
use tokio::time::Instant;
use uuid::Uuid;

use crate::{
    fleet::{Enrolled, Fleet},
    job::Job,
};

/// The Island of [`fleet`].
pub const HOST: HostId = HostId(Uuid::from_u128(1));

/// A job of the Cargo `echo` that was just accepted.
pub fn job() -> Job {
    let now = Timestamp::from_unix_ms(1_700_000_000_000);
    let workload = (1, "echo".parse().expect("slug"));
    let new = Job::new(
        JobId(Uuid::from_u128(1)),
        AccountId(Uuid::from_u128(2)),
        workload,
        MicroCredits(1_000_000),
        now,
    );
    Job { head: Vec::new(), first_event: 1, deadline: now.plus_ms(60_000), ..new }
}

/// A Cargo that runs on the Island of [`fleet`].
pub fn cargo_spec() -> CargoSpec {
    CargoSpec {
        price_per_job: MicroCredits::ZERO,
        token_prices: TokenPrices::default(),
        slug: "a".parse().expect("slug"),
        runtime_type: RuntimeType::Llmcpp,
        onnx_task_type: None,
        artifacts: vec![],
        required_vram_mb: 0,
        required_ram_mb: 100,
        limits: Limits::default(),
        sandbox_tier: None,
        engine: serde_json::Value::Null,
    }
}

/// Hardware of the Island of [`fleet`]: a processor with llama.cpp.
pub fn capabilities() -> Capabilities {
    let report = RuntimeReport {
        kind: RuntimeType::Llmcpp,
        available: true,
        reason: None,
        version: None,
        simulated: false,
        backend: None,
        devices: None,
        gpus: None,
        features: Vec::new(),
    };
    Capabilities {
        platform: "linux-x86_64".into(),
        cpu_model: String::new(),
        cpu_cores: 2,
        ram_mb: 1_000,
        gpus: vec![],
        no_gpu_reason: None,
        runtimes: vec![report],
        sandbox: SandboxReport::default(),
        hub_reachable: None,
        ..Capabilities::default()
    }
}

/// A heartbeat of the Island of [`fleet`], with `slots` free and running `jobs`.
pub fn heartbeat(slots: u32, jobs: &[AttemptKey]) -> Heartbeat {
    let job = |key: &AttemptKey| RunningJob {
        key: *key,
        slug: "a".parse().expect("slug"),
        phase: "running".into(),
        duration_ms: 0,
        last_event: 0,
    };
    Heartbeat {
        v: 1,
        host_id: HOST,
        instance: InstanceId(Uuid::from_u128(9)),
        seq: 1,
        status: "online".into(),
        agent_version: "0".into(),
        system: SystemLoad::default(),
        gpus: vec![],
        jobs: jobs.iter().map(job).collect(),
        models: vec![],
        control: None,
        refusals: Vec::new(),
        headroom: Headroom { job_slots: slots, ram_mb: 1_000, vram_mb: 0, gpus: None },
        timestamp: Timestamp::from_unix_ms(0),
    }
}

/// A fleet of one Island without a heartbeat, and its time.
pub fn fleet() -> (Fleet, Instant) {
    let fleet = Fleet::new(Duration::from_secs(15));
    fleet.enroll(Enrolled {
        id: HOST,
        account: AccountId(Uuid::from_u128(2)),
        public_key: String::new(),
        name: "one".into(),
        region: None,
        capabilities: Some(Arc::new(capabilities())),
        karma_ms: 0,
        tokens_per_second: None,
        last_seen: None,
        has_left: false,
        suspended: false,
        trust: Trust::Normal,
    });
    (fleet, Instant::now())
}
