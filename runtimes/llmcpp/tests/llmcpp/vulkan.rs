//! The worker program with the real Vulkan module, on a device that the processor emulates.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use island_protocol::{
    event::AttemptEvent,
    host::SandboxLevel,
    ids::{AttemptKey, InstanceId, JobId},
    job::{Failure, Fault, Outcome},
};
use island_runtimes_api::RunRequest;
use island_runtimes_worker::{
    frame::{FromWorker, ToWorker},
    host,
    launch::{GpuGrant, Launch, ProbeReport},
};
use island_testing::vulkan;
use serde_json::{Value, json};

const BINARY: &str = env!("CARGO_BIN_EXE_island-worker-llmcpp");
/// Time for a worker that has to compile its shaders.
const SHADERS: Duration = Duration::from_mins(5);

/// What one reply showed.
#[derive(Debug)]
struct Reply {
    text: String,
    /// The result, of a model that writes no text.
    output: Option<Value>,
    device: String,
    sandbox: SandboxLevel,
    /// Libraries that the worker had mapped when it had replied.
    libraries: String,
    /// What it had logged.
    log: String,
}

struct Island {
    dir: tempfile::TempDir,
    environment: BTreeMap<String, String>,
}

impl Island {
    /// A place for workers with these variables.
    fn new(environment: BTreeMap<String, String>) -> Self {
        Self { dir: tempfile::tempdir().expect("a folder"), environment }
    }

    /// Makes workers log what llama.cpp reports.
    fn logging(mut self) -> Self {
        self.environment.insert("ISLAND_WORKER_LOG".to_owned(), "info".to_owned());
        self
    }

    fn launch(&self, gpus: Vec<GpuGrant>, engine: Value) -> Launch {
        let model = island_testing::workspace().join("cargos/models/island-tiny-chat.gguf");
        let cargo = json!({"slug": "llm-chat", "runtime_type": "llmcpp", "engine": engine});
        Launch {
            artifacts: BTreeMap::from([("model".to_owned(), model)]),
            memory_limit_mb: 4096,
            threads: 2,
            slots: 2,
            orphan_timeout_s: 30,
            gpus,
            environment: self.environment.clone(),
            ..Launch::new(InstanceId(uuid::Uuid::now_v7()), serde_json::from_value(cargo).expect("a Cargo"))
        }
    }

    /// The reply of a worker with these GPUs, or why it could not load the model.
    async fn reply(&self, gpus: Vec<GpuGrant>, engine: Value) -> Result<Reply, Failure> {
        let input = json!({"prompt": "Tell me about the sea.", "max_tokens": 16, "temperature": 0}); // words: ok
        self.run(self.launch(gpus, engine), input).await
    }

