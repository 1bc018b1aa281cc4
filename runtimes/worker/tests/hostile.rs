//! A worker under an attacker's control: every attempt must fail, and the worker must go on serving. This program is the agent when the test
//! runner starts it, the worker with `--dir`, and with `--attempt` it makes one attempt without a sandbox, which must succeed: an attempt
//! that fails anyway would prove nothing.

#![expect(unsafe_code, reason = "an attacker does not go through the standard library")]
#![expect(clippy::print_stdout, reason = "what a test runner expects of a test program")]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use island_protocol::{
    cargo::RuntimeType,
    event::AttemptEvent,
    ids::{AttemptKey, InstanceId, JobId},
    job::{Failure, Outcome, Usage},
};
use island_runtimes_api::{Probe, RunContext, RunRequest, Runtime, Unavailable};
use island_runtimes_worker::{
    frame::{FromWorker, ToWorker},
    host::{self, EXIT_OUT_OF_MEMORY, Exit, Worker},
    inside::{self, EngineLoader, LoadProgress, Loaded},
    launch::{GpuGrant, Launch},
    lockdown::Profile,
};
use libc::{c_long, c_void, syscall};
use serde_json::{Value, json};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.iter().any(|argument| argument == "--dir") {
        return inside::main(Hostile);
    }
    if let Some(at) = arguments.iter().position(|argument| argument == "--attempt") {
        unsandboxed(&arguments[at + 1]);
        return ExitCode::SUCCESS;
    }
    let tests: [(&str, fn()); 7] = [
        ("sandbox_holds", sandbox_holds),
        ("sandbox_holds_on_older_kernels", sandbox_holds_on_older_kernels),
        ("sandbox_holds_around_gpus", sandbox_holds_around_gpus),
        ("attempts_succeed_without_a_sandbox", attempts_succeed_without_a_sandbox),
        ("memory_is_bounded", memory_is_bounded),
        ("the_watchdog_cannot_be_blinded", the_watchdog_cannot_be_blinded),
        (
            "it_ends_before_other_programs_when_memory_runs_out",
            it_ends_before_other_programs_when_memory_runs_out,
        ),
    ];
    if arguments.iter().any(|argument| argument == "--list") {
        if !arguments.iter().any(|argument| argument == "--ignored") {
            for (name, _) in &tests {
                println!("{name}: test");
            }
        }
        return ExitCode::SUCCESS;
    }
    let named = |name: &str| arguments.iter().any(|argument| argument == name);
    let all = !tests.iter().any(|(name, _)| named(name));
    for (name, test) in tests {
        if all || named(name) {
            test();
            println!("test {name} ... ok");
        }
    }
    ExitCode::SUCCESS
}

// The worker's side.

struct Hostile;

impl EngineLoader for Hostile {
    type Runtime = Self;

    fn kind(&self) -> RuntimeType {
        RuntimeType::Unknown("hostile".to_owned())
    }

    fn probe(&mut self) -> Result<Probe, Unavailable> {
        Ok(Probe::default())
    }

    fn profile(&self, launch: &Launch) -> Profile {
        let landlock_abi = launch.cargo.engine["landlock_abi"].as_u64().unwrap_or_default() as u32;
        Profile { landlock_abi, ..Profile::gpu(&launch.gpus) }
    }

    async fn load(self, _launch: Launch, _progress: LoadProgress) -> Result<Loaded<Self>, Failure> {
        Ok(Loaded { runtime: self, version: String::new(), slots: 1, vram_mb: 0 })
    }
}

impl Runtime for Hostile {
    fn kind(&self) -> RuntimeType {
        RuntimeType::Unknown("hostile".to_owned())
    }

    async fn probe(&self) -> Result<Probe, Unavailable> {
        Ok(Probe::default())
    }

    async fn run(&self, request: RunRequest, context: RunContext) -> Outcome {
        let name = request.input["try"].as_str().unwrap_or_default().to_owned();
        let result = attempt(&name, &request.input, &context.scratch);
        context.events.token(result, 1);
        Outcome::Completed { usage: Usage::tokens(1, 1), output: None, finish_reason: None }
    }
}

