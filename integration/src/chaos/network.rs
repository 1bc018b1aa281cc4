//! Two coordinators on PostgreSQL, a cluster of NATS servers, and Islands, each a process of its own that can be killed and frozen, and
//! each connected through proxies that can be cut.

mod layout;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Mutex,
    time::Duration,
};

use island_coordinator_client::Client;
use island_testing::postgres::Server;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::{
    plan::{Disk, Fault, Link, Part, Size},
    proxy::Proxy,
    standby::Pair,
};
use crate::{expect::eventually, network::program, processes};

/// Size of an Island's disk.
const DISK_BYTES: u64 = 64 << 20;
/// Size of the database's disk.
const DATABASE_BYTES: u64 = 1 << 30;
/// A part that runs, and how to start it again.
#[derive(Debug)]
struct Running {
    program: PathBuf,
    arguments: Vec<String>,
    child: Option<Child>,
}

/// The programs of a version, and the catalogue that it ships.
#[derive(Debug, Clone)]
pub struct Version {
    coordinator: PathBuf,
    agent: PathBuf,
    catalogue: PathBuf,
}

impl Version {
    /// The one under test.
    pub fn current() -> Self {
        Self {
            coordinator: program("island-coordinator"),
            agent: program("island-agent"),
            catalogue: crate::examples::catalogue(),
        }
    }

    /// One whose programs and catalogue are in these folders. Agents start the workers beside them.
    pub fn in_folders(programs: &Path, catalogue: &Path) -> Self {
        Self {
            coordinator: programs.join("island-coordinator"),
            agent: programs.join("island-agent"),
            catalogue: catalogue.to_owned(),
        }
    }
}

/// What one fault at a time may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Part(Part),
    Link(Link),
    Disk(usize),
    Clock(Part),
}

/// How a part is struck.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blow {
    /// SIGKILL.
    Kill,
    /// SIGSTOP.
    Freeze,
}

