//! The worker program with the WebGPU plugin, in the sandbox, on a device that the processor emulates.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::Command,
};

use island_protocol::{
    event::AttemptEvent,
    host::{CPU, Device, SandboxLevel},
    ids::{AttemptKey, InstanceId, JobId},
    job::{Failure, Fault, Outcome},
};
use island_runtimes_api::RunRequest;
use island_runtimes_onnx_fixtures::{Case, Fixture, agree};
use island_runtimes_worker::{
    frame::{FromWorker, ToWorker},
    host,
    launch::{GpuGrant, Launch, ProbeReport},
};
use island_testing::vulkan;
use serde_json::Value;

const BINARY: &str = env!("CARGO_BIN_EXE_island-worker-onnx");
/// The API of the devices under test.
const WEBGPU: &str = "webgpu";
/// What the outputs of a graph may differ from the CPU provider's, at most.
const IN_FULL: f64 = 1e-4;
const IN_HALF: f64 = 1e-2;

type Environment = BTreeMap<String, String>;

/// What the jobs of one worker showed.
#[derive(Debug, Default)]
struct Jobs {
    outputs: Vec<Value>,
    devices: BTreeSet<String>,
    sandbox: Option<SandboxLevel>,
    /// Libraries that the worker had mapped when it had answered.
    libraries: String,
}

fn grant() -> Vec<GpuGrant> {
    vec![GpuGrant { index: 0, address: None, memory_mb: 1024 }]
}

/// The outputs of a worker for all cases of a fixture, or why it could not load the model.
async fn run(fixture: &Fixture, gpus: Vec<GpuGrant>, environment: &Environment) -> Result<Jobs, Failure> {
    let dir = tempfile::tempdir().expect("a folder");
    let launch = Launch {
        artifacts: fixture.files(),
        memory_limit_mb: 4096,
        threads: 2,
        slots: 1,
        orphan_timeout_s: 30,
        gpus,
        environment: environment.clone(),
        ..Launch::new(InstanceId(uuid::Uuid::now_v7()), fixture.cargo(&fixture.task))
    };
    let mut worker = host::spawn(BINARY.as_ref(), dir.path(), &launch).await.expect("a worker");
    let mut jobs = Jobs::default();
    for case in cases(fixture) {
        let key = AttemptKey { job_id: JobId(uuid::Uuid::now_v7()), attempt: 1, epoch: 1 };
        let request = Box::new(RunRequest {
            cargo: launch.cargo.clone(),
            input: fixture.input(case),
            artifacts: launch.artifacts.clone(),
            continues: None,
            continues_reasoning: None,
            scope: "test".to_owned(),
        });
        worker
            .connection
            .commands
            .send(ToWorker::Run { key, first_event: 1, request, reports_steps: false })
            .await
            .expect("send");
        let mut ended = None;
        while ended.is_none() {
            let frame =
                tokio::time::timeout(std::time::Duration::from_mins(2), worker.connection.frames.next());
            let frame = frame.await.expect("in time");
            let lives = || panic!("the worker ended: {}", host::stderr_tail(dir.path(), 4000));
            match frame.unwrap_or_else(lives).expect("a sound frame") {
                FromWorker::Hello { sandbox, .. } => jobs.sandbox = Some(sandbox.level),
                FromWorker::LoadFailed { failure } => return Err(failure),
                FromWorker::Events { events, .. } => {
                    ended = events.into_iter().find_map(|event| match event.event {
                        AttemptEvent::Ended { outcome } => Some(outcome),
                        _ => None,
                    });
                }
                _ => {}
            }
        }
        match ended {
            Some(Outcome::Completed { usage, output, .. }) => {
                jobs.outputs.push(output.expect("an output"));
                jobs.devices.insert(usage.device.expect("the device is in the usage"));
            }
            other => panic!("{}/{}: {other:?}", fixture.name, case.name),
        }
    }
    let maps = format!("/proc/{}/maps", worker.process.pid());
    jobs.libraries = fs::read_to_string(maps).expect("the worker's memory map");
    Ok(jobs)
}

/// The cases of the fixture's own task.
fn cases(fixture: &Fixture) -> impl Iterator<Item = &Case> {
    fixture.cases.iter().filter(|case| case.task.is_none())
}

fn probe(environment: &Environment) -> ProbeReport {
    let output = Command::new(BINARY).arg("--probe").envs(environment).output().expect("it runs");
    serde_json::from_slice(&output.stdout).expect("a report")
}

/// The largest difference between two outputs' numbers; infinite where they differ otherwise.
fn distance(one: &Value, other: &Value) -> f64 {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            (one.as_f64().unwrap_or(f64::NAN) - other.as_f64().unwrap_or(f64::NAN)).abs()
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            one.iter().zip(other).map(|(one, other)| distance(one, other)).fold(0.0, f64::max)
        }
        (Value::Object(one), Value::Object(other)) if one.len() == other.len() => one
            .iter()
            .map(|(name, one)| other.get(name).map_or(f64::INFINITY, |other| distance(one, other)))
            .fold(0.0, f64::max),
        _ if one == other => 0.0,
        _ => f64::INFINITY,
    }
}

#[test]
fn distances_are_found_in_every_part() {
    let parts = |last: f64| serde_json::json!({ "a": [1, 2.5], "b": { "c": "x", "d": last } });
    assert!((distance(&parts(0.5), &parts(0.25)) - 0.25).abs() < 1e-12);
    assert_eq!(distance(&parts(0.5), &serde_json::json!({ "a": [1], "b": {} })), f64::INFINITY);
}

