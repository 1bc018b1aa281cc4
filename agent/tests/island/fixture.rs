//! Processes: the fabric, and the agent with its workers.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::OnceLock,
    time::{Duration, Instant},
};

use island_daemon::latest::Latest as _;
use island_protocol::{
    cargo::{CargoSpec, Limits, RuntimeType},
    fabric::{Assignment, AssignmentReply},
    ids::{AttemptKey, HostId, JobId},
};
use island_testing::port::free_port;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream, UnixDatagram},
    sync::watch,
    task::JoinSet,
};

use crate::{
    coordinator::{Coordinator, now},
    gpu::Gpu,
};

pub(crate) const AGENT: &str = env!("CARGO_BIN_EXE_island-agent");

/// A process that is killed on drop.
pub(crate) struct Running(Child);

impl Running {
    /// Starts a process.
    pub(crate) fn of(mut command: Command) -> Self {
        Self(command.spawn().expect("start the process"))
    }

    /// Sends SIGKILL and waits for the end.
    pub(crate) fn kill(&mut self) {
        self.0.kill().expect("kill");
        self.0.wait().expect("wait");
    }

    /// Whether it has ended without a signal of this test.
    fn has_ended(&mut self) -> bool {
        self.0.try_wait().expect("wait").is_some()
    }

    /// Sends SIGTERM and waits for the end.
    pub(crate) async fn terminate(&mut self) -> ExitStatus {
        let pid = Pid::from_raw(self.0.id() as i32).expect("a process id");
        kill_process(pid, Signal::TERM).expect("terminate");
        wait_for("the process to end", || self.0.try_wait().expect("wait")).await
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// nats-server, on one port that it keeps over restarts.
pub(crate) struct Nats {
    port: u16,
    process: Option<Running>,
}

impl Nats {
    pub(crate) async fn start() -> Self {
        let mut nats = Self { port: free_port(), process: None };
        nats.restart().await;
        nats
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Kills it.
    pub(crate) fn stop(&mut self) {
        self.process = None;
    }

    /// Kills it if it runs, and starts it again.
    pub(crate) async fn restart(&mut self) {
        self.process = None;
        let mut command = Command::new(nats_server());
        command.args(["-a", "127.0.0.1", "-p", &self.port.to_string()]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("start nats-server");
        self.process = Some(Running(child));
        let address = format!("127.0.0.1:{}", self.port);
        wait_for("nats-server", || std::net::TcpStream::connect(&address).ok()).await;
    }
}

/// A router before the fabric that translates addresses: the fabric states another one than that of this machine.
pub(crate) struct Router {
    url: String,
    address: watch::Sender<String>,
}

impl Router {
    async fn before(nats: &Nats, address: &str) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("bind");
        let url = format!("nats://{}", listener.local_addr().expect("an address"));
        let (port, address) = (nats.port, watch::Sender::new(address.to_owned()));
        let addresses = address.subscribe();
        tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(translate(client, port, addresses.clone()));
            }
        });
        Self { url, address }
    }

    /// Translates to another address from now on, which ends all connections.
    pub(crate) fn change(&self, address: &str) {
        self.address.send_replace(address.to_owned());
    }
}

/// Connects a client to the fabric at this port until the address changes, which replaces the client's own in the first
/// message of the fabric.
async fn translate(mut client: TcpStream, port: u16, mut address: watch::Receiver<String>) {
    address.mark_unchanged();
    let stated = format!(r#""client_ip":"{}""#, address.latest());
    let fabric = TcpStream::connect(("127.0.0.1", port)).await.expect("the fabric runs");
    let mut fabric = BufReader::new(fabric);
    let mut info = String::new();
    fabric.read_line(&mut info).await.expect("what the fabric states");
    let info = info.replace(r#""client_ip":"127.0.0.1""#, &stated);
    client.write_all(info.as_bytes()).await.expect("the client reads it");
    tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut client, &mut fabric) => {}
        _ = address.changed() => {}
    }
}