/// Makes one attempt in this process, in mount and host name namespaces of its own, and prints the result.
fn unsandboxed(input: &str) {
    let input: Value = serde_json::from_str(input).expect("an input");
    // SAFETY: two system calls whose pointers are null or to constants.
    unsafe {
        assert_eq!(libc::unshare(libc::CLONE_NEWNS | libc::CLONE_NEWUTS), 0, "new namespaces");
        let private = libc::MS_REC | libc::MS_PRIVATE;
        let made = libc::mount(c"none".as_ptr(), c"/".as_ptr(), std::ptr::null(), private, std::ptr::null());
        assert_eq!(made, 0, "mounts that do not propagate");
    }
    let scratch = PathBuf::from(input["scratch"].as_str().expect("a folder"));
    println!("{}", attempt(input["try"].as_str().expect("a name"), &input, &scratch));
}

/// The result of an attempt: `refused`, or how it got through.
fn attempt(name: &str, input: &Value, scratch: &Path) -> String {
    let path = |key: &str| PathBuf::from(input[key].as_str().unwrap_or_default());
    let agent = input["agent"].as_i64().unwrap_or_default();
    let zero = std::ptr::null::<c_void>();
    let number = |call: c_long, arguments: [c_long; 5]| {
        // SAFETY: the kernel checks its arguments; calls that could write to memory get null.
        made(unsafe { syscall(call, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4]) })
    };
    let call = |name: c_long| number(name, [0; 5]);
    match name {
        "serve" => "served".to_owned(),
        "write scratch" => io(fs::write(scratch.join("fine"), "x")),
        "read passwd" => io(fs::read("/etc/passwd")),
        "read home" => io(fs::read_dir("/root").or_else(|_| fs::read_dir("/home"))),
        "list root" => io(fs::read_dir("/")),
        "read agent's environment" => io(fs::read(format!("/proc/{agent}/environ"))),
        "read own memory map" => io(fs::read("/proc/self/maps")),
        "read launch file" => io(fs::read(path("launch"))),
        "read secret" => io(fs::read(path("secret"))),
        "write secret" => io(fs::write(path("secret"), "x")),
        "delete secret" => io(fs::remove_file(path("secret"))),
        "write model" => io(fs::OpenOptions::new().write(true).open(path("model"))),
        "truncate model" => io(fs::OpenOptions::new().write(true).truncate(true).open(path("model"))),
        "truncate model by reading" => {
            let model = std::ffi::CString::new(path("model").display().to_string()).expect("a path");
            let flags = libc::O_RDONLY | libc::O_TRUNC;
            let directory = c_long::from(libc::AT_FDCWD);
            number(libc::SYS_openat, [directory, model.as_ptr() as c_long, flags.into(), 0, 0])
        }
        "truncate model by name" => {
            let model = std::ffi::CString::new(path("model").display().to_string()).expect("a path");
            number(libc::SYS_truncate, [model.as_ptr() as c_long, 0, 0, 0, 0])
        }
        "write beside scratch" => io(fs::write(scratch.join("../../beside"), "x")),
        "link secret" => io(fs::hard_link(path("secret"), scratch.join("link"))),
        "move out of scratch" => {
            fs::write(scratch.join("out"), "x").expect("scratch is writable");
            io(fs::rename(scratch.join("out"), path("secret").with_file_name("moved")))
        }
        "chmod model" => {
            io(fs::set_permissions(path("model"), std::os::unix::fs::PermissionsExt::from_mode(0o777)))
        }
        "internet socket" => {
            number(libc::SYS_socket, [libc::AF_INET.into(), libc::SOCK_STREAM.into(), 0, 0, 0])
        }
        "internet socket 6" => {
            number(libc::SYS_socket, [libc::AF_INET6.into(), libc::SOCK_DGRAM.into(), 0, 0, 0])
        }
        "unix socket" => number(libc::SYS_socket, [libc::AF_UNIX.into(), libc::SOCK_STREAM.into(), 0, 0, 0]),
        "netlink socket" => {
            number(libc::SYS_socket, [libc::AF_NETLINK.into(), libc::SOCK_RAW.into(), 0, 0, 0])
        }
        "tcp connection" => io(std::net::TcpStream::connect(input["listener"].as_str().unwrap_or_default())),
        "fork" => number(libc::SYS_clone, [libc::SIGCHLD.into(), 0, 0, 0, 0]),
        "new clone" => number(libc::SYS_clone3, [0, 88, 0, 0, 0]),
        "start a program" => io(std::process::Command::new("/bin/true").status()),
        "execute" => {
            number(libc::SYS_execve, [c"/bin/true".as_ptr() as c_long, zero as c_long, zero as c_long, 0, 0])
        }
        "trace agent" => number(libc::SYS_ptrace, [libc::PTRACE_ATTACH.into(), agent, 0, 0, 0]),
        "read agent's memory" => number(libc::SYS_process_vm_readv, [agent, 0, 0, 0, 0]),
        "signal agent" => number(libc::SYS_kill, [agent, 0, 0, 0, 0]),
        "signal agent's thread" => number(libc::SYS_tgkill, [agent, agent, 0, 0, 0]),
        "handle on agent" => number(libc::SYS_pidfd_open, [agent, 0, 0, 0, 0]),
        "mount" => number(
            libc::SYS_mount,
            [c"none".as_ptr() as c_long, c"/mnt".as_ptr() as c_long, c"tmpfs".as_ptr() as c_long, 0, 0],
        ),
        "unmount" => number(libc::SYS_umount2, [c"/proc".as_ptr() as c_long, 0, 0, 0, 0]),
        "new user namespace" => number(libc::SYS_unshare, [libc::CLONE_NEWUSER.into(), 0, 0, 0, 0]),
        "join namespace" => number(libc::SYS_setns, [0, 0, 0, 0, 0]),
        "change root" => number(libc::SYS_chroot, [c"/".as_ptr() as c_long, 0, 0, 0, 0]),
        "keyring" => call(libc::SYS_keyctl),
        "add key" => call(libc::SYS_add_key),
        "performance events" => call(libc::SYS_perf_event_open),
        "io_uring" => number(libc::SYS_io_uring_setup, [8, 0, 0, 0, 0]),
        "bpf" => call(libc::SYS_bpf),
        "userfaultfd" => call(libc::SYS_userfaultfd),
        "become root" => call(libc::SYS_setuid),
        "set all users" => number(libc::SYS_setresuid, [0, 0, 0, 0, 0]),
        "load module" => call(libc::SYS_init_module),
        "load kernel" => call(libc::SYS_kexec_load),
        "reboot" => call(libc::SYS_reboot),
        "set time" => call(libc::SYS_settimeofday),
        "set host name" => call(libc::SYS_sethostname),
        "be dumpable" => number(libc::SYS_prctl, [libc::PR_SET_DUMPABLE.into(), 1, 0, 0, 0]),
        "personality" => number(libc::SYS_personality, [0, 0, 0, 0, 0]),
        "memory file" => number(libc::SYS_memfd_create, [c"x".as_ptr() as c_long, 0, 0, 0, 0]),
        "executable memory" => {
            let (code, private) =
                (libc::PROT_READ | libc::PROT_EXEC, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            number(libc::SYS_mmap, [0, 4096, code.into(), private.into(), -1])
        }
        "raise limits" => {
            let limit = libc::rlimit { rlim_cur: 1 << 40, rlim_max: 1 << 40 };
            number(libc::SYS_prlimit64, [0, libc::RLIMIT_FSIZE.into(), (&raw const limit) as c_long, 0, 0])
        }
        "pin agent to a processor" => number(libc::SYS_sched_setaffinity, [agent, 0, 0, 0, 0]),
        "hoard" => hoard(),
        "blind the watchdog" => blind(),
        unknown => format!("no attempt is called {unknown:?}"),
    }
}