#[tokio::test(flavor = "multi_thread")]
async fn gpu_and_processor_agree_in_the_sandbox() {
    let Some(environment) = vulkan::software("ONNX models on a GPU") else { return };
    // A model of each kind: full precision, blocks of 4 bits, half precision, a convolution, a decoder with a cache.
    for (name, tolerance) in [
        ("minilm", IN_FULL),
        ("distilbert-q4", IN_FULL),
        ("distilbert-fp16", IN_HALF),
        ("resnet", IN_FULL),
        ("marian-split", IN_FULL),
    ] {
        let fixture = Fixture::named(name);
        let on_cpu = run(&fixture, Vec::new(), &environment).await.expect("it loads");
        let on_gpu = run(&fixture, grant(), &environment).await.expect("it loads");
        assert_eq!(on_cpu.devices, BTreeSet::from([CPU.to_owned()]), "{name}");
        assert!(
            on_gpu.devices.iter().all(|device| device.starts_with("webgpu: llvmpipe")),
            "{name}: {on_gpu:?}"
        );
        assert_eq!(
            (on_cpu.sandbox, on_gpu.sandbox),
            (Some(SandboxLevel::Full), Some(SandboxLevel::Full)),
            "{name}"
        );
        assert!(on_gpu.libraries.contains("libvulkan_lvp") && on_gpu.libraries.contains("providers_webgpu"));
        assert!(!on_cpu.libraries.contains("vulkan") && !on_cpu.libraries.contains("providers_webgpu"));
        for ((case, one), other) in cases(&fixture).zip(&on_cpu.outputs).zip(&on_gpu.outputs) {
            let apart = distance(one, other);
            println!("{name}/{}: {apart:.1e}", case.name);
            assert!(apart <= tolerance, "{name}/{} differs by {apart}", case.name);
            assert_eq!(
                agree(&fixture, case, one),
                Vec::<String>::new(),
                "{name}/{} on the processor",
                case.name
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn products_of_integers_remain_on_the_processor() {
    let Some(environment) = vulkan::software("quantized ONNX models beside a GPU") else { return };
    let fixture = Fixture::named("distilbert-quantized");
    let on_gpu = run(&fixture, grant(), &environment).await.expect("it loads");
    assert_eq!(on_gpu.devices, BTreeSet::from([CPU.to_owned()]));
    for (case, output) in cases(&fixture).zip(&on_gpu.outputs) {
        assert_eq!(agree(&fixture, case, output), Vec::<String>::new(), "{}", case.name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn model_never_falls_back_to_the_processor() {
    let Some(environment) = vulkan::software("ONNX models without a usable GPU") else { return };
    let fixture = Fixture::named("minilm");
    let refused = async |gpus, environment: &Environment| {
        let failure = run(&fixture, gpus, environment).await.expect_err("no GPU runs it");
        assert_eq!(failure.fault, Fault::Host, "{failure:?}");
        failure.message
    };
    let without = |name: &str| {
        let mut environment = environment.clone();
        environment.remove(name);
        environment
    };
    let emulated = refused(grant(), &without("ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER")).await;
    assert!(emulated.contains("which the processor emulates"), "{emulated}");
    let no_plugin = [("ISLAND_WEBGPU_PLUGIN".to_owned(), "/nowhere/plugin.so".to_owned())];
    let missing = refused(grant(), &environment.clone().into_iter().chain(no_plugin).collect()).await;
    assert!(missing.contains("names /nowhere/plugin.so, which does not exist"), "{missing}");
    let too_small = vec![GpuGrant { memory_mb: 0, ..grant()[0].clone() }];
    let small = refused(too_small, &environment).await;
    assert!(small.contains("0 MB were granted"), "{small}");
}

#[test]
fn probe_reports_devices_and_why_there_are_none() {
    let Some(environment) = vulkan::software("the probe of ONNX Runtime") else { return };
    let with = |changes: &[(&str, &Path)]| {
        let mut environment = environment.clone();
        environment
            .extend(changes.iter().map(|(name, path)| ((*name).to_owned(), path.display().to_string())));
        probe(&environment)
    };
    let found = with(&[]);
    let [gpu, cpu] = &found.devices[..] else { panic!("{found:?}") };
    assert!(
        gpu.api == WEBGPU && gpu.name.contains("llvmpipe") && gpu.is_software && gpu.memory_mb > 0,
        "{gpu:?}"
    );
    assert_eq!(*cpu, Device::cpu());
    assert_eq!(found.details.get(WEBGPU), None, "{:?}", found.details);

    let dir = tempfile::tempdir().expect("a folder");
    let (none, broken) = (dir.path().join("none"), dir.path().join("broken"));
    fs::write(&broken, "{}").expect("written");
    // A library without the functions of a plugin.
    let other = island_testing::workspace().join(".tools/lib/libonnxruntime.so");
    for (changes, problem) in [
        (vec![("ISLAND_WEBGPU_PLUGIN", none.as_path())], "which does not exist"),
        (vec![("ISLAND_WEBGPU_PLUGIN", broken.as_path())], "cannot be registered"),
        (vec![("ISLAND_WEBGPU_PLUGIN", other.as_path())], "cannot be registered"),
        (vec![("VK_DRIVER_FILES", none.as_path())], "Vulkan finds no driver"),
        (vec![("ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER", Path::new("0"))], "which the processor emulates"),
    ] {
        let found = with(&changes);
        assert_eq!(found.devices, [Device::cpu()], "{changes:?}");
        let reported = found.details.get(WEBGPU).unwrap_or_else(|| panic!("{changes:?}: {found:?}"));
        assert!(reported.contains(problem), "{changes:?}: {reported}");
    }
}
