//! The sandboxes of real engines, taken over once they have opened their libraries: the attempts of the hostile worker, in the profile and with
//! the threads that each engine has by then. This program is the agent when the test runner starts it, and the worker with `--dir`.

use std::{fs, path::Path, process::ExitCode};

use island_protocol::cargo::RuntimeType;
use island_runtimes_coreml::worker::CoreMlEngine;
use island_runtimes_diffusers::worker::DiffusersEngine;
use island_runtimes_graph::library;
use island_runtimes_onnx::worker::OnnxEngine;
use island_runtimes_worker::{
    inside,
    launch::{GpuGrant, LAUNCH_FILE, Launch},
};
use island_runtimes_worker_hostile::{ABI, Scene, TakenOver, holds};
use island_testing::harness;

/// What GPU drivers need in addition: facts about this process, names for its threads, code that they compile, files without a name.
const DRIVERS_NEED: &[&str] = &["read own memory map", "name a thread", "memory file", "executable memory"];

fn main() -> ExitCode {
    // Returns only in a process that has it.
    library::set_environment().expect("this program can be executed again");
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(at) = arguments.iter().position(|argument| argument == "--dir") {
        return worker(Path::new(&arguments[at + 1]));
    }
    let tests: [(&str, fn()); 3] = [
        ("onnx_is_confined", || is_confined(&RuntimeType::Onnx, DRIVERS_NEED)),
        ("coreml_is_confined", || is_confined(&RuntimeType::Coreml, &[])),
        ("diffusers_is_confined", || is_confined(&RuntimeType::Diffusers, DRIVERS_NEED)),
    ];
    if let Err(missing) = library::open() {
        for (name, _) in harness::select(tests).unwrap_or_default() {
            island_testing::skip(name, &missing.reason);
        }
        return ExitCode::SUCCESS;
    }
    harness::run(tests)
}

/// The engine that the launch file names.
fn worker(dir: &Path) -> ExitCode {
    let launch = fs::read(dir.join(LAUNCH_FILE)).expect("a launch file");
    let launch: Launch = serde_json::from_slice(&launch).expect("readable");
    match launch.cargo.runtime_type {
        RuntimeType::Onnx => inside::main(TakenOver(OnnxEngine)),
        RuntimeType::Coreml => inside::main(TakenOver(CoreMlEngine)),
        RuntimeType::Diffusers => inside::main(TakenOver(DiffusersEngine)),
        other => panic!("no engine {other}"),
    }
}

/// What the kernels of Debian 12 and Debian 13 know of landlock, and what this one does.
const LANDLOCK: [u32; 3] = [2, 6, 0];

/// Without a GPU, and with one, with each version of landlock.
fn is_confined(engine: &RuntimeType, allowed_with_gpu: &[&str]) {
    for gpus in [Vec::new(), vec![GpuGrant { index: 0, address: None, memory_mb: 1000 }]] {
        let allowed = if gpus.is_empty() { &[] } else { allowed_with_gpu };
        for abi in LANDLOCK {
            let mut scene = Scene::new(2048);
            scene.launch.cargo.runtime_type = engine.clone();
            scene.launch.cargo.engine = serde_json::json!({ ABI: abi });
            scene.launch.gpus.clone_from(&gpus);
            holds(&scene, allowed);
        }
    }
}