/// Closes the open file of the kernel's memory counter, which is the only ordinary file without content, and waits for the consequence.
fn blind() -> String {
    use std::os::fd::AsFd as _;
    let is_counter = |fd: i32| {
        // SAFETY: the descriptor is only asked what it is; the kernel checks whether it is open.
        let borrowed = unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) };
        let about = rustix::fs::fstat(borrowed.as_fd());
        about.is_ok_and(|about| about.st_mode & libc::S_IFMT == libc::S_IFREG && about.st_size == 0)
    };
    for fd in (3..64).filter(|&fd| is_counter(fd)) {
        // SAFETY: as an attacker would; nothing of this test uses it.
        unsafe { libc::close(fd) };
    }
    std::thread::sleep(Duration::from_secs(5));
    "still here".to_owned()
}

fn io<T>(result: std::io::Result<T>) -> String {
    result.map_or_else(|_| "refused".to_owned(), |_| "got through".to_owned())
}

fn made(result: c_long) -> String {
    let error = std::io::Error::last_os_error();
    match (result, error.raw_os_error()) {
        (-1, Some(libc::EPERM | libc::ENOSYS)) => "refused".to_owned(),
        // Any other error is from the call itself: the sandbox did not refuse it.
        (-1, _) => format!("let through: {error}"),
        _ => "got through".to_owned(),
    }
}

