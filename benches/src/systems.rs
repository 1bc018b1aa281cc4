//! What is measured. Each system is a process of its own, started here and stopped when dropped.

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tempfile::TempDir;

use crate::load::Target;

/// An `island dev` with one extra Cargo over a given model file.
#[derive(Debug)]
pub(crate) struct Network {
    dev: Child,
    _folder: TempDir,
    api_url: String,
    api_key: String,
}

impl Network {
    /// Starts it; `model` becomes the Cargo `bench-model`.
    pub(crate) async fn start(model: Option<&Path>) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("islb").tempdir()?;
        let cargos = folder.path().join("cargos");
        fs::create_dir_all(cargos.join("fixtures"))?;
        let tree = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the workspace")?;
        fs::copy(tree.join("cargos/fixtures/sim-chat.toml"), cargos.join("fixtures/sim-chat.toml"))?;
        if let Some(model) = model {
            fs::write(cargos.join("bench-model.toml"), cargo_file(model)?)?;
        }
        let data = folder.path().join("data");
        let dev = Command::new(program("island")?)
            .args(["dev", "--fixtures", "--no-limits", "--data-dir"])
            .arg(&data)
            .arg("--cargos")
            .arg(&cargos)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("start `island dev`")?;
        let mut network = Self { dev, _folder: folder, api_url: String::new(), api_key: String::new() };
        let info: Value = serde_json::from_str(&network.wait_for(&data.join("dev.json")).await?)?;
        network.api_url = info["api_url"].as_str().context("api_url")?.to_owned();
        network.api_key = info["api_key"].as_str().context("api_key")?.to_owned();
        Ok(network)
    }

    async fn wait_for(&mut self, path: &Path) -> Result<String> {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            if let Ok(text) = fs::read_to_string(path) {
                return Ok(text);
            }
            if self.dev.try_wait()?.is_some() || Instant::now() > end {
                bail!("`island dev` did not start");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub(crate) fn target(&self, model: &str) -> Result<Target> {
        Target::new(format!("{}/api/v1/chat/completions", self.api_url), &self.api_key, model)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // SIGTERM, so that it stops its own children; the standard library only knows SIGKILL.
        let _ = Command::new("kill").arg(self.dev.id().to_string()).status();
        let _ = self.dev.wait();
    }
}

/// llama-server on the same model.
#[derive(Debug)]
pub(crate) struct LlamaServer {
    child: Child,
    port: u16,
}

impl LlamaServer {
    pub(crate) async fn start(program: &Path, model: &Path, threads: u32, slots: u32) -> Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let child = Command::new(program)
            .args(["--host", "127.0.0.1", "--port", &port.to_string(), "-t", &threads.to_string()])
            .args(["-np", &slots.to_string(), "-c", &(slots * 1024).to_string(), "-m"])
            .arg(model)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("start {}", program.display()))?;
        let server = Self { child, port };
        let health = format!("http://127.0.0.1:{port}/health");
        let end = Instant::now() + Duration::from_secs(120);
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

/// A bare llama.cpp loop on the same model: decode calls and nothing else. Gives tokens per second.
pub(crate) fn bare_loop(model: &Path, threads: u32, streams: usize, tokens: u64) -> Result<f64> {
    let result = Command::new(program("examples/bare_loop")?)
        .arg(model)
        .args([threads.to_string(), streams.to_string(), tokens.to_string()])
        .stderr(Stdio::null())
        .output()
        .context("run the bare loop")?;
    let text = String::from_utf8(result.stdout)?;
    text.trim().parse().with_context(|| format!("the bare loop printed {text:?}"))
}

fn program(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let path = own.parent().context("this program lies in a folder")?.join(name);
    if !path.is_file() {
        bail!("{} is not built: `cargo build --workspace --all-targets`", path.display());
    }
    Ok(path)
}

fn cargo_file(model: &Path) -> Result<String> {
    let url = format!("file://{}", model.canonicalize()?.display());
    let mb = fs::metadata(model)?.len() / 1_000_000 + 600;
    Ok(format!(
        r#"slug = "bench-model"
name = "Benchmark model"
description = "A file with the shape of a real model."
category = "llm"
runtime_type = "llmcpp"
price_per_job = 0.001
required_vram_mb = 0
required_ram_mb = {mb}
model_url = "{url}"

[limits]
max_tokens = 1024
context_tokens = 1024

[input_schema]
type = "object"

[input_schema.properties]
messages = {{ type = "array" }}
max_tokens = {{ type = "integer" }}
temperature = {{ type = "number" }}

[output_schema]
type = "string"

[example.input]
messages = []
"#
    ))
}