/// An Island: the agent's process and its folder.
pub(crate) struct Island {
    pub(crate) nats: Nats,
    pub(crate) coordinator: Coordinator,
    pub(crate) host: HostId,
    agent: Option<Running>,
    folder: tempfile::TempDir,
    /// Folder with the engines' programs.
    programs: PathBuf,
}

impl Island {
    pub(crate) async fn start() -> Self {
        Self::with(30_000, 3_600_000).await
    }

    pub(crate) async fn with_lease(lease_ms: u64) -> Self {
        Self::with(lease_ms, 3_600_000).await
    }

    pub(crate) async fn with(lease_ms: u64, credentials_ms: i64) -> Self {
        Self::run_by(Command::new(AGENT), lease_ms, credentials_ms).await
    }

    /// Starts one with the engines' programs in a folder.
    pub(crate) async fn with_programs(programs: &Path) -> Self {
        let nats = Nats::start().await;
        Self::over(nats, Command::new(AGENT), programs, 30_000, 3_600_000).await
    }

    /// Starts one with a GPU and these settings.
    pub(crate) async fn with_gpu(gpu: &Gpu, settings: &str) -> Self {
        let mut agent = gpu.around(AGENT.as_ref());
        agent.arg("--config").arg(gpu.settings(settings));
        Self::run_by(agent, 30_000, 3_600_000).await
    }

    /// Starts one whose engine runs models on this GPU.
    pub(crate) async fn on_gpu(gpu: &Gpu) -> Self {
        Self::on_gpu_with(gpu, "").await
    }

    /// The same with these settings.
    pub(crate) async fn on_gpu_with(gpu: &Gpu, settings: &str) -> Self {
        let mut agent = gpu.around(AGENT.as_ref());
        agent.arg("--config").arg(gpu.settings(settings)).env("ISLAND_SIMULATED_GPU", Gpu::ADDRESS);
        Self::run_by(agent, 30_000, 3_600_000).await
    }

    /// Starts one whose engine runs models on this GPU, with the engines' programs in a folder.
    pub(crate) async fn on_gpu_with_programs(gpu: &Gpu, programs: &Path) -> Self {
        let nats = Nats::start().await;
        let mut agent = gpu.around(AGENT.as_ref());
        agent.env("ISLAND_SIMULATED_GPU", Gpu::ADDRESS);
        Self::over(nats, agent, programs, 30_000, 3_600_000).await
    }

    /// Starts one with this command.
    pub(crate) async fn by(agent: Command) -> Self {
        Self::run_by(agent, 30_000, 3_600_000).await
    }

    /// Starts one with a variable for the agent.
    pub(crate) async fn with_variable(name: &str, value: &str) -> Self {
        let mut agent = Command::new(AGENT);
        agent.env(name, value);
        Self::by(agent).await
    }

    /// Starts one which the fabric sees under this address.
    pub(crate) async fn behind_a_router(address: &str) -> (Self, Router) {
        let nats = Nats::start().await;
        let router = Router::before(&nats, address).await;
        let mut agent = Command::new(AGENT);
        agent.env("ISLAND_AGENT_NATS_URL", &router.url);
        (Self::over(nats, agent, workers_dir(), 30_000, 3_600_000).await, router)
    }

    async fn run_by(agent: Command, lease_ms: u64, credentials_ms: i64) -> Self {
        let nats = Nats::start().await;
        Self::over(nats, agent, workers_dir(), lease_ms, credentials_ms).await
    }

    async fn over(nats: Nats, agent: Command, programs: &Path, lease_ms: u64, credentials_ms: i64) -> Self {
        let coordinator = Coordinator::start(&nats.url(), lease_ms, credentials_ms).await;
        let folder = tempfile::tempdir().expect("temporary folder");
        let agent = Some(spawn(agent, folder.path(), programs, &coordinator.url));
        let host = coordinator.wait("registration", |seen| Some(seen.registers.last()?.host_id)).await;
        Self { nats, coordinator, host, agent, folder, programs: programs.to_owned() }
    }

    /// Kills only the agent.
    pub(crate) fn kill_agent(&mut self) {
        self.agent.take().expect("the agent runs").kill();
    }