fn hoard() -> String {
    let mut all = Vec::new();
    loop {
        all.push(std::hint::black_box(vec![1_u8; 16 << 20]));
        if all.len() > 1 << 12 {
            return "got through".to_owned();
        }
    }
}

// The agent's side.

struct Scene {
    dir: tempfile::TempDir,
    launch: Launch,
    listener: std::net::TcpListener,
}

impl Scene {
    fn new(memory_limit_mb: u64) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let model = dir.path().join("model");
        fs::write(&model, "weights").expect("a model");
        fs::write(dir.path().join("secret"), "secret").expect("a secret");
        let cargo = json!({"slug": "hostile", "runtime_type": "hostile"});
        let cargo = serde_json::from_value(cargo).expect("a Cargo");
        let launch = Launch {
            artifacts: BTreeMap::from([("model".to_owned(), model)]),
            memory_limit_mb,
            ..Launch::new(InstanceId(uuid::Uuid::now_v7()), cargo)
        };
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
        Self { dir, launch, listener }
    }

    fn worker_dir(&self) -> PathBuf {
        self.dir.path().join("worker")
    }

    async fn spawn(&self) -> Worker {
        let own = std::env::current_exe().expect("own path");
        host::spawn(&own, &self.worker_dir(), &self.launch).await.expect("a worker")
    }

    fn run(&self, name: &str) -> (AttemptKey, ToWorker) {
        let at = |name: &str| self.dir.path().join(name).display().to_string();
        let launch = self.worker_dir().join("launch.json").display().to_string();
        let input = json!({
            "try": name, "agent": std::process::id(), "model": at("model"), "secret": at("secret"), "launch": launch,
            "listener": self.listener.local_addr().expect("an address").to_string(),
        });
        let (cargo, artifacts) = (self.launch.cargo.clone(), self.launch.artifacts.clone());
        let request = Box::new(RunRequest { cargo, input, artifacts, continues: None, scope: String::new() });
        let key = AttemptKey { job_id: JobId(uuid::Uuid::now_v7()), attempt: 1, epoch: 1 };
        (key, ToWorker::Run { key, first_event: 1, request })
    }

    /// The result of an attempt; `None` if the worker ended because of it.
    async fn attempt(&self, worker: &mut Worker, name: &str) -> Option<String> {
        let (key, run) = self.run(name);
        worker.connection.commands.send(run).await.ok()?;
        loop {
            let frame = within(worker.connection.frames.next()).await?.ok()?;
            let FromWorker::Events { key: of, events } = frame else { continue };
            let result = events.into_iter().find_map(|event| match event.event {
                AttemptEvent::Token { content, .. } => Some(content),
                _ => None,
            });
            if of == key && result.is_some() {
                return result;
            }
        }
    }
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("in time")
}

fn block_on(future: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(future);
}

