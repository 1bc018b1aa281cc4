//! llama-server, the peer of the decode benchmarks.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use super::{Room, free_port};
use crate::load::Target;

/// llama-server on the same model.
#[derive(Debug)]
pub(crate) struct LlamaServer {
    child: Child,
    port: u16,
}

impl LlamaServer {
    pub(crate) async fn start(
        program: &Path,
        model: &Path,
        threads: u32,
        room: Room,
        options: &[&str],
    ) -> Result<Self> {
        let port = free_port()?;
        let child = Command::new(program)
            .args(["--host", "127.0.0.1", "--port", &port.to_string(), "-t", &threads.to_string()])
            .args(["-np", &room.slots.to_string(), "-c", &(room.slots * room.context).to_string()])
            .args(options)
            .arg("-m")
            .arg(model)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("start {}", program.display()))?;
        let server = Self { child, port };
        let health = format!("http://127.0.0.1:{port}/health");
        let end = Instant::now() + Duration::from_mins(2);
        while !reqwest::get(&health).await.is_ok_and(|answer| answer.status().is_success()) {
            if Instant::now() > end {
                bail!("llama-server did not start");
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(server)
    }

    pub(crate) fn target(&self) -> Result<Target> {
        Target::new(format!("http://127.0.0.1:{}/v1/chat/completions", self.port), "none", "bench")
    }
}

impl Drop for LlamaServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
