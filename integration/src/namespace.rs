//! A machine of its own for a network: addresses besides those of loopback, and names for them.

use std::{
    fmt::Write as _,
    fs,
    net::IpAddr,
    path::Path,
    process::{Child, Command, Output, Stdio},
};

/// Sets the interfaces up, replaces the file of names, and keeps the namespaces until it is killed.
const HOLD: &str = r#"
set -e
mount --bind "$HOSTS" /etc/hosts
ip link set lo up
for address in $ADDRESSES; do ip address add "$address" dev lo; done
echo ready
exec sleep infinity
"#;

/// A network namespace, with the programs that run in it. Dropping it kills them.
#[derive(Debug)]
pub struct Namespace {
    holder: Child,
}

impl Namespace {
    /// Creates a namespace with these names. `folder` gets a file.
    pub fn new(folder: &Path, names: &[(&str, IpAddr)]) -> Self {
        let mut hosts = "127.0.0.1 localhost\n".to_owned();
        for (name, address) in names {
            let _ = writeln!(hosts, "{address} {name}");
        }
        let file = folder.join("hosts");
        fs::write(&file, hosts).expect("write the names");
        let addresses: Vec<String> = names.iter().map(|(_, address)| format!("{address}/32")).collect();
        let mut addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
        addresses.sort_unstable();
        addresses.dedup();
        let mut holder = Command::new("unshare")
            .args([
                if is_root() { "-nmpf" } else { "-Urnmpf" },
                "--kill-child",
                "--mount-proc",
                "sh",
                "-c",
                HOLD,
            ])
            .env("HOSTS", &file)
            .env("ADDRESSES", addresses.join(" "))
            .stdout(Stdio::piped())
            .spawn()
            .expect("run `unshare` of util-linux");
        let mut ready = [0; 6];
        let output = holder.stdout.as_mut().expect("its output");
        std::io::Read::read_exact(output, &mut ready).expect("a namespace");
        Self { holder }
    }

    /// A command in the namespace.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let children = format!("/proc/{0}/task/{0}/children", self.holder.id());
        let children = fs::read_to_string(children).expect("its first process");
        let inside = children.split_whitespace().next().expect("it lives").to_owned();
        let mut command = Command::new("nsenter");
        command.args(["--target", &inside, "--net", "--mount", "--pid"]);
        if !is_root() {
            command.args(["--user", "--preserve-credentials"]);
        }
        command.arg("--").arg(program.as_ref());
        command
    }

    /// Runs a command to its end.
    pub fn run(&self, program: impl AsRef<Path>, arguments: &[&str]) -> Output {
        self.command(program).args(arguments).stdin(Stdio::null()).output().expect("run a program")
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // Everything in the process namespace ends with its first process.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
