//! Two coordinators on PostgreSQL, a cluster of NATS servers, and Islands, each a process of its own that can be killed and frozen, and
//! each connected through proxies that can be cut.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs, io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Mutex,
    time::Duration,
};

use island_coordinator_client::Client;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tempfile::TempDir;

use super::{
    plan::{Fault, Link, Part, Size, links},
    proxy::{Proxy, Target},
};
use crate::{expect::eventually, network::program, postgres::Server, processes};

/// What is on the disk of an Island that can be filled.
const DISK_BYTES: u64 = 64 << 20;
/// Credits of the consumer.
const CREDITS: &str = "10000000";

/// A part that runs, and how to start it again.
#[derive(Debug)]
struct Running {
    program: PathBuf,
    arguments: Vec<String>,
    child: Option<Child>,
}

/// What one fault at a time may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Part(Part),
    Link(Link),
    Disk(usize),
}

/// The place of a fault.
fn place(fault: Fault) -> Place {
    match fault {
        Fault::Kill(part, _) | Fault::Freeze(part, _) => Place::Part(part),
        Fault::EmptyStore(server, _) => Place::Part(Part::Server(server)),
        Fault::Cut(link, ..) => Place::Link(link),
        Fault::FillDisk(island, _) => Place::Disk(island),
    }
}

/// The network. Dropping it kills what is left of it.
#[derive(Debug)]
pub struct Network {
    folder: TempDir,
    size: Size,
    parts: Mutex<BTreeMap<Part, Running>>,
    /// Where a fault is underway.
    struck: Mutex<BTreeSet<Place>>,
    links: BTreeMap<Link, Proxy>,
    /// The other way of each route, since each of two servers connects to the other.
    returns: BTreeMap<(usize, usize), Proxy>,
    database: String,
    key: String,
    /// Whether the Islands' folders are disks of their own.
    has_disks: bool,
    /// Stops with the network.
    _postgres: Server,
}

impl Network {
    /// Starts everything, and waits until all Islands are online.
    pub async fn start(size: Size, lease: Duration) -> Self {
        let folder = tempfile::Builder::new().prefix("isl").tempdir().expect("temporary folder");
        let postgres = tokio::task::spawn_blocking(Server::start).await.expect("PostgreSQL starts");
        let database = postgres.database();
        fs::create_dir(folder.path().join("logs")).expect("a folder");
        let mut network = Self {
            folder,
            size,
            parts: Mutex::default(),
            struck: Mutex::default(),
            links: BTreeMap::new(),
            returns: BTreeMap::new(),
            database,
            key: String::new(),
            has_disks: rustix::process::geteuid().is_root(),
            _postgres: postgres,
        };
        network.lay_out(lease).await;
        let parts: Vec<Part> = network.parts().keys().copied().collect();
        for part in parts.iter().copied().filter(|part| matches!(part, Part::Server(_))) {
            network.run(part);
        }
        let owner = network.make_accounts();
        network.write_agents(&owner);
        let rest: Vec<Part> = network.parts().keys().copied().collect();
        for part in rest.into_iter().filter(|part| !matches!(part, Part::Server(_))) {
            network.run(part);
        }
        network.settle().await;
        network
    }

    /// Chooses ports, starts the proxies and writes the settings of servers and coordinators.
    async fn lay_out(&mut self, lease: Duration) {
        let clients = ports(self.size.servers);
        let clusters = ports(self.size.servers);
        let apis = ports(self.size.coordinators);
        for link in links(self.size) {
            let target = match link {
                Link::Consumers | Link::AgentApi(_) => Target::AnyOf(apis.clone()),
                Link::AgentFabric(_) | Link::CoordinatorFabric(_) => Target::AnyOf(clients.clone()),
                Link::CoordinatorDatabase(_) => Target::Socket(self.database_socket()),
                Link::Route(_, other) => Target::AnyOf(vec![clusters[other]]),
            };
            let proxy = Proxy::start(target).await.expect("a proxy");
            self.links.insert(link, proxy);
            if let Link::Route(one, other) = link {
                let proxy = Proxy::start(Target::AnyOf(vec![clusters[one]])).await.expect("a proxy");
                self.returns.insert((other, one), proxy);
            }
        }
        self.write_servers(&clients, &clusters);
        self.write_coordinators(&apis, lease);
    }

