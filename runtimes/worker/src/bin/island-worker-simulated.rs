//! A worker around the scripted engine, for tests, demonstrations and load tests without inference.

use std::{env, fs, path::PathBuf, process::ExitCode, time::Duration};

use island_protocol::{
    cargo::RuntimeType,
    host::{CONTINUES_FORMS, Device},
    job::{Failure, FailureCode, Fault},
};
use island_runtimes_api::{
    Probe, Unavailable,
    simulated::{Crash, Script, Simulated},
};
use island_runtimes_worker::{
    inside::{self, EngineLoader, LoadProgress, Loaded},
    launch::Launch,
};

const VERSION: &str = concat!("simulated ", env!("CARGO_PKG_VERSION"));
/// Variable that names the PCI address of a GPU on which the engine claims to run models: tests describe one to the agent.
const GPU: &str = "ISLAND_SIMULATED_GPU";
/// Number of parts in which a scripted load advances.
const LOAD_PARTS: u64 = 20;

struct SimulatedEngine;

impl EngineLoader for SimulatedEngine {
    type Runtime = Simulated;

    fn kind(&self) -> RuntimeType {
        RuntimeType::Llmcpp
    }

    fn probe(&mut self) -> Result<Probe, Unavailable> {
        let gpu = env::var(GPU).ok().map(|address| Device {
            api: "simulated".to_owned(),
            name: "simulated GPU".to_owned(),
            address: Some(address),
            ..Device::default()
        });
        let devices = gpu.into_iter().chain([Device::cpu()]).collect();
        // A scripted reply goes on after any text.
        let features = vec![CONTINUES_FORMS.to_owned()];
        Ok(Probe { version: VERSION.to_owned(), devices, features, ..Probe::default() })
    }

    async fn load(self, launch: Launch, progress: LoadProgress) -> Result<Loaded<Simulated>, Failure> {
        let script: Script = match launch.cargo.engine {
            serde_json::Value::Null => Script::default(),
            engine => serde_json::from_value(engine).map_err(|error| {
                Failure::of_job(FailureCode::ModelRejected, format!("read the script: {error}"))
            })?,
        };
        for part in 0..LOAD_PARTS {
            progress.report(part, LOAD_PARTS);
            tokio::time::sleep(Duration::from_millis(script.load_ms / LOAD_PARTS)).await;
        }
        let has_header = |path: &PathBuf| fs::read(path).is_ok_and(|bytes| bytes.first() != Some(&0));
        if script.reads_header && !launch.artifacts.values().all(has_header) {
            return Err(Failure::of_job(FailureCode::ModelRejected, "a file has no header"));
        }
        if let Some(code) = script.load_fails {
            return Err(Failure { fault: Fault::Host, code, message: "scripted failure".to_owned() });
        }
        let runtime = Simulated::new(launch.slots, Crash::Abort);
        Ok(Loaded { runtime, version: VERSION.to_owned(), slots: launch.slots.max(1), vram_mb: 0 })
    }
}

fn main() -> ExitCode {
    inside::main(SimulatedEngine)
}
