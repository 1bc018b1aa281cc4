//! Running the program in an empty home.

use std::{
    fmt::Write as _,
    io::Write as _,
    path::Path,
    process::{Command, Output, Stdio},
};

/// How a run ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("text");
        Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }
}

impl Ran {
    /// The run as a terminal's owner would paste it.
    pub(crate) fn transcript(&self, arguments: &[&str], server: &str) -> String {
        let quoted: Vec<String> = arguments
            .iter()
            .map(|argument| {
                if argument.contains([' ', '"', '{', '*']) {
                    format!("'{argument}'")
                } else {
                    (*argument).into()
                }
            })
            .collect();
        let code = self.code.expect("an exit code");
        let mut text = format!("$ island {}\n{}", quoted.join(" "), self.out);
        if !self.err.is_empty() {
            let _ = write!(text, "--- stderr\n{}", self.err);
        }
        if code != 0 {
            let _ = writeln!(text, "--- exit code {code}");
        }
        text.replace(server, "http://coordinator")
    }
}

/// A command that sees nothing of this machine but an empty home.
pub(crate) fn command(home: &Path, variables: &[(&str, &str)], arguments: &[&str]) -> Command {
    // Tests may run where SIGHUP is ignored, which programs inherit.
    let mut command = Command::new("/usr/bin/env");
    if cfg!(target_os = "linux") {
        command.arg("--default-signal=HUP");
    }
    command
        .arg(env!("CARGO_BIN_EXE_island"))
        .args(arguments)
        .env_clear()
        .env("HOME", home)
        .envs(variables.iter().copied());
    command
}

/// Runs without a server and without a home worth the name.
pub(crate) fn alone(arguments: &[&str]) -> Ran {
    let home = tempfile::tempdir().expect("temporary folder");
    command(home.path(), &[], arguments).stdin(Stdio::null()).output().expect("run island").into()
}

/// Runs with `input` on standard input, off the async threads.
pub(crate) async fn run(mut command: Command, input: &str) -> Ran {
    let input = input.to_owned();
    let run = move || {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("start island");
        // It may end without reading.
        let _ = child.stdin.take().expect("piped").write_all(input.as_bytes());
        child.wait_with_output().expect("wait for island").into()
    };
    tokio::task::spawn_blocking(run).await.expect("join")
}
