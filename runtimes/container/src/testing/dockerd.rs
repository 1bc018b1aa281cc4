//! A Docker daemon in a folder of its own. Nothing of it outlives the test: not the daemon, its containers, its mounts or its folder.

use std::{
    io,
    os::fd::AsFd as _,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use tempfile::TempDir;
use tokio::{
    process::{Child, Command},
    time::{Instant, sleep, timeout},
};

/// Time for the daemon to answer.
const PATIENCE: Duration = Duration::from_mins(1);
/// Time for the clean-up.
const CLEAN_UP: Duration = Duration::from_mins(1);

/// Runs the daemon until standard input is closed, which also happens when the test is killed; then removes everything. With a second
/// argument, the network namespace of the script gets these addresses.
const SCRIPT: &str = r#"
root=$1; addresses=$2; shift 2
if [ -n "$addresses" ]; then
    ip link set lo up
    for address in $addresses; do ip address add "$address/32" dev lo; done
fi
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

/// Addresses of the host in the namespace of [`Dockerd::start_with_bridge`]: of a private network, and of a cloud's metadata service.
pub const HOST_ADDRESSES: [&str; 2] = ["10.0.0.1", "169.254.169.254"];
/// Address of the host on the daemon's bridge.
pub const BRIDGE_ADDRESS: &str = "172.31.255.1";

/// A running daemon.
#[derive(Debug)]
pub struct Dockerd {
    root: PathBuf,
    keeper: Child,
}

impl Dockerd {
    /// Starts a daemon without networks, or returns why that is not possible here.
    pub async fn start() -> Result<Self, String> {
        Self::start_in(false).await
    }

    /// Starts a daemon in a network namespace of its own, where its default network is a bridge and the host has [`HOST_ADDRESSES`].
    pub async fn start_with_bridge() -> Result<Self, String> {
        Self::start_in(true).await
    }

    async fn start_in(bridge: bool) -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("a Docker daemon of the test's own needs root".to_owned());
        }
        let binary = ["/usr/bin/dockerd", "/usr/sbin/dockerd", "/usr/local/bin/dockerd"];
        let binary = binary.into_iter().find(|path| Path::new(path).exists());
        let binary = binary.ok_or("there is no dockerd; `scripts/setup.sh test` installs it")?;
        let root = TempDir::with_prefix("dockerd").map_err(|error| format!("make a folder: {error}"))?.keep();
        let mut daemon =
            Self { keeper: keep(&root, binary, bridge).map_err(|error| error.to_string())?, root };
        match daemon.wait().await {
            Ok(()) => Ok(daemon),
            Err(reason) => {
                let log = std::fs::read_to_string(daemon.root.join("log")).unwrap_or_default();
                daemon.stop().await;
                let last: Vec<_> = log.lines().rev().take(3).collect();
                Err(format!("{reason}; the end of its log: {}", last.join(" / ")))
            }
        }
    }

    /// Opens a listener on every address of the daemon's network namespace.
    pub fn listen(&self) -> io::Result<std::net::TcpListener> {
        let namespace =
            std::fs::File::open(format!("/proc/{}/ns/net", self.keeper.id().unwrap_or_default()))?;
        // A thread of its own, because a thread stays in the namespace that it enters. The socket belongs to the namespace of its creation.
        let opened = std::thread::spawn(move || {
            rustix::thread::move_into_link_name_space(
                namespace.as_fd(),
                Some(rustix::thread::LinkNameSpaceType::Network),
            )?;
            std::net::TcpListener::bind("[::]:0")
        });
        opened.join().expect("the thread does not panic")
    }

    /// Its socket.
    pub fn socket(&self) -> PathBuf {
        self.root.join("s")
    }

    /// Its log.
    pub fn log(&self) -> PathBuf {
        self.root.join("log")
    }

    /// Ends it and removes everything.
    pub async fn stop(mut self) {
        drop(self.keeper.stdin.take());
        if timeout(CLEAN_UP, self.keeper.wait()).await.is_err() {
            eprintln!("the test's Docker daemon in {} does not exit", self.root.display());
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

fn keep(root: &Path, binary: &str, bridge: bool) -> io::Result<Child> {
    let at = |name: &str| root.join(name).display().to_string();
    let mut keeper = if bridge { Command::new("unshare") } else { Command::new("/bin/sh") };
    if bridge {
        keeper.args(["--net", "/bin/sh"]);
    }
    let addresses = if bridge { HOST_ADDRESSES.join(" ") } else { String::new() };
    let network = if bridge { format!("--bip={BRIDGE_ADDRESS}/24") } else { "--bridge=none".to_owned() };
    keeper
        .args(["-c", SCRIPT, "keeper"])
        .arg(root)
        .arg(addresses)
        .arg(binary)
        .args(["--host", &format!("unix://{}", at("s"))])
        .args(["--data-root", &at("data"), "--exec-root", &at("exec"), "--pidfile", &at("pid")])
        // Setting the default score and limits may not be allowed here.
        .args(["--oom-score-adjust", "0", "--default-ulimit", "nofile=1024:1024"])
        .args(["--iptables=false", "--ip6tables=false", &network])
        .args(["--shutdown-timeout", "1"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
}
