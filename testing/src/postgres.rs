//! A PostgreSQL server that lives exactly as long as this process, however that ends.

use std::{
    env, fs,
    os::unix::{fs::MetadataExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

/// Maximum wait for its first reply.
const PATIENCE: Duration = Duration::from_mins(1);

/// Starts the server, and again whenever it ends, until this process has ended; then it stops the server and removes its
/// folder. The end of its standard input is the signal, so that neither a panic nor a kill leaves anything behind.
const GUARD: &str = r#"
trap '' INT
dir=$1; shift
(while [ ! -e stop ]; do "$@"; sleep 0.1; done; : > stopped) &
read -r _
: > stop
until [ -e stopped ]; do
    server=$(head -n 1 data/postmaster.pid 2>/dev/null) && kill -QUIT "$server" 2>/dev/null && kill -CONT "$server" 2>/dev/null
    sleep 0.05
done
rm -rf "$dir"
"#;

/// Small and fast settings, as the data is temporary.
const SETTINGS: [&str; 8] = [
    "listen_addresses=",
    "fsync=off",
    "full_page_writes=off",
    "shared_buffers=16MB",
    "wal_level=minimal",
    "max_wal_senders=0",
    "min_wal_size=32MB",
    "max_wal_size=64MB",
];

/// Why the server cannot start where its programs are not installed.
pub const MISSING: &str =
    "PostgreSQL is missing: run `scripts/setup.sh test`, or set ISLAND_POSTGRES_BIN to the folder of initdb";

/// The server. It listens only on a socket in its own folder.
#[derive(Debug)]
pub struct Server {
    programs: PathBuf,
    folder: PathBuf,
    databases: AtomicU32,
    /// The server stops when this standard input closes.
    _guard: Child,
}

impl Server {
    /// Whether PostgreSQL is installed.
    pub fn is_installed() -> bool {
        programs().is_some()
    }

    /// Creates a cluster in a temporary folder and starts it.
    pub fn start() -> Self {
        Self::start_in(tempfile::Builder::new().prefix("island-pg-").tempdir().expect("folder").keep())
    }

    /// The same in this folder, which must be empty.
    pub fn start_in(folder: PathBuf) -> Self {
        Self::start_with(folder, &[])
    }

    /// The same with settings that override the usual ones.
    pub fn start_with(folder: PathBuf, settings: &[&str]) -> Self {
        let programs = programs().expect(MISSING);
        let user = user();
        if let Some((uid, gid)) = user {
            std::os::unix::fs::chown(&folder, Some(uid), Some(gid)).expect("folder of another user");
        }
        let mut initdb = as_user(&programs.join("initdb"), user);
        initdb.args([
            "--no-sync",
            "--auth=trust",
            "--encoding=UTF8",
            "--locale=C",
            "--username=island",
            "-D",
            "data",
        ]);
        run(initdb.current_dir(&folder));
        Self::run_data(programs, folder, user, settings)
    }

    /// Runs the server on the data in its folder.
    pub fn run_data(programs: PathBuf, folder: PathBuf, user: Option<(u32, u32)>, settings: &[&str]) -> Self {
        let guard = guard(&programs.join("postgres"), &folder, user, settings);
        let server = Self { programs, folder, databases: AtomicU32::new(0), _guard: guard };
        server.wait();
        server
    }

    fn wait(&self) {
        let begin = Instant::now();
        let answers = || self.command("pg_isready").arg("-q").status().expect("pg_isready starts").success();
        while !answers() {
            let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            assert!(begin.elapsed() < PATIENCE, "PostgreSQL does not answer:\n{log}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// A program of PostgreSQL that connects to the server.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        command.arg("-h").arg(&self.folder).args(["-U", "island"]);
        command
    }

    /// Creates an empty database and returns its address.
    pub fn database(&self) -> String {
        let name = format!("test_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        run(self.command("createdb").arg(&name));
        format!("postgres://island@localhost/{name}?host={}", self.folder.display())
    }
}

fn guard(program: &Path, folder: &Path, user: Option<(u32, u32)>, settings: &[&str]) -> Child {
    let log = fs::File::create(folder.join("log")).expect("log");
    let mut guard = as_user(Path::new("/bin/sh"), user);
    guard.args(["-c", GUARD, "guard"]).arg(folder).arg(program).args(["-D", "data"]);
    guard.arg("-c").arg(format!("unix_socket_directories={}", folder.display()));
    guard.args(SETTINGS.iter().chain(settings).flat_map(|setting| ["-c", setting]));
    guard.current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log);
    guard.spawn().expect("the guard starts")
}

/// Runs a program of PostgreSQL to its end.
pub fn run(command: &mut Command) {
    let done = command.output().expect("a program of PostgreSQL starts");
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// `ISLAND_POSTGRES_BIN`, else the newest version that the distribution installed, else the search path.
pub fn programs() -> Option<PathBuf> {
    if let Some(folder) = env::var_os("ISLAND_POSTGRES_BIN") {
        return Some(folder.into());
    }
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut installed: Vec<(u32, PathBuf)> = versions
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .collect();
    installed.sort();
    let search = env::var_os("PATH").unwrap_or_default();
    let folders = installed.into_iter().rev().map(|(_, folder)| folder).chain(env::split_paths(&search));
    folders.into_iter().find(|folder| folder.join("initdb").is_file())
}

/// The user to run as: PostgreSQL refuses to run as root.
pub fn user() -> Option<(u32, u32)> {
    let own = fs::metadata("/proc/self").expect("own process").uid();
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let of = |name: &str| {
        let line = users.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        let mut fields = line.split(':').skip(1);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    (own == 0).then(|| of("postgres").or_else(|| of("nobody")).expect("a user to run PostgreSQL as"))
}

/// A program that runs as this user.
pub fn as_user(program: &Path, user: Option<(u32, u32)>) -> Command {
    let mut command = Command::new(program);
    if let Some((uid, gid)) = user {
        command.uid(uid).gid(gid);
    }
    command
}
