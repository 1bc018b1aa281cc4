//! A PostgreSQL server that lives exactly as long as this process, however that ends.

use std::{
    env, fs,
    os::unix::{fs::MetadataExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use sqlx::{AnyConnection, Connection as _};

use super::soon;

/// Starts the server, waits until this process has gone, stops the server and removes its folder. The end of its
/// standard input tells it, so that neither a panic nor a kill leaves anything behind.
const GUARD: &str = r#"
trap '' INT
dir=$1; shift
"$@" & server=$!
read -r _
kill -QUIT "$server"; wait "$server"
rm -rf "$dir"
"#;

/// The server. It listens on a socket in its own folder and nowhere else.
pub(crate) struct Server {
    folder: PathBuf,
    /// Its standard input is what keeps the server alive.
    _guard: Child,
}

impl Server {
    /// Makes a cluster in a temporary folder and starts it.
    pub(crate) async fn start() -> Self {
        let programs = programs();
        let user = user();
        let folder = tempfile::Builder::new().prefix("island-pg-").tempdir().expect("folder").keep();
        if let Some((uid, gid)) = user {
            std::os::unix::fs::chown(&folder, Some(uid), Some(gid)).expect("folder of another user");
        }
        let data = folder.join("data");
        let mut initdb = as_user(&programs.join("initdb"), user);
        initdb.args([
            "--no-sync",
            "--auth=trust",
            "--encoding=UTF8",
            "--locale=C",
            "--username=island",
            "-D",
        ]);
        let made = initdb.arg(&data).current_dir(&folder).output().expect("initdb starts");
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));

        let log = fs::File::create(folder.join("log")).expect("log");
        let mut guard = as_user(Path::new("/bin/sh"), user);
        guard.args(["-c", GUARD, "guard"]).arg(&folder).arg(programs.join("postgres")).arg("-D").arg(&data);
        let socket = format!("unix_socket_directories={}", folder.display());
        for setting in [
            "listen_addresses=",
            &socket,
            "fsync=off",
            "full_page_writes=off",
            "shared_buffers=16MB",
            "wal_level=minimal",
            "max_wal_senders=0",
        ] {
            guard.args(["-c", setting]);
        }
        let guard = guard
            .current_dir(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("the guard starts");
        let server = Self { folder, _guard: guard };
        server.answers().await;
        server
    }

    async fn answers(&self) {
        sqlx::any::install_default_drivers();
        let asked = async {
            while AnyConnection::connect(&self.url("postgres")).await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        soon("an answer of PostgreSQL", asked).await;
    }

    /// Where a database is.
    pub(crate) fn url(&self, database: &str) -> String {
        format!("postgres://island@localhost/{database}?host={}", self.folder.display())
    }
}

/// `ISLAND_POSTGRES_BIN`, else the newest version that the distribution installed, else the search path.
fn programs() -> PathBuf {
    if let Some(folder) = env::var_os("ISLAND_POSTGRES_BIN") {
        return folder.into();
    }
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut installed: Vec<(u32, PathBuf)> = versions
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .collect();
    installed.sort();
    let search = env::var_os("PATH").unwrap_or_default();
    let folders = installed.into_iter().rev().map(|(_, folder)| folder).chain(env::split_paths(&search));
    let found = folders.into_iter().find(|folder| folder.join("initdb").is_file());
    found.expect("PostgreSQL is missing: run `scripts/setup.sh test`, or set ISLAND_POSTGRES_BIN to the folder of initdb")
}

/// Whom to become: PostgreSQL refuses to run as root.
fn user() -> Option<(u32, u32)> {
    let own = fs::metadata("/proc/self").expect("own process").uid();
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let of = |name: &str| {
        let line = users.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        let mut fields = line.split(':').skip(1);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    (own == 0).then(|| of("postgres").or_else(|| of("nobody")).expect("a user to run PostgreSQL as"))
}

fn as_user(program: &Path, user: Option<(u32, u32)>) -> Command {
    let mut command = Command::new(program);
    if let Some((uid, gid)) = user {
        command.uid(uid).gid(gid);
    }
    command
}
