//! A separate nats-server for each test.

use std::{
    fs,
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use island_coordinator_domain::config::NatsSettings;
use island_coordinator_fabric::init::init;
use island_protocol::time::Timestamp;
use island_testing::port::free_port;

use super::PATIENCE;

/// Between two probes: each may occupy the server's port.
const PROBE_INTERVAL: Duration = Duration::from_millis(5);

/// A running server, killed on drop.
pub(crate) struct Nats {
    child: Option<Child>,
    conf: PathBuf,
    pub(crate) port: u16,
}

/// `ISLAND_NATS_SERVER`, else `.tools/bin` of the project, else the search path.
fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("ISLAND_NATS_SERVER") {
        return path.into();
    }
    let tools = island_testing::workspace().join(".tools/bin/nats-server");
    let search = std::env::var_os("PATH").unwrap_or_default();
    let candidates =
        std::iter::once(tools).chain(std::env::split_paths(&search).map(|dir| dir.join("nats-server")));
    let found = candidates.into_iter().find(|path| path.is_file());
    found.expect("nats-server is missing: run `make setup`, or set ISLAND_NATS_SERVER")
}

/// Writes the files of a fabric and returns the configuration of its server.
fn configure(dir: &Path, port: u16, max_store_mb: u32) -> PathBuf {
    let nats =
        NatsSettings { listen: ([127, 0, 0, 1], port).into(), max_store_mb, ..NatsSettings::default() };
    init(dir, &nats, Timestamp::from_unix_ms(1_700_000_000_000)).expect("fabric").remove(0)
}

impl Nats {
    /// Creates a fabric in `dir` and starts its server on a free port.
    pub(crate) fn start(dir: &Path) -> Self {
        let port = free_port();
        let conf = configure(dir, port, 256);
        let mut nats = Self { child: None, conf, port };
        nats.up();
        nats
    }

    /// Starts the server again with an empty store of this size in MiB, smaller than what the account may use.
    pub(crate) fn shrink(&mut self, max_store_mb: u32) {
        self.down();
        let dir = self.conf.parent().expect("a folder").to_owned();
        fs::remove_dir_all(dir.join("jetstream")).expect("removed");
        configure(&dir, self.port, max_store_mb);
        self.up();
    }

    /// Starts the server again without JetStream.
    pub(crate) fn up_without_jetstream(&mut self) {
        self.down();
        let whole = fs::read_to_string(&self.conf).expect("settings");
        let (before, after) = whole.split_once("jetstream {").expect("settings of JetStream");
        let (_, after) = after.split_once("}\n").expect("their end");
        fs::write(&self.conf, format!("{before}{after}")).expect("settings");
        self.up();
        fs::write(&self.conf, whole).expect("settings");
    }

    /// Starts the server, also after [`Self::down`].
    pub(crate) fn up(&mut self) {
        self.child = Some(self.spawn());
        let begin = Instant::now();
        while !self.answers() {
            let log = fs::read_to_string(self.conf.with_extension("log")).unwrap_or_default();
            assert!(begin.elapsed() < PATIENCE, "nats-server does not answer:\n{log}");
            std::thread::sleep(PROBE_INTERVAL);
            // Another connection may have used the port for a moment.
            let child = self.child.as_mut().expect("it was started above");
            if child.try_wait().expect("look at nats-server").is_some() {
                self.child = Some(self.spawn());
            }
        }
    }

    fn spawn(&self) -> Child {
        let log = fs::File::create(self.conf.with_extension("log")).expect("log file");
        let mut command = Command::new(binary());
        command.arg("-c").arg(&self.conf).stdout(Stdio::null()).stderr(log);
        command.spawn().expect("nats-server starts")
    }

    /// Whether the peer is another socket: a connection to a free port may get that port itself and connect to itself.
    fn answers(&self) -> bool {
        let connected = TcpStream::connect(("127.0.0.1", self.port));
        connected.is_ok_and(|stream| stream.local_addr().ok() != stream.peer_addr().ok())
    }

    /// Kills the server.
    pub(crate) fn down(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("kill nats-server");
            child.wait().expect("reap nats-server");
        }
    }

    /// Its address.
    pub(crate) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        self.down();
    }
}
