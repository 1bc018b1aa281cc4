//! Snapshots of every message on the fabric.
//!
//! `tests/wire/<message>.json` is what this version writes. When a message gains a field, rename its file to
//! `<message>.<n>.json` before writing the new one (`UPDATE_WIRE=1 cargo test -p island-protocol`): every file of a
//! message must parse for ever.

use std::{fmt::Debug, fs, path::PathBuf};

use island_protocol::{
    FABRIC_VERSION,
    artifact::Artifact,
    asking::Asking,
    cargo::{CargoSpec, Limits, RuntimeType, SandboxTier},
    credits::MicroCredits,
    digest::Digest,
    event::{AttemptEvent, Image, JobEvent, Numbered},
    fabric::{
        Assignment, AssignmentReply, Cancel, Control, ControlReply, Heartbeat, Introduction, JobEvents,
        Lease, LeaseRenewal, LeaseReply, LeasedJob, Output, OutputReply, Pong, Preload, Refusal,
        RefusalCount, RefusalReason, Register, Registered, Status,
    },
    host::{
        CONTINUES_FORMS, Capabilities, ContainerOffer, ControlState, Device, Gpu, GpuLoad, Headroom,
        HostModel, Measured, NATIVE, Order, RunningJob, RuntimeReport, SandboxLevel, SandboxReport,
        SystemLoad,
    },
    ids::{AttemptKey, HostId, InstanceId, JobId, Slug},
    job::{Failure, FailureCode, FinishReason, Outcome, Usage},
    time::Timestamp,
    version::{VERSIONS, Versions, negotiate},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use uuid::Uuid;

fn folder() -> PathBuf {
    PathBuf::from("tests/wire")
}

/// Every file of a message has what both sides read before they agree on a version.
#[test]
fn every_registration_introduces_itself() {
    let mut count = 0;
    for entry in fs::read_dir(folder()).expect("list") {
        let path = entry.expect("entry").path();
        let file = path.file_name().and_then(|file| file.to_str()).expect("a name");
        if file.starts_with("register.") {
            let text = fs::read_to_string(&path).expect("read");
            let introduction = serde_json::from_str::<Introduction>(&text);
            let introduction = introduction.unwrap_or_else(|error| panic!("{file}: {error}"));
            let versions = introduction.versions.unwrap_or(Versions::only(introduction.v));
            assert_eq!(negotiate(versions, VERSIONS), Ok(1), "{file}");
            count += 1;
        }
    }
    assert!(count > 5, "{count}");
}

/// The committed file is what we write, and every file of this message parses.
fn check<T: Serialize + DeserializeOwned + PartialEq + Debug>(name: &str, message: &T) {
    let path = folder().join(format!("{name}.json"));
    let written = serde_json::to_string_pretty(message).expect("serialize") + "\n";
    if std::env::var_os("UPDATE_WIRE").is_some() {
        fs::write(&path, &written).expect("write the snapshot");
    }
    let committed = fs::read_to_string(&path).unwrap_or_else(|_| panic!("{name}.json is not committed"));
    assert_eq!(written, committed, "{name} changed on the wire");
    assert_eq!(&serde_json::from_str::<T>(&committed).expect("parse"), message);
    for entry in fs::read_dir(folder()).expect("list") {
        let path = entry.expect("entry").path();
        let file = path.file_name().and_then(|file| file.to_str()).expect("a name");
        if file.strip_prefix(name).is_some_and(|rest| rest.starts_with('.')) {
            let text = fs::read_to_string(&path).expect("read");
            serde_json::from_str::<T>(&text)
                .unwrap_or_else(|error| panic!("{file} no longer parses: {error}"));
            let mut newer: Value = serde_json::from_str(&text).expect("JSON");
            newer["added_by_a_later_version"] = json!({ "x": 1 });
            serde_json::from_value::<T>(newer)
                .unwrap_or_else(|error| panic!("{name} refuses new fields: {error}"));
        }
    }
}

fn key() -> AttemptKey {
    AttemptKey { job_id: JobId(Uuid::from_u128(1)), attempt: 2, epoch: 7 }
}

fn host() -> HostId {
    HostId(Uuid::from_u128(2))
}

fn instance() -> InstanceId {
    InstanceId(Uuid::from_u128(3))
}

fn slug() -> Slug {
    "llm-chat".parse().expect("slug")
}

fn now() -> Timestamp {
    Timestamp::from_unix_ms(1_795_210_800_123)
}

fn artifact() -> Artifact {
    Artifact {
        name: "model".into(),
        url: "hf://owner/repo:model.gguf".into(),
        sha256: Some(Digest::from_bytes([0xab; 32])),
        size_bytes: Some(4096),
    }
}

fn control() -> ControlState {
    ControlState { allowed: true, order: Some(Order::Pause), remote: true }
}

fn capabilities() -> Capabilities {
    Capabilities {
        platform: "linux-x86_64".into(),
        cpu_model: "Some Processor".into(),
        cpu_cores: 8,
        cpu_features: vec!["avx2".into()],
        numa_nodes: Some(2),
        ram_mb: 32_000,
        gpus: vec![Gpu {
            index: 0,
            name: "Some GPU".into(),
            vram_mb: 24_000,
            id: Some("0000:03:00.0".into()),
            vendor: Some("amd".into()),
            part_of: Some("GPU-8f6b1c2e-4a5d-4e0f-9b7a-3c2d1e0f5a6b".into()),
            missing: vec!["power: power1_average: not there".into()],
        }],
        no_gpu_reason: None,
        runtimes: vec![
            RuntimeReport {
                kind: RuntimeType::Container,
                available: false,
                reason: Some("no container engine".into()),
                version: None,
                simulated: false,
                backend: None,
                devices: None,
                gpus: None,
                features: Vec::new(),
            },
            RuntimeReport {
                kind: RuntimeType::Coreml,
                available: true,
                reason: None,
                version: Some("Core ML of macOS 15.5".into()),
                simulated: false,
                backend: Some(NATIVE.into()),
                devices: Some(vec![
                    Device {
                        api: "metal".into(),
                        name: "GPU".into(),
                        address: Some("0000:03:00.0".into()),
                        memory_mb: 24_576,
                        is_software: true,
                    },
                    Device::cpu(),
                ]),
                gpus: Some(vec![0]),
                features: vec![CONTINUES_FORMS.into()],
            },
        ],
        sandbox: SandboxReport {
            level: SandboxLevel::Partial,
            layers: vec!["seccomp".into()],
            missing: vec!["landlock: not in this kernel".into()],
        },
        hub_reachable: Some(true),
        asking: Some(Asking {
            per_job: MicroCredits(10_000),
            cargos: [("llm-chat".parse().expect("a slug"), MicroCredits::ZERO)].into(),
        }),
        measured: Some(Measured {
            memory_mb_s: 38_400,
            disk_mb_s: Some(2150),
            link_mb_s: None,
            at: Timestamp::from_unix_ms(1_800_000_000_000),
        }),
        containers: Some(ContainerOffer {
            max_tier: SandboxTier::Elevated,
            egress: serde_json::from_value(json!(["example.org:443"])).expect("a rule"),
        }),
    }
}

#[test]
fn registrations_of_islands() {
    check(
        "register",
        &Register {
            v: FABRIC_VERSION,
            host_id: host(),
            instance: instance(),
            name: "attic".into(),
            region: Some("eu".into()),
            agent_version: "0.1.0".into(),
            capabilities: capabilities(),
            holding: vec![key()],
            versions: Some(VERSIONS),
            reads_refusals: true,
            sent_at: now(),
        },
    );
}

#[test]
fn from_islands() {
    check(
        "heartbeat",
        &Heartbeat {
            v: FABRIC_VERSION,
            host_id: host(),
            instance: instance(),
            seq: 12,
            status: "online".into(),
            agent_version: "0.1.0".into(),
            system: SystemLoad {
                cpu_percent: 12.5,
                memory_used_mb: 4000,
                memory_total_mb: 32_000,
                disk_used_gb: 100.5,
                disk_total_gb: 500.0,
            },
            gpus: vec![GpuLoad {
                index: 0,
                utilization_percent: Some(90),
                memory_used_mb: Some(20_000),
                memory_total_mb: 24_000,
                temperature_c: Some(65),
                power_draw_w: Some(280.5),
            }],
            jobs: vec![RunningJob {
                key: key(),
                slug: slug(),
                phase: "running".into(),
                duration_ms: 1200,
                last_event: 9,
            }],
            models: vec![HostModel {
                url: artifact().url,
                sha256: artifact().sha256,
                size_mb: 4,
                warm: true,
                free_slots: 3,
                ram_mb: 900,
                vram_mb: 0,
            }],
            headroom: Headroom {
                job_slots: 15,
                ram_mb: 20_000,
                vram_mb: 4000,
                gpus: Some([(0, 4000)].into()),
            },
            control: Some(control()),
            refusals: vec![RefusalCount {
                reason: RefusalReason::NoVram,
                times: 2,
                latest: "needs 20 GB".to_owned(),
            }],
            timestamp: now(),
        },
    );
    check(
        "status",
        &Status {
            v: FABRIC_VERSION,
            key: key(),
            state: "failed".into(),
            code: Some(FailureCode::RuntimeCrashed),
            timestamp: now(),
        },
    );
    check(
        "lease_renewal",
        &LeaseRenewal {
            v: FABRIC_VERSION,
            host_id: host(),
            instance: instance(),
            jobs: vec![LeasedJob { key: key(), phase: "run".into(), work: 99, last_event: 9 }],
            sent_at: now(),
        },
    );
    check(
        "control_reply",
        &ControlReply {
            v: FABRIC_VERSION,
            accepted: false,
            control: control(),
            message: Some("a newer order applies".into()),
        },
    );
    check("pong", &Pong { v: FABRIC_VERSION, host_id: host(), instance: instance() });
}

#[test]
fn output_with_every_event() {
    let image = Image {
        data: "aGk=".into(),
        format: "png".into(),
        width: Some(2),
        height: Some(1),
        seed: Some(42),
        preview: true,
    };
    let events = [
        AttemptEvent::Status { state: "running".into() },
        AttemptEvent::Progress { step: 1, total: 2, phase: Some("load".into()) },
        AttemptEvent::token("Grüße ".into(), 2),
        AttemptEvent::Image(image),
        AttemptEvent::Ended {
            outcome: Outcome::Completed {
                usage: Usage { device: Some("webgpu: GPU".into()), ..Usage::tokens(3, 2) },
                output: None,
                finish_reason: Some(FinishReason::Stop),
                stop_text: Some("END".into()),
            },
        },
    ];
    let events = (4..).zip(events).map(|(n, event)| Numbered { n, event }).collect();
    check("output", &Output { v: FABRIC_VERSION, key: key(), events });
    let failed = AttemptEvent::Ended {
        outcome: Outcome::failed(Failure::of_host(FailureCode::OutOfMemory, "memory ran out")),
    };
    let events = vec![Numbered { n: 5, event: failed }];
    check("output_failed", &Output { v: FABRIC_VERSION, key: key(), events });
}

#[test]
fn to_islands() {
    check(
        "registered",
        &Registered {
            v: FABRIC_VERSION,
            versions: Some(VERSIONS),
            heartbeat_ms: 5000,
            lease_ms: 30_000,
            drop: vec![key()],
            duplicate: false,
            refused: Some("its name is not a line".into()),
            unread_heartbeat: Some("missing field `system`".into()),
        },
    );
    check(
        "assignment",
        &Assignment {
            v: FABRIC_VERSION,
            key: key(),
            instance: Some(instance()),
            first_event: 4,
            cargo: CargoSpec {
                price_per_job: MicroCredits(20_000),
                token_prices: island_protocol::cargo::TokenPrices::default(),
                slug: slug(),
                runtime_type: RuntimeType::Llmcpp,
                onnx_task_type: None,
                artifacts: vec![artifact()],
                required_vram_mb: 0,
                required_ram_mb: 256,
                limits: Limits::default(),
                sandbox_tier: None,
                engine: json!({ "simulated": true }),
            },
            input: json!({ "prompt": "Hello" }),
            continues: None,
            continues_reasoning: None,
            scope: "0123abcd".into(),
            isolated: true,
            deadline: now().plus_ms(600_000),
            sent_at: now(),
        },
    );
    let refusal = Refusal { reason: RefusalReason::NoRam, message: "4000 MB needed, 100 MB free".into() };
    check(
        "assignment_reply",
        &AssignmentReply { v: FABRIC_VERSION, accepted: false, refusal: Some(refusal) },
    );
    check(
        "output_reply",
        &OutputReply { v: FABRIC_VERSION, committed: false, replay_from: Some(5), earned: None },
    );
    let lease = Lease { key: key(), held: true, replay_from: Some(5) };
    check("lease_reply", &LeaseReply { v: FABRIC_VERSION, leases: vec![lease] });
    check("control", &Control { v: FABRIC_VERSION, order: Order::Drain, sent_at: now() });
    check("cancel", &Cancel { v: FABRIC_VERSION, key: key(), code: FailureCode::CancelledByUser });
    check(
        "preload",
        &Preload {
            v: FABRIC_VERSION,
            workload_slug: slug(),
            artifacts: vec![artifact()],
            sent_at: Some(now()),
        },
    );
}

#[test]
fn job_events() {
    let image = Image { data: "aGk=".into(), format: "png".into(), ..Image::default() };
    let events = [
        JobEvent::status("queued"),
        JobEvent::Progress { step: 1, total: 2, phase: None },
        JobEvent::token("Hi".into()),
        JobEvent::Image(image),
        JobEvent::Done {
            usage: Usage::tokens(3, 2),
            output: None,
            finish_reason: Some(FinishReason::Stop),
            stop_text: Some("END".into()),
        },
        JobEvent::Error { error: "the worker died".into(), code: "runtime_crashed".into() },
    ];
    let events = (1..).zip(events).map(|(n, event)| Numbered { n, event }).collect();
    check("job_events", &JobEvents { v: FABRIC_VERSION, job_id: key().job_id, events });
}