    /// Starts it again on the same folder and waits until it has registered.
    pub(crate) async fn start_agent(&mut self) {
        self.start_by(Command::new(AGENT)).await;
    }

    /// Kills the agent if it runs, and starts it again with these failures.
    pub(crate) async fn start_failing(&mut self, failpoints: &str) {
        drop(self.agent.take());
        let log = fs::File::create(self.log()).expect("create a log");
        let mut agent = Command::new(AGENT);
        agent.env("FAILPOINTS", failpoints).stderr(log);
        self.start_by(agent).await;
    }

    /// Starts the agent as systemd does, and returns the socket of its notices.
    pub(crate) fn start_notifying(&mut self) -> UnixDatagram {
        let path = self.folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).expect("bind");
        let mut agent = Command::new(AGENT);
        agent.env("NOTIFY_SOCKET", &path);
        self.agent = Some(spawn(agent, self.folder.path(), &self.programs, &self.coordinator.url));
        socket
    }

    /// What an agent that was started by [`Island::start_failing`] logs.
    pub(crate) fn log(&self) -> PathBuf {
        self.folder.path().join("agent.log")
    }

    /// Waits until the agent has ended without a signal of this test.
    pub(crate) async fn agent_ended(&mut self, limit: Duration) {
        ended(self.agent.as_mut().expect("the agent runs"), limit).await;
    }

    async fn start_by(&mut self, agent: Command) {
        let before = self.coordinator.seen().registers.len();
        self.agent = Some(spawn(agent, self.folder.path(), &self.programs, &self.coordinator.url));
        self.coordinator.wait("registration", |seen| (seen.registers.len() > before).then_some(())).await;
    }

    /// Stops the agent with SIGTERM.
    pub(crate) async fn stop_agent(&mut self) -> ExitStatus {
        self.agent.take().expect("the agent runs").terminate().await
    }

    /// Assigns, and expects that it is accepted.
    pub(crate) async fn run(&self, assignment: &Assignment) -> AttemptKey {
        let reply = self.coordinator.assign(self.host, assignment).await;
        assert!(reply.accepted, "{reply:?}");
        assignment.key
    }

    /// Assigns to an agent that may end meanwhile; returns its answer if there is one.
    pub(crate) async fn offer(
        &mut self,
        assignment: &Assignment,
        limit: Duration,
    ) -> Option<AssignmentReply> {
        let agent = self.agent.as_mut().expect("the agent runs");
        // A request before the agent has subscribed has no answer; a repeated one is the same assignment.
        let offer = async {
            loop {
                if let Some(reply) = self.coordinator.try_assign(self.host, assignment).await {
                    return reply;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::select! {
            reply = offer => Some(reply),
            () = ended(agent, limit) => None,
        }
    }

    /// Process ids of its workers.
    pub(crate) fn workers(&self) -> Vec<Pid> {
        let folder = self.folder.path().to_str().expect("a plain path").to_owned();
        let processes = fs::read_dir("/proc").expect("list processes").flatten();
        let worker = |entry: fs::DirEntry| {
            let pid = entry.file_name().to_str()?.parse().ok().and_then(Pid::from_raw)?;
            let line = fs::read(entry.path().join("cmdline")).ok()?;
            let line = String::from_utf8_lossy(&line).into_owned();
            (line.contains("island-worker") && line.contains(&folder)).then_some(pid)
        };
        processes.filter_map(worker).collect()
    }

    /// Runs `island-agent` on its folder and returns the output; panics if it fails.
    pub(crate) fn agent(&self, command: &[&str]) -> String {
        let ran = self.try_agent(command);
        assert!(ran.status.success(), "{command:?}: {}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8_lossy(&ran.stdout).into_owned()
    }

    /// Runs `island-agent` on its folder, on a machine with this GPU.
    pub(crate) fn try_agent_with(&self, gpu: &Gpu, command: &[&str]) -> Output {
        let mut agent = gpu.around(AGENT.as_ref());
        agent.args(command).arg("--state-dir").arg(self.folder.path());
        agent.output().expect("run island-agent")
    }

    /// Runs `island-agent` on its folder.
    pub(crate) fn try_agent(&self, command: &[&str]) -> Output {
        let mut agent = Command::new(AGENT);
        agent.args(command).arg("--state-dir").arg(self.folder.path());
        agent.output().expect("run island-agent")
    }

    /// A path in its folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Process id of the agent.
    pub(crate) fn pid(&self) -> u32 {
        self.agent.as_ref().expect("the agent runs").0.id()
    }

    /// Settings that its workers were started with.
    pub(crate) fn launches(&self) -> Vec<Value> {
        let folders = fs::read_dir(self.folder.path().join("w")).expect("list").flatten();
        let files = folders.filter_map(|folder| fs::read(folder.path().join("launch.json")).ok());
        files.map(|file| serde_json::from_slice(&file).expect("settings")).collect()
    }

    /// Names of the files in one of its folders.
    pub(crate) fn files(&self, name: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(name)).expect("list").flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }
}

impl Drop for Island {
    fn drop(&mut self) {
        drop(self.agent.take());
        for worker in self.workers() {
            let _ = kill_process(worker, Signal::KILL);
        }
    }
}

async fn ended(process: &mut Running, limit: Duration) {
    let ended = async {
        while !process.has_ended() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(limit, ended).await.expect("the agent ends");
}

/// Kills a worker.
pub(crate) async fn kill_worker(worker: Pid) {
    kill_process(worker, Signal::KILL).expect("kill");
    wait_for("the worker's end", || test_kill_process(worker).is_err().then_some(())).await;
}

/// Returns an assignment of a new job to the scripted engine.
pub(crate) fn assignment(input: Value) -> Assignment {
    Assignment {
        v: 1,
        key: AttemptKey { job_id: JobId(uuid::Uuid::new_v4()), attempt: 1, epoch: 1 },
        instance: None,
        first_event: 1,
        cargo: CargoSpec {
            price_per_job: island_protocol::credits::MicroCredits::ZERO,
            token_prices: island_protocol::cargo::TokenPrices::default(),
            slug: "sim-chat".parse().expect("a slug"),
            runtime_type: RuntimeType::Llmcpp,
            onnx_task_type: None,
            artifacts: Vec::new(),
            required_vram_mb: 0,
            required_ram_mb: 16,
            limits: Limits::default(),
            sandbox_tier: None,
            engine: json!({ "simulated": true }),
        },
        input,
        continues: None,
        continues_reasoning: None,
        scope: "account".into(),
        isolated: false,
        deadline: now().plus_ms(600_000),
        sent_at: now(),
    }
}

/// Polls, for changes that no program can report.
pub(crate) async fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < Duration::from_secs(30), "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Starts an agent with the workers in this folder.
pub(crate) fn spawn(mut command: Command, folder: &Path, programs: &Path, api_url: &str) -> Running {
    command
        .args(["--state-dir".as_ref(), folder.as_os_str()])
        .args(["--api-url", api_url, "--simulated", "true", "--allow-weak-sandbox", "true"])
        .env("ISLAND_AGENT_API_KEY", "ak_test")
        .env("ISLAND_AGENT_WORKERS__BIN_DIR", programs)
        .env("ISLAND_AGENT_PRELOAD__EVERY_S", "1")
        .env("ISLAND_AGENT_DRAIN_S", "2");
    Running(command.spawn().expect("start the agent"))
}

/// The folder with the scripted worker; builds it if it does not exist, because it belongs to another crate.
pub(crate) fn workers_dir() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(AGENT).parent().expect("a folder").to_owned();
        if !folder.join("island-worker-simulated").is_file() {
            let mut build = Command::new(env!("CARGO"));
            build.args([
                "build",
                "--quiet",
                "-p",
                "island-runtimes-worker",
                "--bin",
                "island-worker-simulated",
            ]);
            assert!(build.status().expect("start cargo").success(), "the scripted worker must build");
        }
        folder
    })
}

fn nats_server() -> PathBuf {
    let set_up = island_testing::workspace().join(".tools/bin/nats-server");
    std::env::var_os("ISLAND_NATS_SERVER").map_or(set_up, PathBuf::from)
}
