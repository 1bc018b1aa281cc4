//! An OpenID Connect provider for tests: that of node's package `oidc-provider`, which confirms every name.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    process::{Child, ChildStdout, Command, Stdio},
};

use crate::workspace;

/// A running provider. It ends with its standard input, also if the test ends without dropping it.
#[derive(Debug)]
pub struct Provider {
    child: Child,
    /// Open as long as the provider may write to it.
    _output: BufReader<ChildStdout>,
}

impl Provider {
    /// Starts a provider at a port, which sends people back to the address `redirect`.
    ///
    /// # Panics
    /// If node or the package is missing.
    pub fn start(port: u16, redirect: &str) -> Self {
        let root = workspace();
        let modules = root.join(".tools/node/node_modules");
        assert!(modules.join("oidc-provider").exists(), "run `scripts/setup.sh test` first");
        let mut command = Command::new("node");
        command.arg(root.join("coordinator/tests/oidc_provider.cjs")).arg(modules).arg(port.to_string());
        command.arg(redirect).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("node starts");
        let mut output = BufReader::new(child.stdout.take().expect("its output"));
        let is_ready = output.by_ref().lines().map_while(Result::ok).any(|line| line == "ready");
        assert!(is_ready, "the provider starts");
        Self { child, _output: output }
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