/// The place of a fault.
fn place(fault: Fault) -> Place {
    match fault {
        Fault::Kill(part, _) | Fault::Freeze(part, _) => Place::Part(part),
        Fault::EmptyStore(server, _) => Place::Part(Part::Server(server)),
        // A database that is killed while its disk is full cannot start.
        Fault::FillDisk(Disk::Database, _) => Place::Part(Part::Database),
        Fault::FillDisk(Disk::Island(island), _) => Place::Disk(island),
        Fault::Cut(link, ..) => Place::Link(link),
        Fault::StepClock(part, ..) => Place::Clock(part),
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
    /// The version of parts that have not been replaced.
    version: Version,
    key: String,
    /// Whether the Islands' folders are disks of their own.
    has_disks: bool,
    /// Stops with the network.
    postgres: Mutex<Database>,
}

/// The database's servers.
#[derive(Debug)]
enum Database {
    One { _server: Server },
    Pair(Pair),
}

impl Network {
    /// The same, with a standby of the database that can take its place.
    pub async fn start_with_standby(size: Size, lease: Duration) -> Self {
        let folder = tempfile::Builder::new().prefix("isl").tempdir().expect("temporary folder");
        let current = folder.path().join("database");
        let start = move || {
            let folder = || tempfile::Builder::new().prefix("island-pg-").tempdir().expect("folder").keep();
            Pair::start(folder(), folder(), current)
        };
        let pair = tokio::task::spawn_blocking(start).await.expect("PostgreSQL starts");
        let address = pair.database();
        Self::start_on(folder, size, lease, Database::Pair(pair), address, false, Version::current()).await
    }

    /// The same as [`Self::start`] with the programs of another version.
    pub async fn start_version(size: Size, lease: Duration, version: Version) -> Self {
        let folder = tempfile::Builder::new().prefix("isl").tempdir().expect("temporary folder");
        let postgres = tokio::task::spawn_blocking(Server::start).await.expect("PostgreSQL starts");
        let address = postgres.database();
        Self::start_on(folder, size, lease, Database::One { _server: postgres }, address, false, version)
            .await
    }

    /// Stops a part in order, and starts it with the program of a version.
    pub async fn replace(&self, part: Part, version: &Version) {
        let pid = self.pid(part).expect("it runs");
        self.struck().insert(Place::Part(part));
        signal(pid, Signal::TERM);
        eventually("a part stops", || async {
            let mut parts = self.parts();
            let child = parts.get_mut(&part).and_then(|running| running.child.as_mut());
            child?.try_wait().expect("its state").map(|_| ())
        })
        .await;
        let program = match part {
            Part::Coordinator(number) => {
                fs::remove_file(self.catalogue(number)).expect("remove the link");
                self.link_catalogue(number, version);
                &version.coordinator
            }
            Part::Agent(_) => &version.agent,
            _ => panic!("{part} has no version"),
        };
        self.parts().get_mut(&part).expect("a part").program.clone_from(program);
        self.run(part);
        self.struck().remove(&Place::Part(part));
    }

    /// Lets the standby of the database take its place, as after the loss of a machine.
    pub async fn fail_over(self: &std::sync::Arc<Self>) {
        let network = self.clone();
        let switch = move || match &mut *network.postgres.lock().expect("no holder panicked") {
            Database::Pair(pair) => pair.fail_over(),
            Database::One { .. } => panic!("there is no standby"),
        };
        tokio::task::spawn_blocking(switch).await.expect("the standby takes over");
    }

    /// Starts everything, and waits until all Islands are online.
    pub async fn start(size: Size, lease: Duration) -> Self {
        let folder = tempfile::Builder::new().prefix("isl").tempdir().expect("temporary folder");
        let has_disks = rustix::process::geteuid().is_root();
        let start = move || {
            let folder = tempfile::Builder::new().prefix("island-pg-").tempdir().expect("folder").keep();
            if has_disks {
                mount(&folder, DATABASE_BYTES);
            }
            Server::start_in(folder)
        };
        let postgres = tokio::task::spawn_blocking(start).await.expect("PostgreSQL starts");
        let address = postgres.database();
        let database = Database::One { _server: postgres };
        Self::start_on(folder, size, lease, database, address, has_disks, Version::current()).await
    }

    async fn start_on(
        folder: TempDir,
        size: Size,
        lease: Duration,
        postgres: Database,
        database: String,
        has_disks: bool,
        version: Version,
    ) -> Self {
        fs::create_dir(folder.path().join("logs")).expect("a folder");
        let mut network = Self {
            folder,
            size,
            parts: Mutex::default(),
            struck: Mutex::default(),
            links: BTreeMap::new(),
            returns: BTreeMap::new(),
            database,
            version,
            key: String::new(),
            has_disks,
            postgres: Mutex::new(postgres),
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
                // The database's processes are stopped after the one that would start others.
                let children = if part == Part::Database { processes::children(pid) } else { Vec::new() };
                for child in &children {
                    signal(*child, Signal::STOP);
                }
                tokio::time::sleep(length).await;
                for child in &children {
                    signal(*child, Signal::CONT);
                }
                signal(pid, Signal::CONT);
                stopped
            }
            Fault::Kill(Part::Database, _) => {
                self.pid(Part::Database).is_some_and(|server| signal(server, Signal::KILL))
            }
            Fault::Kill(part, down) => {
                self.kill(part);
                tokio::time::sleep(down).await;
                self.run(part);
                true
            }
            Fault::EmptyStore(server, down) => {
                self.kill(Part::Server(server));
                // A server that was killed at its start has none yet.
                match fs::remove_dir_all(self.store(server)) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        panic!("remove the store: {error}")
                    }
                    _ => {}
                }
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
            Fault::FillDisk(disk, length) => {
                if !self.has_disks {
                    return false;
                }
                let folder = match disk {
                    Disk::Island(island) => self.state(island),
                    Disk::Database => self.database_folder().to_owned(),
                };
                let filler = folder.join("filler");
                let Ok(file) = fs::File::create(&filler) else { return false };
                fill(file).await;
                tokio::time::sleep(length).await;
                fs::remove_file(&filler).expect("remove the file");
                true
            }
            Fault::StepClock(part, by_ms, length) => {
                self.set_clock(part, by_ms);
                tokio::time::sleep(length).await;
                self.set_clock(part, 0);
                true
            }
        }
    }

    /// Kills or freezes a part, and returns when. It stays so until [`Self::mend`].
    pub(super) fn blow(&self, part: Part, blow: Blow) -> tokio::time::Instant {
        let pid = self.pid(part).expect("it runs");
        let at = tokio::time::Instant::now();
        match (blow, part) {
            (Blow::Kill, Part::Worker(_)) => assert!(signal(pid, Signal::KILL)),
            (Blow::Kill, part) => self.kill(part),
            (Blow::Freeze, _) => assert!(signal(pid, Signal::STOP)),
        }
        at
    }

    /// Starts a part that was killed.
    pub(super) fn start_again(&self, part: Part) {
        self.run(part);
    }

    /// Lets a frozen part continue. A worker was replaced meanwhile.
    pub(super) fn mend(&self, part: Part, blow: Blow) {
        if let (Blow::Freeze, false, Some(pid)) = (blow, matches!(part, Part::Worker(_)), self.pid(part)) {
            signal(pid, Signal::CONT);
        }
    }

    /// The process of a part.
    fn pid(&self, part: Part) -> Option<i32> {
        match part {
            Part::Worker(island) => self.worker(island),
            Part::Database => {
                let file = fs::read_to_string(self.database_folder().join("data/postmaster.pid")).ok()?;
                file.lines().next()?.trim().parse().ok()
            }
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
        command.env("FAILPOINTS", format!("wall_clock=return({})", self.clock(part).display()));
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

    /// Copies what explains a broken promise into a folder.
    pub(super) fn keep(&self, folder: &Path) {
        fs::create_dir_all(folder).expect("a folder");
        let islands = (0..self.size.islands).map(|island| self.state(island));
        for (number, from) in std::iter::once(self.path("logs")).chain(islands).enumerate() {
            run(Command::new("cp").arg("-r").arg(from).arg(folder.join(format!("{number}"))));
        }
        let columns = "id, status, attempt, epoch, host_id, coordinator_id, error_code, created_at";
        let rows = self.query(&format!("SELECT {columns} FROM jobs ORDER BY id"));
        let lines: Vec<String> = rows.iter().map(|row| row.join(" ")).collect();
        fs::write(folder.join("jobs"), lines.join("\n")).expect("write the rows");
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

    /// The file with the error of a part's wall-clock time, milliseconds.
    fn clock(&self, part: Part) -> PathBuf {
        self.path(&format!("{part}.clock"))
    }

    fn set_clock(&self, part: Part, error_ms: i64) {
        fs::write(self.clock(part), error_ms.to_string()).expect("set a clock");
    }

    fn store(&self, server: usize) -> PathBuf {
        self.path(&format!("nats-{server}"))
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
                let _ = Command::new("umount").arg("--lazy").arg(self.state(island)).output();
            }
            let _ = Command::new("umount").arg("--lazy").arg(self.database_folder()).output();
        }
    }
}

/// Makes a folder a disk of its own.
fn mount(folder: &Path, bytes: u64) {
    let size = format!("size={bytes}");
    run(Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(folder));
}

/// Writes to a file until its disk is full.
async fn fill(mut file: fs::File) {
    let written = tokio::task::spawn_blocking(move || io::copy(&mut io::repeat(0), &mut file));
    let full = written.await.expect("nothing panics").expect_err("a disk has an end");
    assert_eq!(full.kind(), io::ErrorKind::StorageFull);
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