    fn write_servers(&self, clients: &[SocketAddr], clusters: &[SocketAddr]) {
        let fabric = self.path("fabric");
        let store = self.path("nats");
        self.coordinator_command(&[
            "fabric",
            "init",
            "--dir",
            text(&fabric),
            "--nats-port",
            &clients[0].port().to_string(),
            "--store-dir",
            text(&store),
        ]);
        let made = fs::read_to_string(fabric.join("nats.conf")).expect("the server's settings");
        for server in 0..self.size.servers {
            let others = (0..self.size.servers).filter(|other| *other != server);
            let routes = others.map(|other| {
                let there = self.links.get(&Link::Route(server, other));
                let proxy =
                    there.or_else(|| self.returns.get(&(server, other))).expect("every pair is connected");
                format!("nats://{}", proxy.address())
            });
            let mut settings = made
                .replace("server_name: island", &format!("server_name: nats-{server}"))
                .replace(
                    &format!("port: {}", clients[0].port()),
                    &format!("port: {}", clients[server].port()),
                )
                .replace(text(&store), text(&self.store(server)))
                .replace(text(&fabric.join("resolver")), text(&fabric.join(format!("resolver-{server}"))));
            // Routes lead through proxies only: the address that a server advertises to others cannot be connected to.
            let _ = write!(
                settings,
                "ping_interval: \"2s\"\ncluster {{\n  name: chaos\n  listen: \"{}\"\n  advertise: \"127.0.0.1:1\"\n  no_advertise: true\n  \
                 ping_interval: \"2s\"\n  routes: [{}]\n}}\n",
                clusters[server],
                routes.map(|route| format!("{route:?}")).collect::<Vec<_>>().join(", "),
            );
            let path = self.path(&format!("nats-{server}.conf"));
            fs::write(&path, settings).expect("write the server's settings");
            fs::create_dir_all(self.store(server)).expect("a folder");
            self.add(Part::Server(server), nats_server(), vec!["-c".to_owned(), text(&path).to_owned()]);
        }
    }

    fn write_coordinators(&self, apis: &[SocketAddr], lease: Duration) {
        let lease_ms = lease.as_millis() as u64;
        for (number, listen) in apis.iter().enumerate() {
            let database = self.links[&Link::CoordinatorDatabase(number)].address();
            let name = self.database.split(['/', '?']).nth(3).expect("the database's name");
            let settings = json!({
                "http": { "listen": listen.to_string(), "drain_s": 2 },
                "database": { "url": format!("postgres://island@{database}/{name}") },
                "fabric": {
                    "url": format!("nats://{}", self.links[&Link::CoordinatorFabric(number)].address()),
                    "dir": self.path("fabric"),
                },
                "catalogue": { "dir": crate::examples::catalogue(), "fixtures": true },
                "limits": { "requests_per_minute": 0, "concurrent_jobs": 0, "concurrent_streams": 0 },
                "jobs": {
                    "lease_ms": lease_ms,
                    "heartbeat_ms": lease_ms / 6,
                    "takeover_ms": lease_ms / 4,
                    "max_wait_s": 120,
                },
            });
            let path = self.path(&format!("coordinator-{number}.toml"));
            fs::write(&path, toml::to_string(&settings).expect("TOML")).expect("write the settings");
            let arguments = vec!["--config".to_owned(), text(&path).to_owned(), "serve".to_owned()];
            self.add(Part::Coordinator(number), program("island-coordinator"), arguments);
        }
    }

    /// Creates the consumer, whose key is kept, and returns the key of the Islands' owner.
    fn make_accounts(&mut self) -> String {
        let make = |email: &str, credits: &str, operator: bool| {
            let config = self.path("coordinator-0.toml");
            let admin = |arguments: &[&str]| {
                let config = ["--config", text(&config), "admin"];
                self.coordinator_command(&[&config, arguments].concat()).trim().to_owned()
            };
            let mut create = vec!["account", "create", "--email", email, "--credits", credits];
            create.extend(operator.then_some("--operator"));
            let account = admin(&create);
            admin(&["key", "create", "--account", &account, "--name", "chaos"])
        };
        let consumer = make("consumer@island.localhost", CREDITS, true);
        let owner = make("owner@island.localhost", "0", false);
        self.key = consumer;
        owner
    }

    fn write_agents(&self, owner: &str) {
        for number in 0..self.size.islands {
            let state = self.state(number);
            fs::create_dir_all(&state).expect("a folder");
            if self.has_disks {
                let size = format!("size={DISK_BYTES}");
                run(Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(&state));
            }
            let settings = json!({
                "state_dir": state,
                "api_url": format!("http://{}", self.links[&Link::AgentApi(number)].address()),
                "nats_url": format!("nats://{}", self.links[&Link::AgentFabric(number)].address()),
                "api_key": owner,
                "name": format!("island-{number}"),
                "simulated": true,
                "measure": false,
                "cache": { "dir": self.path("cache") },
            });
            let path = self.path(&format!("island-{number}.toml"));
            fs::write(&path, toml::to_string(&settings).expect("TOML")).expect("write the settings");
            let arguments = vec!["--config".to_owned(), text(&path).to_owned(), "run".to_owned()];
            self.add(Part::Agent(number), program("island-agent"), arguments);
        }
    }

