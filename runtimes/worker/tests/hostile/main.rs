//! A worker under an attacker's control: every attempt must fail, and the worker must go on serving. This program is the agent when the test
//! runner starts it, the worker with `--dir`, and with `--attempt` it makes one attempt without a sandbox, which must succeed: an attempt
//! that fails anyway would prove nothing.

#![expect(unsafe_code, reason = "an attacker does not go through the standard library")]

use std::{fs, io, process::ExitCode, time::Duration};

use island_protocol::{
    cargo::RuntimeType,
    host::{SandboxLevel, SandboxReport},
    job::Failure,
};
use island_runtimes_api::{Probe, Unavailable};
use island_runtimes_worker::{
    frame::{FromWorker, ToWorker},
    host::{EXIT_OUT_OF_MEMORY, Exit, Worker},
    inside::{self, EngineLoader, LoadProgress, Loaded},
    launch::{GpuGrant, Launch},
    lockdown::Profile,
};
use island_runtimes_worker_hostile::{
    Attempts, HOSTILE, Scene, TakenOver, block_on, holds, unsandboxed, within,
};
use island_testing::harness;
use serde_json::json;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.iter().any(|argument| argument == "--dir") {
        return inside::main(TakenOver(Chosen));
    }
    if let Some(at) = arguments.iter().position(|argument| argument == "--attempt") {
        unsandboxed(&arguments[at + 1]);
        return ExitCode::SUCCESS;
    }
    let tests: [(&str, fn()); 12] = [
        ("sandbox_holds", sandbox_holds),
        ("sandbox_holds_on_older_kernels", sandbox_holds_on_older_kernels),
        ("sandbox_holds_around_gpus", sandbox_holds_around_gpus),
        ("drivers_reach_what_they_need", drivers_reach_what_they_need),
        ("sandbox_holds_around_generated_code", sandbox_holds_around_generated_code),
        ("sandbox_holds_around_local_sockets", sandbox_holds_around_local_sockets),
        ("attempts_succeed_without_a_sandbox", attempts_succeed_without_a_sandbox),
        ("memory_is_bounded", memory_is_bounded),
        ("files_are_bounded", files_are_bounded),
        ("the_watchdog_cannot_be_blinded", the_watchdog_cannot_be_blinded),
        ("a_second_thread_before_the_sandbox_is_refused", a_second_thread_before_the_sandbox_is_refused),
        (
            "it_ends_before_other_programs_when_memory_runs_out",
            it_ends_before_other_programs_when_memory_runs_out,
        ),
    ];
    harness::run(tests)
}

/// An engine whose sandbox a test chooses.
struct Chosen;

impl EngineLoader for Chosen {
    type Runtime = Attempts;

    fn kind(&self) -> RuntimeType {
        RuntimeType::Unknown("hostile".to_owned())
    }

    fn probe(&mut self) -> Result<Probe, Unavailable> {
        Ok(Probe::default())
    }

    fn prepare(&mut self, launch: &Launch) -> Result<(), Failure> {
        if launch.cargo.engine["thread"] == true {
            // As a driver does. It lives for as long as the process.
            std::thread::spawn(|| std::thread::sleep(Duration::from_hours(1)));
        }
        Ok(())
    }

    fn profile(&self, launch: &Launch) -> Profile {
        let needs = |what: &str| launch.cargo.engine["needs"] == what;
        let of_gpus = Profile::gpu(&launch.gpus);
        Profile {
            code: needs("code"),
            local_sockets: needs("local sockets"),
            // Also on machines with a GPU of NVIDIA, only where a test requests it.
            names_threads: needs("names of threads"),
            ..of_gpus
        }
    }

    async fn load(self, _launch: Launch, _progress: LoadProgress) -> Result<Loaded<Attempts>, Failure> {
        unreachable!("its place is taken")
    }
}

fn sandbox_holds() {
    holds(&Scene::new(1024), &[]);
}

