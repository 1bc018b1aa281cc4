//! A Docker daemon in a folder of its own. Nothing of it outlives the test: not the daemon, its containers, its mounts or its folder.

use std::{
    io,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use tempfile::TempDir;
use tokio::{
    process::{Child, Command},
    time::{Instant, sleep, timeout},
};

/// For the daemon to answer.
const PATIENCE: Duration = Duration::from_mins(1);
/// For everything to be cleared away.
const FAREWELL: Duration = Duration::from_mins(1);

/// Runs the daemon until standard input is closed, which happens by itself when a test is killed; then clears everything away.
const SCRIPT: &str = r#"
root=$1; shift
trap '' TERM INT HUP
"$@" </dev/null >"$root/log" 2>&1 &
daemon=$!
cat >/dev/null
kill "$daemon" 2>/dev/null
wait "$daemon"
while read -r _ at _; do
    case $at in "$root"/*) umount -l "$at" 2>/dev/null ;; esac
done </proc/mounts
rm -rf "$root"
"#;

/// A running daemon.
#[derive(Debug)]
pub struct Dockerd {
    root: PathBuf,
    keeper: Child,
}

impl Dockerd {
    /// Starts one, or says why that is not possible here.
    pub async fn start() -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("a Docker daemon of the test's own needs root".to_owned());
        }
        let binary = ["/usr/bin/dockerd", "/usr/sbin/dockerd", "/usr/local/bin/dockerd"];
        let binary = binary.into_iter().find(|path| Path::new(path).exists());
        let binary = binary.ok_or("there is no dockerd; `scripts/setup.sh test` installs it")?;
        let root = TempDir::with_prefix("dockerd").map_err(|error| format!("make a folder: {error}"))?.keep();
        let mut daemon = Self { keeper: keep(&root, binary).map_err(|error| error.to_string())?, root };
        match daemon.wait().await {
            Ok(()) => Ok(daemon),
            Err(reason) => {
                let log = std::fs::read_to_string(daemon.root.join("log")).unwrap_or_default();
                daemon.stop().await;
                let last: Vec<_> = log.lines().rev().take(3).collect();
                Err(format!("{reason}; the last it said: {}", last.join(" / ")))
            }
        }
    }

    /// Its socket.
    pub fn socket(&self) -> PathBuf {
        self.root.join("s")
    }

    /// Its log.
    pub fn log(&self) -> PathBuf {
        self.root.join("log")
    }

    /// Ends it and clears everything away.
    pub async fn stop(mut self) {
        drop(self.keeper.stdin.take());
        if timeout(FAREWELL, self.keeper.wait()).await.is_err() {
            eprintln!("the test's Docker daemon in {} does not end", self.root.display());
        }
    }

    async fn wait(&mut self) -> Result<(), String> {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            let Ok(docker) = bollard::Docker::connect_with_unix(
                &self.socket().to_string_lossy(),
                5,
                bollard::API_DEFAULT_VERSION,
            ) else {
                sleep(Duration::from_millis(50)).await;
                continue;
            };
            if docker.ping().await.is_ok() {
                return Ok(());
            }
            sleep(Duration::from_millis(50)).await;
        }
        Err(format!("dockerd did not answer within {} s", PATIENCE.as_secs()))
    }
}

fn keep(root: &Path, binary: &str) -> io::Result<Child> {
    let at = |name: &str| root.join(name).display().to_string();
    Command::new("/bin/sh")
        .args(["-c", SCRIPT, "keeper"])
        .arg(root)
        .arg(binary)
        .args(["--host", &format!("unix://{}", at("s"))])
        .args(["--data-root", &at("data"), "--exec-root", &at("exec"), "--pidfile", &at("pid")])
        // Where the usual score and limits may not be set, they need not be.
        .args(["--oom-score-adjust", "0", "--default-ulimit", "nofile=1024:1024"])
        // No container has a network, so the host's is left alone.
        .args(["--iptables=false", "--ip6tables=false", "--bridge=none"])
        .args(["--shutdown-timeout", "1"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
}