    fn add(&self, part: Part, program: PathBuf, arguments: Vec<String>) {
        self.parts().insert(part, Running { program, arguments, child: None });
    }

    /// A client that reaches whichever coordinator accepts, and gives up on a frozen one soon.
    pub fn client(&self) -> Client {
        let url = format!("http://{}", self.api());
        let builder = Client::builder(&url).key(self.key.clone());
        builder
            .timeout(Duration::from_secs(10))
            .idle_timeout(Duration::from_secs(20))
            .build()
            .expect("a client")
    }

    /// Where consumers connect.
    pub fn api(&self) -> SocketAddr {
        self.links[&Link::Consumers].address()
    }

    /// The consumer's key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The folder of everything.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The folder of an Island's state.
    pub fn state(&self, island: usize) -> PathBuf {
        self.path(&format!("island-{island}"))
    }

    /// How many of each part there are.
    pub fn size(&self) -> Size {
        self.size
    }

    /// The rows of a statement, each a list of texts.
    pub fn query(&self, sql: &str) -> Vec<Vec<String>> {
        let mut command = Command::new("psql");
        let separator = "\u{1f}";
        command.args([
            "--no-psqlrc",
            "--quiet",
            "--tuples-only",
            "--no-align",
            "--field-separator",
            separator,
        ]);
        let printed = run(command.args(["--record-separator-zero", "--command", sql, &self.database]));
        let rows = printed.split('\0').map(str::trim_end).filter(|row| !row.is_empty());
        rows.map(|row| row.split(separator).map(str::to_owned).collect()).collect()
    }

    /// Inflicts a fault and waits until it is over. Returns whether it was possible: where another fault is underway, it is not.
    pub async fn inflict(&self, fault: Fault) -> bool {
        let place = place(fault);
        if !self.struck().insert(place) {
            return false;
        }
        let inflicted = self.strike(fault).await;
        self.struck().remove(&place);
        inflicted
    }

    async fn strike(&self, fault: Fault) -> bool {
        match fault {
            Fault::Kill(Part::Worker(island), _) => {
                self.worker(island).is_some_and(|worker| signal(worker, Signal::KILL))
            }
            Fault::Freeze(part, length) => {
                let Some(pid) = self.pid(part) else { return false };
                let stopped = signal(pid, Signal::STOP);
                tokio::time::sleep(length).await;
                signal(pid, Signal::CONT);
                stopped
            }
            Fault::Kill(part, down) => {
                self.kill(part);
                tokio::time::sleep(down).await;
                self.run(part);
                true
            }
            Fault::EmptyStore(server, down) => {
                self.kill(Part::Server(server));
                fs::remove_dir_all(self.store(server)).expect("remove the store");
                tokio::time::sleep(down).await;
                self.run(Part::Server(server));
                true
            }
            Fault::Cut(link, direction, length) => {
                let back =
                    if let Link::Route(one, other) = link { self.returns.get(&(other, one)) } else { None };
                self.links[&link].cut(direction);
                if let Some(back) = back {
                    back.cut(direction.reversed());
                }
                tokio::time::sleep(length).await;
                self.links[&link].heal();
                if let Some(back) = back {
                    back.heal();
                }
                true
            }
            Fault::FillDisk(island, length) => {
                if !self.has_disks {
                    return false;
                }
                let filler = self.state(island).join("filler");
                let Ok(mut file) = fs::File::create(&filler) else { return false };
                // It ends with an error, since the disk is full then.
                let _ = io::copy(&mut io::Read::take(io::repeat(0), DISK_BYTES), &mut file);
                tokio::time::sleep(length).await;
                fs::remove_file(&filler).expect("remove the file");
                true
            }
        }
    }

    /// The process of a part.
    fn pid(&self, part: Part) -> Option<i32> {
        match part {
            Part::Worker(island) => self.worker(island),
            part => Some(self.parts().get(&part)?.child.as_ref()?.id().cast_signed()),
        }
    }