const HOSTILE: &[&str] = &[
    "read passwd",
    "read home",
    "list root",
    "read agent's environment",
    "read own memory map",
    "read launch file",
    "read secret",
    "write secret",
    "delete secret",
    "write model",
    "truncate model",
    "truncate model by reading",
    "truncate model by name",
    "write beside scratch",
    "link secret",
    "move out of scratch",
    "chmod model",
    "internet socket",
    "internet socket 6",
    "unix socket",
    "netlink socket",
    "tcp connection",
    "fork",
    "new clone",
    "start a program",
    "execute",
    "trace agent",
    "read agent's memory",
    "signal agent",
    "signal agent's thread",
    "handle on agent",
    "mount",
    "unmount",
    "new user namespace",
    "join namespace",
    "change root",
    "keyring",
    "add key",
    "performance events",
    "io_uring",
    "bpf",
    "userfaultfd",
    "become root",
    "set all users",
    "load module",
    "load kernel",
    "reboot",
    "set time",
    "set host name",
    "be dumpable",
    "personality",
    "memory file",
    "executable memory",
    "raise limits",
    "pin agent to a processor",
];

fn sandbox_holds() {
    holds(&Scene::new(1024), &[]);
}

/// What Debian 12's kernel knows of landlock.
fn sandbox_holds_on_older_kernels() {
    let mut scene = Scene::new(1024);
    scene.launch.cargo.engine = json!({"landlock_abi": 2});
    holds(&scene, &[]);
}

/// What GPU drivers need in addition: facts about this process, code that they compile, files without a name.
const DRIVERS_NEED: &[&str] = &["read own memory map", "memory file", "executable memory"];

fn sandbox_holds_around_gpus() {
    let mut scene = Scene::new(1024);
    scene.launch.gpus = vec![GpuGrant { index: 0, address: None, memory_mb: 1000 }];
    holds(&scene, DRIVERS_NEED);
}

fn holds(scene: &Scene, allowed: &[&str]) {
    block_on(async {
        let mut worker = scene.spawn().await;
        let mut through = Vec::new();
        for name in HOSTILE.iter().filter(|name| !allowed.contains(name)) {
            match scene.attempt(&mut worker, name).await.as_deref() {
                Some("refused") => {}
                other => through.push(format!("{name}: {other:?}")),
            }
            assert_eq!(scene.attempt(&mut worker, "serve").await.as_deref(), Some("served"), "after {name}");
        }
        assert!(through.is_empty(), "not refused: {through:#?}");
        assert_eq!(
            scene.attempt(&mut worker, "write scratch").await.as_deref(),
            Some("got through"),
            "scratch is its own"
        );
        assert_eq!(fs::read_to_string(scene.dir.path().join("secret")).expect("the secret"), "secret");
        assert_eq!(fs::read_to_string(scene.dir.path().join("model")).expect("the model"), "weights");
        let file = fs::File::open(scene.dir.path().join("model")).expect("the model");
        assert!(file.try_lock().is_err(), "the worker holds its model against eviction");
        worker.process.kill().expect("kill");
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

fn the_watchdog_cannot_be_blinded() {
    block_on(async {
        let scene = Scene::new(256);
        let mut worker = scene.spawn().await;
        assert_eq!(
            scene.attempt(&mut worker, "blind the watchdog").await,
            None,
            "it measures nothing any more"
        );
        assert_eq!(within(worker.process.wait()).await.expect("wait"), Exit::Code(EXIT_OUT_OF_MEMORY));
    });
}

fn it_ends_before_other_programs_when_memory_runs_out() {
    block_on(async {
        let scene = Scene::new(256);
        let mut worker = scene.spawn().await;
        // The first answer arrives after the sandbox was applied.
        within(worker.connection.frames.next()).await.expect("a frame").expect("readable");
        let score =
            fs::read_to_string(format!("/proc/{}/oom_score_adj", worker.process.pid())).expect("a score");
        assert_eq!(score.trim(), "1000");
        worker.process.kill().expect("kill");
        within(worker.process.wait()).await.expect("wait");
    });
}
