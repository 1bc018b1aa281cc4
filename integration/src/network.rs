//! An `island dev` in a temporary folder.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use island_coordinator_client::Client;
use island_testing::postgres::Server;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::processes;

/// How a network differs from the usual one: one Island, fixtures loaded, limits out of the way.
#[derive(Debug, Clone)]
pub struct Options {
    /// How many Islands.
    pub islands: u32,
    /// Whether the limits per account are raised.
    pub no_limits: bool,
    /// Catalogue that replaces the shipped one.
    pub cargos: Option<PathBuf>,
    /// Whether its books are in a PostgreSQL server of its own.
    pub postgres: bool,
    /// Port of the API; a free one by default.
    pub api_port: Option<u16>,
    /// Settings of the coordinators that differ, as environment variables without their prefix.
    pub coordinator: Vec<(&'static str, String)>,
    /// Settings of the Islands that differ, likewise.
    pub agent: Vec<(&'static str, String)>,
    /// Further environment variables of all programs.
    pub environment: BTreeMap<String, String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            islands: 1,
            no_limits: true,
            cargos: None,
            postgres: false,
            api_port: None,
            coordinator: Vec::new(),
            agent: Vec::new(),
            environment: BTreeMap::new(),
        }
    }
}

/// A running network. Dropping it kills what is left of it.
#[derive(Debug)]
pub struct Network {
    folder: TempDir,
    dev: Child,
    info: Value,
    coordinator: Vec<(&'static str, String)>,
    others: Vec<Child>,
    /// Stops with the network.
    _postgres: Option<Server>,
}

/// Whether PostgreSQL is installed, which [`Options::postgres`] needs.
pub fn has_postgres() -> bool {
    Server::is_installed()
}

impl Network {
    /// Starts the usual network.
    pub fn start() -> Self {
        Self::start_with(&Options::default())
    }

    /// Starts a network.
    pub fn start_with(options: &Options) -> Self {
        let folder = tempfile::Builder::new().prefix("isl").tempdir().expect("temporary folder");
        Self::start_in(folder, options)
    }

    /// Starts a network on a folder that may hold an earlier one's data.
    pub fn start_in(folder: TempDir, options: &Options) -> Self {
        let postgres = options.postgres.then(Server::start);
        let mut coordinator = options.coordinator.clone();
        coordinator.extend(postgres.as_ref().map(|server| ("DATABASE__URL", server.database())));
        let log = fs::File::options().create(true).append(true).open(folder.path().join("dev.log"));
        let log = log.expect("open the log");
        // Tests may run where SIGHUP is ignored, which programs inherit.
        let mut command = Command::new("env");
        command.arg("--default-signal=HUP").arg(program("island"));
        command.args(["dev", "--fixtures", "--data-dir"]).arg(folder.path());
        if options.islands == 0 {
            command.arg("--no-island");
        } else {
            command.args(["--islands", &options.islands.to_string()]);
        }
        if options.no_limits {
            command.arg("--no-limits");
        }
        if let Some(port) = options.api_port {
            command.args(["--api-port", &port.to_string()]);
        }
        if let Some(cargos) = &options.cargos {
            command.arg("--cargos").arg(cargos);
        }
        for (name, value) in &coordinator {
            command.env(format!("ISLAND_COORDINATOR_{name}"), value);
        }
        // It would run a job of its own in the middle of a test.
        command.env("ISLAND_AGENT_MEASURE", "false");
        for (name, value) in &options.agent {
            command.env(format!("ISLAND_AGENT_{name}"), value);
        }
        command.envs(&options.environment);
        // One that was killed leaves it.
        let _ = fs::remove_file(folder.path().join("dev.json"));
        let dev = command
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("share the log"))
            .stderr(log)
            .spawn()
            .expect("start `island dev`");
        let mut network =
            Self { folder, dev, info: Value::Null, coordinator, others: Vec::new(), _postgres: postgres };
        network.wait_until_ready();
        network
    }