/// What the kernels of Debian 12 and Debian 13 know of landlock.
fn sandbox_holds_on_older_kernels() {
    for abi in [2, 6] {
        let mut scene = Scene::new(1024);
        scene.launch.cargo.engine = json!({"landlock_abi": abi});
        holds(&scene, &[]);
    }
}

fn sandbox_holds_around_generated_code() {
    let mut scene = Scene::new(1024);
    scene.launch.cargo.engine = json!({"needs": "code"});
    holds(&scene, &["memory file", "executable memory"]);
}

fn sandbox_holds_around_local_sockets() {
    let mut scene = Scene::new(1024);
    scene.launch.cargo.engine = json!({"needs": "local sockets"});
    holds(&scene, &["unix socket"]);
}

/// What GPU drivers need in addition: facts about this process, code that they compile, files without a name.
const DRIVERS_NEED: &[&str] = &["read own memory map", "memory file", "executable memory"];
/// What NVIDIA's driver needs in addition to that: names for its threads.
const NVIDIA_NEEDS: &[&str] = &["name a thread"];
/// What is readable with it, because the files are in the same folders (0160).
const NVIDIA_EXPOSES: &[&str] = &["read connections", "read connections by a thread"];

fn with_gpu(engine: serde_json::Value) -> Scene {
    let mut scene = Scene::new(1024);
    scene.launch.gpus = vec![GpuGrant { index: 0, address: None, memory_mb: 1000 }];
    scene.launch.cargo.engine = engine;
    scene
}

fn sandbox_holds_around_gpus() {
    holds(&with_gpu(json!({})), DRIVERS_NEED);
    let of_nvidia = with_gpu(json!({"needs": "names of threads"}));
    holds(&of_nvidia, &[DRIVERS_NEED, NVIDIA_NEEDS, NVIDIA_EXPOSES].concat());
}

fn drivers_reach_what_they_need() {
    block_on(async {
        for (engine, needed) in [
            (json!({}), DRIVERS_NEED.to_vec()),
            (json!({"needs": "names of threads"}), [DRIVERS_NEED, NVIDIA_NEEDS].concat()),
        ] {
            let scene = with_gpu(engine);
            let mut worker = scene.spawn().await;
            for name in needed {
                let result = scene.attempt(&mut worker, name).await;
                assert!(result.as_deref().is_some_and(|result| result != "refused"), "{name}: {result:?}");
            }
            worker.process.kill().expect("kill");
        }
    });
}

/// Attempts that a kernel may refuse to every process: because it is locked down, or was built without the call.
const DEPENDS_ON_KERNEL: &[&str] =
    &["io_uring", "bpf", "userfaultfd", "performance events", "load module", "load kernel"];

fn attempts_succeed_without_a_sandbox() {
    // SAFETY: reads a number.
    if unsafe { libc::geteuid() } != 0 {
        island_testing::skip("attempts_succeed_without_a_sandbox", "most attempts need root");
        return;
    }
    let mut hollow = Vec::new();
    for name in HOSTILE {
        let scene = Scene::new(1024);
        let scratch = scene.worker_dir().join("scratch/run");
        fs::create_dir_all(&scratch).expect("a scratch folder");
        fs::write(scene.worker_dir().join("launch.json"), "{}").expect("a launch file");
        // In place of the agent, which attempts may stop.
        let mut agent = std::process::Command::new("sleep").arg("1000").spawn().expect("a process");
        let (_, ToWorker::Run { request, .. }) = scene.run(name) else { unreachable!("a run") };
        let mut input = request.input;
        input["agent"] = agent.id().into();
        input["scratch"] = scratch.display().to_string().into();
        let own = std::env::current_exe().expect("own path");
        let ran = std::process::Command::new(own)
            .arg("--attempt")
            .arg(input.to_string())
            .output()
            .expect("a process");
        agent.kill().and_then(|()| agent.wait()).expect("end the process");
        let result = String::from_utf8_lossy(&ran.stdout);
        // A new program in its place prints nothing.
        if !ran.status.success() || result.contains("refused") {
            hollow.push(format!(
                "{name}: {} {result:?} {}",
                ran.status,
                String::from_utf8_lossy(&ran.stderr)
            ));
        }
    }
    hollow.retain(|result| !DEPENDS_ON_KERNEL.iter().any(|name| result.starts_with(&format!("{name}:"))));
    assert!(hollow.is_empty(), "these fail without a sandbox too, and so prove nothing: {hollow:#?}");
}