    fn struck(&self) -> std::sync::MutexGuard<'_, BTreeSet<Place>> {
        self.struck.lock().expect("no holder panicked")
    }

    fn kill(&self, part: Part) {
        let mut parts = self.parts();
        let child = &mut parts.get_mut(&part).expect("a part").child;
        if let Some(mut child) = child.take() {
            child.kill().expect("kill");
            child.wait().expect("wait");
        }
    }

    fn run(&self, part: Part) {
        let log = fs::File::options().create(true).append(true).open(self.log(part)).expect("a log");
        let mut parts = self.parts();
        let running = parts.get_mut(&part).expect("a part");
        // Tests may run where SIGHUP is ignored, which programs inherit.
        let mut command = Command::new("env");
        command.arg("--default-signal=HUP").arg(&running.program).args(&running.arguments);
        let streams =
            command.stdin(Stdio::null()).stdout(log.try_clone().expect("share the log")).stderr(log);
        running.child = Some(streams.spawn().expect("start a part"));
    }

    /// Starts every part again that has ended although no fault killed it, and returns which and why. A part may end when it cannot work;
    /// systemd starts it again then.
    pub fn revive(&self) -> Vec<(Part, String)> {
        let mut ended = Vec::new();
        let struck = self.struck();
        for (part, running) in
            self.parts().iter_mut().filter(|(part, _)| !struck.contains(&Place::Part(**part)))
        {
            let status =
                running.child.as_mut().and_then(|child| child.try_wait().expect("the state of a part"));
            if let Some(status) = status {
                let log = fs::read_to_string(self.log(*part)).unwrap_or_default();
                ended.push((*part, format!("{status}: {}", log.lines().last().unwrap_or_default())));
            }
        }
        for (part, _) in &ended {
            self.run(*part);
        }
        drop(struck);
        ended
    }

    /// One worker of an Island.
    fn worker(&self, island: usize) -> Option<i32> {
        processes::workers(&self.state(island)).first().map(|worker| worker.pid)
    }

    /// Waits until every Island is online.
    pub async fn settle(&self) {
        let client = self.client();
        eventually("every Island is online", || async {
            self.revive();
            let hosts = client.hosts().await.ok()?;
            let online = hosts.iter().filter(|host| host.status == "online").count();
            (online >= self.size.islands).then_some(())
        })
        .await;
    }

    /// Stops all Islands in order, as their owners would.
    pub async fn stop_islands(&self) {
        let agents: Vec<Part> = (0..self.size.islands).map(Part::Agent).collect();
        for agent in &agents {
            let parts = self.parts();
            signal(parts[agent].child.as_ref().expect("it runs").id().cast_signed(), Signal::TERM);
        }
        eventually("every agent has stopped", || async {
            let mut parts = self.parts();
            let ended = |agent: &Part| {
                let child = parts.get_mut(agent).and_then(|running| running.child.as_mut());
                child.is_some_and(|child| child.try_wait().expect("its state").is_some())
            };
            agents.iter().all(ended).then_some(())
        })
        .await;
    }

    /// The last lines of every log.
    pub fn logs(&self) -> String {
        let mut all = String::new();
        for entry in fs::read_dir(self.path("logs")).into_iter().flatten().flatten() {
            let text = fs::read_to_string(entry.path()).unwrap_or_default();
            let tail: Vec<&str> = text.lines().rev().take(25).collect();
            let _ = writeln!(all, "--- {}", entry.path().display());
            for line in tail.iter().rev() {
                let _ = writeln!(all, "{line}");
            }
        }
        all
    }

    fn parts(&self) -> std::sync::MutexGuard<'_, BTreeMap<Part, Running>> {
        self.parts.lock().expect("no holder panicked")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn log(&self, part: Part) -> PathBuf {
        self.path("logs").join(format!("{part}.log"))
    }

    fn store(&self, server: usize) -> PathBuf {
        self.path(&format!("nats-{server}"))
    }

    fn database_socket(&self) -> PathBuf {
        let (_, folder) = self.database.split_once("host=").expect("the database listens on a socket");
        Path::new(folder).join(".s.PGSQL.5432")
    }

    fn coordinator_command(&self, arguments: &[&str]) -> String {
        run(Command::new(program("island-coordinator")).args(arguments))
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for running in self.parts().values_mut() {
            if let Some(child) = &mut running.child {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
        for process in processes::of(self.folder.path()) {
            signal(process.pid, Signal::KILL);
        }
        if self.has_disks {
            for island in 0..self.size.islands {
                let _ = Command::new("umount").arg("--lazy").arg(self.state(island)).status();
            }
        }
    }
}

/// Free ports of this machine, held for a moment so that they differ.
fn ports(count: usize) -> Vec<SocketAddr> {
    let listeners: Vec<TcpListener> =
        (0..count).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port")).collect();
    listeners.iter().map(|listener| listener.local_addr().expect("an address")).collect()
}

fn signal(pid: i32, signal: Signal) -> bool {
    Pid::from_raw(pid).is_some_and(|pid| kill_process(pid, signal).is_ok())
}

/// Runs a command to its end and returns its output.
fn run(command: &mut Command) -> String {
    let done = command.output().expect("a program starts");
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).expect("text")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

/// The server that `scripts/setup.sh` installs.
fn nats_server() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools/bin/nats-server");
    if own.is_file() { own } else { PathBuf::from("nats-server") }
}