    fn wait_until_ready(&mut self) {
        let path = self.folder.path().join("dev.json");
        let end = Instant::now() + Duration::from_mins(2);
        loop {
            if let Ok(text) = fs::read_to_string(&path) {
                self.info = serde_json::from_str(&text).expect("dev.json is JSON");
                // No test runs with fewer layers than owners are promised.
                let sandbox = &self.info["sandbox"];
                assert!(
                    sandbox == "full" || sandbox.is_null(),
                    "the Islands' sandbox is {sandbox}:\n{}",
                    self.logs()
                );
                return;
            }
            let ended = self.dev.try_wait().expect("get the state of `island dev`");
            assert!(ended.is_none() && Instant::now() < end, "`island dev` did not start:\n{}", self.logs());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// A string field of `dev.json`.
    pub fn info(&self, field: &str) -> &str {
        self.info[field].as_str().unwrap_or_else(|| panic!("dev.json has {field}"))
    }

    /// The data directory.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A client with the dev account's key.
    pub fn client(&self) -> Client {
        self.client_with(Some(self.info("api_key").to_owned()))
    }

    /// A client of the account to which the Islands belong.
    pub fn owner(&self) -> Client {
        let accounts = fs::read_to_string(self.folder().join("accounts.json")).expect("accounts.json");
        let accounts: Value = serde_json::from_str(&accounts).expect("JSON");
        self.client_with(Some(accounts["owner_key"].as_str().expect("a key").to_owned()))
    }

    /// A client with another key, or none.
    pub fn client_with(&self, key: Option<String>) -> Client {
        Client::new(self.info("api_url"), key).expect("client")
    }

    /// Starts another coordinator on the same database and fabric; returns its address. It ends with the network.
    pub fn another_coordinator(&mut self) -> String {
        let log = fs::File::create(self.folder().join("logs/another.log")).expect("log");
        let mut command = Command::new(program("island-coordinator"));
        command.arg("--config").arg(self.folder().join("coordinator.toml"));
        command.args(["--listen", "127.0.0.1:0", "serve"]);
        for (name, value) in &self.coordinator {
            command.env(format!("ISLAND_COORDINATOR_{name}"), value);
        }
        let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn();
        let mut another = started.expect("start a coordinator");
        let mut line = String::new();
        let output = another.stdout.take().expect("its output");
        self.others.push(another);
        BufReader::new(output).read_line(&mut line).expect("its address");
        assert!(line.starts_with("http://"), "no address:\n{}", self.logs());
        line.trim().to_owned()
    }

    /// Process id of a part: `nats-server`, `coordinator`, `island-1`.
    pub fn pid(&self, part: &str) -> i32 {
        let path = self.folder().join("pids").join(format!("{part}.pid"));
        let text = fs::read_to_string(&path).expect("read the pid file");
        text.lines().next().and_then(|pid| pid.parse().ok()).expect("a process id")
    }

    /// Kills a part without warning; `island dev` starts it again.
    pub fn kill(&self, part: &str) {
        processes::kill(self.pid(part));
    }

    /// Asks `island dev` to stop and waits; returns its exit status and the folder.
    pub fn stop(self) -> (ExitStatus, TempDir) {
        self.end(Signal::TERM)
    }

    /// Sends `island dev` a signal that ends it and waits; returns its exit status and the folder.
    pub fn end(mut self, signal: Signal) -> (ExitStatus, TempDir) {
        self.signal(signal);
        let status = self.dev.wait().expect("wait for it");
        let folder = std::mem::replace(&mut self.folder, tempfile::tempdir().expect("temporary folder"));
        (status, folder)
    }

    /// Sends `island dev` a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.dev.id().cast_signed()).expect("a process id");
        kill_process(pid, signal).expect("send a signal");
    }

    /// Every log of the network, for a failing test's message.
    pub fn logs(&self) -> String {
        let mut all = String::new();
        let parts = fs::read_dir(self.folder().join("logs")).into_iter().flatten().flatten();
        let files = std::iter::once(self.folder().join("dev.log")).chain(parts.map(|entry| entry.path()));
        for file in files {
            let text = fs::read_to_string(&file).unwrap_or_default();
            let tail: Vec<&str> = text.lines().rev().take(40).collect();
            let tail: Vec<&str> = tail.into_iter().rev().collect();
            let _ = writeln!(all, "--- {}\n{}", file.display(), tail.join("\n"));
        }
        all
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if std::thread::panicking() {
            #[expect(clippy::print_stderr, reason = "a failing test shows the output of its network")]
            {
                eprintln!("{}", self.logs());
            }
        }
        for process in std::iter::once(&mut self.dev).chain(&mut self.others) {
            let _ = process.kill();
            let _ = process.wait();
        }
        for process in processes::of(self.folder.path()) {
            if let Some(pid) = Pid::from_raw(process.pid) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }
}

/// A program of the workspace, built next to this test.
pub fn program(name: &str) -> PathBuf {
    let own = std::env::current_exe().expect("this test's path");
    let folder = own.parent().and_then(Path::parent).expect("tests lie in target/<profile>/deps");
    let path = folder.join(name);
    assert!(path.is_file(), "{} is not built: run `cargo build --workspace` first", path.display());
    path
}