fn memory_is_bounded() {
    block_on(async {
        let scene = Scene::new(256);
        let mut worker = scene.spawn().await;
        assert_eq!(scene.attempt(&mut worker, "hoard").await, None, "memory without end");
        assert_eq!(within(worker.process.wait()).await.expect("wait"), Exit::Code(EXIT_OUT_OF_MEMORY));
        // No limit of a machine without free memory means none.
        let scene = Scene::new(0);
        let mut worker = scene.spawn().await;
        assert_eq!(scene.attempt(&mut worker, "hoard").await, None, "a limit of zero");
        assert_eq!(within(worker.process.wait()).await.expect("wait"), Exit::Code(EXIT_OUT_OF_MEMORY));
    });
}

fn files_are_bounded() {
    block_on(async {
        for name in ["grow the log", "grow an unlinked file"] {
            let scene = Scene::new(256);
            let mut worker = scene.spawn().await;
            assert_eq!(scene.attempt(&mut worker, name).await, None, "{name}");
            let ended = within(worker.process.wait()).await.expect("wait");
            assert_eq!(ended, Exit::Signal(libc::SIGXFSZ), "{name}");
        }
    });
}

fn the_watchdog_cannot_be_blinded() {
    block_on(async {
        for name in ["blind the watchdog", "fool the watchdog", "silence the watchdog"] {
            let scene = Scene::new(256);
            let mut worker = scene.spawn().await;
            assert_eq!(scene.attempt(&mut worker, name).await, None, "{name}: it measures nothing any more");
            let ended = within(worker.process.wait()).await.expect("wait");
            assert_eq!(ended, Exit::Code(EXIT_OUT_OF_MEMORY), "{name}");
        }
    });
}

/// Landlock and seccomp would not confine it.
fn a_second_thread_before_the_sandbox_is_refused() {
    block_on(async {
        let mut scene = Scene::new(256);
        scene.launch.cargo.engine = json!({"thread": true});
        let mut worker = scene.spawn().await;
        let report = sandbox(&mut worker).await;
        assert_eq!(report.level, SandboxLevel::Partial, "{report:?}");
        assert!(report.missing.iter().any(|missing| missing.contains("thread")), "{report:?}");
        let refused = within(worker.connection.frames.next()).await.expect("a frame").expect("readable");
        assert!(matches!(refused, FromWorker::LoadFailed { .. }), "{refused:?}");
    });
}

/// The report in a worker's first frame.
async fn sandbox(worker: &mut Worker) -> SandboxReport {
    match within(worker.connection.frames.next()).await.expect("a frame").expect("readable") {
        FromWorker::Hello { sandbox, .. } => sandbox,
        other => panic!("first {other:?}"),
    }
}

fn it_ends_before_other_programs_when_memory_runs_out() {
    block_on(async {
        let scene = Scene::new(256);
        let mut worker = scene.spawn().await;
        // The first answer arrives after the sandbox was applied.
        within(worker.connection.frames.next()).await.expect("a frame").expect("readable");
        match fs::read_to_string(format!("/proc/{}/oom_score_adj", worker.process.pid())) {
            Ok(score) => assert_eq!(score.trim(), "1000"),
            // Workers cannot be traced, and a unit with ProtectProc= shows no process of that kind.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                island_testing::skip("the score of a worker", "this unit hides its own workers");
            }
            Err(error) => panic!("the score of a worker: {error}"),
        }
        worker.process.kill().expect("kill");
        within(worker.process.wait()).await.expect("wait");
    });
}