    /// What a worker answers, or why it could not load the model.
    async fn run(&self, launch: Launch, input: Value) -> Result<Reply, Failure> {
        let dir = self.dir.path().join(launch.instance.to_string());
        let mut worker = host::spawn(BINARY.as_ref(), &dir, &launch).await.expect("a worker");
        let key = AttemptKey { job_id: JobId(uuid::Uuid::now_v7()), attempt: 1, epoch: 1 };
        let request = Box::new(RunRequest {
            cargo: launch.cargo.clone(),
            input,
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
        let (mut text, mut level) = (String::new(), SandboxLevel::None);
        loop {
            let frame = tokio::time::timeout(SHADERS, worker.connection.frames.next()).await;
            let Some(frame) = frame.expect("in time") else {
                panic!("the worker ended: {}", host::stderr_tail(&dir, 4000));
            };
            match frame.expect("a sound frame") {
                FromWorker::Hello { sandbox, .. } => level = sandbox.level,
                FromWorker::LoadFailed { failure } => return Err(failure),
                FromWorker::Events { events, .. } => {
                    for event in events {
                        match event.event {
                            AttemptEvent::Token { content, .. } => text.push_str(&content),
                            AttemptEvent::Ended { outcome: Outcome::Completed { usage, output, .. } } => {
                                let maps = format!("/proc/{}/maps", worker.process.pid());
                                return Ok(Reply {
                                    text,
                                    output,
                                    device: usage.device.expect("the device is in the usage"),
                                    sandbox: level,
                                    libraries: fs::read_to_string(maps).expect("the worker's memory map"),
                                    log: host::stderr_tail(&dir, 1 << 20),
                                });
                            }
                            AttemptEvent::Ended { outcome } => panic!("{outcome:?}"),
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
    }

    fn probe(&self) -> ProbeReport {
        let output = Command::new(BINARY).arg("--probe").envs(&self.environment).output().expect("it runs");
        serde_json::from_slice(&output.stdout).expect("a report")
    }

    /// Copies the processor's variants to a folder of its own, and makes workers use that folder. Returns the path for a Vulkan module.
    fn own_modules(&mut self) -> PathBuf {
        let built = Path::new(BINARY).parent().expect("a folder").join("backends");
        let folder = self.dir.path().join("backends");
        fs::create_dir_all(folder.join("vulkan")).expect("a folder");
        for entry in built.read_dir().expect("back ends").flatten().filter(|entry| entry.path().is_file()) {
            fs::copy(entry.path(), folder.join(entry.file_name())).expect("a copy");
        }
        fs::copy(built.join("vulkan/version"), folder.join("vulkan/version")).expect("a copy");
        self.environment.insert("ISLAND_BACKENDS_DIR".to_owned(), folder.display().to_string());
        folder.join("vulkan/libggml-vulkan.so")
    }
}

fn software(what: &str) -> Option<Island> {
    vulkan::software(what).map(Island::new)
}

fn granted(memory_mb: u64) -> Vec<GpuGrant> {
    vec![GpuGrant { index: 0, address: None, memory_mb }]
}

#[tokio::test]
async fn a_model_runs_on_the_gpu_in_the_full_sandbox_and_replies_as_on_the_processor() {
    let Some(island) = software("a model on a GPU").map(Island::logging) else { return };
    let on_gpu = island.reply(granted(4096), Value::Null).await.expect("a reply");
    assert!(on_gpu.device.starts_with("vulkan: llvmpipe"), "{}", on_gpu.device);
    assert!(!on_gpu.device.contains("cpu"), "all layers are on the GPU");
    assert_eq!(on_gpu.sandbox, SandboxLevel::Full);
    assert!(on_gpu.libraries.contains("libggml-vulkan.so"));
    assert!(on_gpu.log.contains("Flash Attention enabled"), "{}", on_gpu.log);
    let on_processor = island.reply(Vec::new(), Value::Null).await.expect("a reply");
    assert_eq!(on_processor.device, "cpu");
    assert_eq!(on_gpu.text, on_processor.text);
    assert!(!on_gpu.text.is_empty());
}

#[tokio::test]
async fn a_model_that_embeds_texts_runs_on_the_gpu_as_on_the_processor() {
    let Some(island) = software("vectors on a GPU") else { return };
    let model = island_testing::workspace().join("runtimes/llmcpp/tests/encoders/bert.gguf");
    let mut vectors = Vec::new();
    for (gpus, device) in [(granted(4096), "vulkan: llvmpipe"), (Vec::new(), "cpu")] {
        let mut launch = island.launch(gpus, json!({"task": "feature-extraction"}));
        launch.artifacts.insert("model".to_owned(), model.clone());
        let reply = island.run(launch, json!({"input": "the train was late"})).await.expect("a vector");
        assert!(reply.device.starts_with(device) && !reply.device.contains('+'), "{}", reply.device);
        let output = reply.output.expect("a result");
        let numbers = output["embeddings"][0].as_array().expect("a vector").clone();
        vectors.push(numbers.iter().map(|number| number.as_f64().expect("a number")).collect::<Vec<f64>>());
    }
    assert_eq!((vectors[0].len(), vectors[1].len()), (64, 64));
    for (one, other) in vectors[0].iter().zip(&vectors[1]) {
        assert!((one - other).abs() < 2e-2, "{vectors:?}");
    }
}

#[tokio::test]
async fn a_model_is_divided_among_two_gpus_and_replies_as_on_the_processor() {
    let Some(mut island) = software("a model on two GPUs").map(Island::logging) else { return };
    // The module makes a device of each number, also of the same one again.
    island.environment.insert("GGML_VK_VISIBLE_DEVICES".to_owned(), "0,0".to_owned());
    let grants = [0, 1].map(|index| GpuGrant { index, address: None, memory_mb: 4096 });
    let on_both = island.reply(grants.to_vec(), Value::Null).await.expect("a reply");
    let on_processor = island.reply(Vec::new(), Value::Null).await.expect("a reply");
    assert_eq!(on_both.text, on_processor.text);
    assert_eq!(on_both.sandbox, SandboxLevel::Full);
    assert_eq!(on_both.device.matches("vulkan: llvmpipe").count(), 2, "{}", on_both.device);
    assert!(!on_both.device.contains("cpu"), "all layers are on the GPUs");
    for buffer in ["Vulkan0 model buffer", "Vulkan1 model buffer", "Vulkan0 KV buffer", "Vulkan1 KV buffer"] {
        assert!(on_both.log.contains(buffer), "no {buffer}: {}", on_both.log);
    }
}

#[tokio::test]
async fn a_worker_without_a_gpu_loads_no_driver() {
    let Some(island) = software("a worker without a GPU") else { return };
    let reply = island.reply(Vec::new(), Value::Null).await.expect("a reply");
    for library in ["libggml-vulkan", "libvulkan", "LLVM"] {
        assert!(!reply.libraries.contains(library), "{library} is mapped");
    }
}

#[tokio::test]
async fn a_model_that_does_not_fit_runs_on_the_processor_and_reports_it() {
    let Some(island) = software("a GPU without memory") else { return };
    let reply = island.reply(granted(1), Value::Null).await.expect("a reply");
    assert_eq!(reply.device, "cpu");
}

/// With caches of 16 bits the model takes 19.5 MiB of the GPU, with those of 8 bits 17.6.
#[tokio::test]
async fn caches_of_8_bits_are_on_the_gpu_where_the_model_does_not_fit_with_others() {
    let Some(island) = software("caches of 8 bits").map(Island::logging) else { return };
    let reply = island.reply(granted(18), json!({"kv_cache": "q8_0"})).await.expect("a reply");
    assert!(!reply.device.contains("cpu"), "all layers are on the GPU: {}", reply.device);
    assert!(reply.log.contains("cache=Q8_0"), "{}", reply.log);
    let on_processor = island.reply(Vec::new(), Value::Null).await.expect("a reply");
    assert_eq!(reply.text, on_processor.text);
}

#[tokio::test]
async fn a_model_that_fits_in_part_is_divided_between_gpu_and_processor_and_replies_as_on_the_processor() {
    let Some(island) = software("a part of a model on a GPU").map(Island::logging) else { return };
    let reply = island.reply(granted(14), Value::Null).await.expect("a reply");
    assert!(
        reply.device.starts_with("vulkan: llvmpipe") && reply.device.ends_with(" + cpu"),
        "{}",
        reply.device
    );
    assert_eq!(reply.sandbox, SandboxLevel::Full);
    for buffer in ["Vulkan0 model buffer", "CPU KV buffer", "Vulkan0 KV buffer"] {
        assert!(reply.log.contains(buffer), "no {buffer}: {}", reply.log);
    }
    let on_processor = island.reply(Vec::new(), Value::Null).await.expect("a reply");
    assert_eq!(reply.text, on_processor.text);
}

#[tokio::test]
async fn a_model_is_not_loaded_onto_another_gpu_than_the_granted_one() {
    let Some(island) = software("another GPU") else { return };
    let mut grants = granted(4096);
    grants[0].address = Some("0000:65:00.0".to_owned());
    grants.push(GpuGrant { index: 1, address: Some("0000:66:00.0".to_owned()), memory_mb: 4096 });
    let failure = island.reply(grants, Value::Null).await.expect_err("no such GPU");
    assert_eq!(failure.fault, Fault::Host);
    assert!(failure.message.contains("0000:65:00.0") && failure.message.contains("llvmpipe"), "{failure:?}");
}

#[tokio::test]
async fn an_unknown_kind_of_cache_is_refused() {
    let Some(island) = software("a kind of cache") else { return };
    let failure = island.reply(granted(4096), json!({"kv_cache": "q9"})).await.expect_err("refused");
    assert!(failure.fault == Fault::Job && failure.message.contains("kv_cache"), "{failure:?}");
}

#[test]
fn a_probe_names_the_gpu_and_the_processor() {
    let Some(island) = software("a probe of GPUs") else { return };
    let report = island.probe();
    let apis: Vec<&str> = report.devices.iter().map(|device| device.api.as_str()).collect();
    assert_eq!(apis, ["vulkan", "cpu"]);
    let gpu = &report.devices[0];
    assert!(gpu.is_software && gpu.name.contains("llvmpipe") && gpu.memory_mb > 1000, "{gpu:?}");
    assert_eq!(report.details.get("module.vulkan"), None);
    assert_eq!(
        report.sandbox.level,
        SandboxLevel::Full,
        "the driver's threads are started after the sandbox was tried"
    );
}

#[test]
fn a_module_that_cannot_be_used_is_reported_with_the_reason() {
    let Some(mut island) = software("modules that cannot be used") else { return };
    let module = island.own_modules();
    let reason = |island: &Island| {
        let report = island.probe();
        assert_eq!(report.devices.len(), 1, "the processor alone: {report:?}");
        assert_eq!(report.unavailable, None, "llama.cpp runs without it");
        report.details.get("module.vulkan").expect("a reason").clone()
    };
    assert!(reason(&island).contains("does not exist"));
    fs::write(&module, "no library").expect("written");
    assert!(reason(&island).contains("file too short") || reason(&island).contains("invalid ELF header"));
    // A module of an older llama.cpp.
    let source = island.dir.path().join("old.c");
    fs::write(
        &source,
        "static struct { int version; } old = { 2 }; void *ggml_backend_init(void) { return &old; }",
    )
    .expect("written");
    let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&module).arg(&source).status();
    assert!(built.expect("a compiler").success());
    let older = reason(&island);
    assert!(older.contains("version 2 of the interface") && older.contains("version 3"), "{older}");
    // A module of another release, with the same interface.
    let version = module.with_file_name("version");
    let own = fs::read_to_string(&version).expect("the version");
    fs::write(&version, "0.1.1\n").expect("written");
    let other = reason(&island);
    assert!(other.contains("version 0.1.1 of llama.cpp's sources") && other.contains(own.trim()), "{other}");
    fs::write(&version, own).expect("written");
    // A driver that cannot be loaded.
    let built = Path::new(BINARY).parent().expect("a folder").join("backends/vulkan/libggml-vulkan.so");
    fs::copy(built, &module).expect("a copy");
    let manifest = island.dir.path().join("broken.json");
    let broken = json!({"file_format_version": "1.0.0", "ICD": {"library_path": "./absent.so", "api_version": "1.3.0"}});
    fs::write(&manifest, broken.to_string()).expect("written");
    island.environment.insert("VK_DRIVER_FILES".to_owned(), manifest.display().to_string());
    let driver = reason(&island);
    assert!(driver.contains("driver"), "{driver}");
}

#[test]
fn vulkan_is_used_if_libraries_of_cuda_are_missing() {
    let Some(mut island) = software("CUDA without its libraries") else { return };
    let vulkan = island.own_modules();
    let folder = vulkan.parent().and_then(Path::parent).expect("the modules' folder").to_owned();
    let built = Path::new(BINARY).parent().expect("a folder").join("backends/vulkan/libggml-vulkan.so");
    fs::copy(built, &vulkan).expect("a copy");
    let cuda = folder.join("cuda");
    fs::create_dir(&cuda).expect("a folder");
    fs::copy(vulkan.with_file_name("version"), cuda.join("version")).expect("a copy");
    // Linked to a library that is gone when it is loaded, as CUDA's are on a machine without them.
    let (source, missing) = (island.dir.path().join("cuda.c"), island.dir.path().join("libcublas.so.12"));
    fs::write(&source, "int cublas(void) { return 0; }").expect("written");
    let cc = |arguments: &[&std::ffi::OsStr]| {
        let built = Command::new("cc").args(["-shared", "-fPIC"]).args(arguments).status();
        assert!(built.expect("a compiler").success());
    };
    cc(&["-Wl,-soname,libcublas.so.12".as_ref(), "-o".as_ref(), missing.as_ref(), source.as_ref()]);
    fs::write(&source, "int cublas(void); void *ggml_backend_init(void) { return cublas() ? 0 : 0; }")
        .expect("written");
    let module = cuda.join("libggml-cuda.so");
    cc(&["-o".as_ref(), module.as_ref(), source.as_ref(), missing.as_ref()]);
    fs::remove_file(&missing).expect("removed");
    let report = island.probe();
    let apis: Vec<&str> = report.devices.iter().map(|device| device.api.as_str()).collect();
    assert_eq!(apis, ["vulkan", "cpu"]);
    let reason = report.details.get("module.cuda").expect("a reason");
    assert!(reason.contains("libcublas.so.12"), "{reason}");
}
