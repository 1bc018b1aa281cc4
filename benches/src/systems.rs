//! What is measured. Each system is a process of its own, started here and stopped when dropped.

mod llama_server;

pub(crate) use llama_server::LlamaServer;

use std::{
    ffi::OsStr,
    fs,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tempfile::TempDir;

use crate::{load::Target, tree};

/// Places for jobs, tokens of context for each, and processor threads of a worker (0: all).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    pub(crate) slots: u32,
    pub(crate) context: u32,
    pub(crate) threads: u32,
}

/// An `island dev` with two extra Cargos over a given model file: `bench-model`, and `bench-plain`, which guesses no tokens.
#[derive(Debug)]
pub(crate) struct Network {
    dev: Child,
    folder: TempDir,
    /// Agents of further Islands.
    agents: Vec<Child>,
    api_url: String,
    api_key: String,
    http: reqwest::Client,
}

impl Network {
    /// Starts it with the simulated engine alone.
    pub(crate) async fn start() -> Result<Self> {
        Self::start_with(None, None, &[]).await
    }

    /// Starts it without an Island.
    pub(crate) async fn start_without_islands() -> Result<Self> {
        Self::start_by(&["--no-island"], None, None, &[]).await
    }

    /// Starts one whose Cargo `bench-model` is the model.
    pub(crate) async fn start_with_model(model: &Path, room: Room) -> Result<Self> {
        let settings = [
            ("ISLAND_AGENT_WORKERS__SLOTS_PER_MODEL", room.slots.to_string()),
            ("ISLAND_AGENT_WORKERS__THREADS", room.threads.to_string()),
        ];
        let settings = settings.each_ref().map(|(name, value)| (*name, value.as_str()));
        Self::start_with(Some((model, room)), None, &settings).await
    }

    /// Starts one whose Island runs another build of the agent, with the workers that lie beside this program.
    pub(crate) async fn start_with_agent(agent: &Path) -> Result<Self> {
        let workers = program("island")?.parent().context("it lies in a folder")?.to_owned();
        let workers = workers.to_str().context("a path that is text")?;
        Self::start_with(None, Some(agent), &[("ISLAND_AGENT_WORKERS__BIN_DIR", workers)]).await
    }

    /// Starts one whose Island takes hundreds of jobs at once; `sim-at-once` is the simulated engine without delays.
    pub(crate) async fn start_for_many() -> Result<Self> {
        let slots =
            [("ISLAND_AGENT_WORKERS__SLOTS_PER_MODEL", "600"), ("ISLAND_AGENT_WORKERS__MAX_JOBS", "1200")];
        Self::start_with(None, None, &slots).await
    }

    async fn start_with(
        model: Option<(&Path, Room)>,
        agent: Option<&Path>,
        settings: &[(&str, &str)],
    ) -> Result<Self> {
        Self::start_by(&[], model, agent, settings).await
    }

    async fn start_by(
        arguments: &[&str],
        model: Option<(&Path, Room)>,
        agent: Option<&Path>,
        settings: &[(&str, &str)],
    ) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("islb").tempdir()?;
        let cargos = folder.path().join("cargos");
        fs::create_dir_all(cargos.join("fixtures"))?;
        let tree = tree::source("")?;
        let simulated = fs::read_to_string(tree.join("cargos/fixtures/sim-chat.toml"))?;
        let at_once =
            simulated.replace("\"sim-chat\"", "\"sim-at-once\"").replace("\ndelay_ms = 20", "\ndelay_ms = 0");
        fs::write(cargos.join("fixtures/sim-chat.toml"), simulated)?;
        fs::write(cargos.join("fixtures/sim-at-once.toml"), at_once)?;
        if let Some((model, room)) = model {
            let cargo = cargo_file(model, room)?;
            let plain = cargo.replace("\"bench-model\"", "\"bench-plain\"") + "\n[engine]\ndrafts = false\n";
            fs::write(cargos.join("bench-model.toml"), cargo)?;
            fs::write(cargos.join("bench-plain.toml"), plain)?;
        }
        let data = folder.path().join("data");
        let dev = Command::new(program("island")?)
            .args(["dev", "--fixtures", "--no-limits", "--data-dir"])
            .arg(&data)
            .args(arguments)
            .arg("--cargos")
            .arg(&cargos)
            .args(agent.map(|agent| [OsStr::new("--agent"), agent.as_os_str()]).into_iter().flatten())
            .envs(settings.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("start `island dev`")?;
        let http = reqwest::Client::new();
        let mut network =
            Self { dev, folder, agents: Vec::new(), api_url: String::new(), api_key: String::new(), http };
        let info: Value = serde_json::from_str(&network.wait_for(&data.join("dev.json")).await?)?;
        info["api_url"].as_str().context("api_url")?.clone_into(&mut network.api_url);
        info["api_key"].as_str().context("api_key")?.clone_into(&mut network.api_key);
        Ok(network)
    }

    async fn wait_for(&mut self, path: &Path) -> Result<String> {
        let end = Instant::now() + Duration::from_mins(1);
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

    /// Starts further Islands on this machine, which share its folder of models.
    pub(crate) async fn add_islands(&mut self, count: usize, room: Room) -> Result<()> {
        for number in 0..count {
            let state = self.folder.path().join(format!("island-{number}"));
            fs::create_dir_all(&state)?;
            let settings = state.join("agent.toml");
            let (url, key, dir) = (&self.api_url, &self.api_key, state.display());
            let text = format!(
                "state_dir = \"{dir}\"\napi_url = \"{url}\"\napi_key = \"{key}\"\nname = \"island-{number}\"\n\
                 measure = false\n[cache]\ndir = \"{dir}/cache\"\n[workers]\nslots_per_model = {}\nthreads = {}\n",
                room.slots, room.threads
            );
            fs::write(&settings, text)?;
            let agent = Command::new(program("island-agent")?)
                .arg("--config")
                .arg(&settings)
                .arg("run")
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .context("start an agent")?;
            self.agents.push(agent);
        }
        let end = Instant::now() + Duration::from_mins(1);
        let online = async |network: &Self| -> Result<usize> {
            let hosts = network.get("/hosts").await?;
            let hosts = hosts["data"].as_array().map(Vec::as_slice).unwrap_or_default();
            Ok(hosts.iter().filter(|host| host["status"] == "online").count())
        };
        while online(self).await? <= count {
            anyhow::ensure!(Instant::now() < end, "not all Islands joined");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        Ok(())
    }

    /// Number of its Islands that have a worker with a language model.
    pub(crate) fn warm_islands(&self) -> Result<usize> {
        let mut warm = 0;
        let agents = self.agents.iter().map(Child::id);
        for parent in agents.chain(children(self.dev.id())?) {
            warm += usize::from(!workers_of(parent)?.is_empty());
        }
        Ok(warm)
    }

    /// Where it keeps its files.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// File of its coordinator's database.
    pub(crate) fn database(&self) -> PathBuf {
        self.folder.path().join("data/coordinator.sqlite")
    }

    /// Answer to a request of its account.
    pub(crate) async fn get(&self, path: &str) -> Result<Value> {
        let request = self.http.get(format!("{}/api/v1{path}", self.api_url)).bearer_auth(&self.api_key);
        Ok(request.send().await?.error_for_status()?.json().await?)
    }

    /// Id of its Island, once it is known to the coordinator.
    pub(crate) async fn island(&self) -> Result<String> {
        let end = Instant::now() + Duration::from_mins(1);
        loop {
            if let Some(id) = self.get("/hosts").await?["data"][0]["id"].as_str() {
                return Ok(id.to_owned());
            }
            anyhow::ensure!(Instant::now() < end, "no Island enrolled");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// The process that runs all of it.
    pub(crate) fn process(&self) -> u32 {
        self.dev.id()
    }

    /// Address of the API and the console.
    pub(crate) fn api_url(&self) -> &str {
        &self.api_url
    }

    /// A key of the consumer.
    pub(crate) fn api_key(&self) -> &str {
        &self.api_key
    }

    pub(crate) fn target(&self, model: &str) -> Result<Target> {
        Target::new(format!("{}/api/v1/chat/completions", self.api_url), &self.api_key, model)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for agent in &mut self.agents {
            let _ = Command::new("kill").arg(agent.id().to_string()).status();
            let _ = agent.wait();
        }
        // SIGTERM, so that it stops its own children; the standard library only knows SIGKILL.
        let _ = Command::new("kill").arg(self.dev.id().to_string()).status();
        let _ = self.dev.wait();
    }
}

/// Processes that a process started.
fn children(parent: u32) -> Result<Vec<u32>> {
    let tasks = fs::read_dir(format!("/proc/{parent}/task"))?;
    let mut all = Vec::new();
    for task in tasks {
        let text = fs::read_to_string(task?.path().join("children")).unwrap_or_default();
        all.extend(text.split_whitespace().filter_map(|id| id.parse::<u32>().ok()));
    }
    Ok(all)
}

/// Workers with a language model among what an agent started, directly or in a sandbox.
fn workers_of(agent: u32) -> Result<Vec<u32>> {
    let mut found = Vec::new();
    let mut open = children(agent)?;
    while let Some(process) = open.pop() {
        let command = fs::read_to_string(format!("/proc/{process}/cmdline")).unwrap_or_default();
        if command.contains("island-worker-llmcpp") {
            found.push(process);
        }
        open.extend(children(process).unwrap_or_default());
    }
    Ok(found)
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
        bail!("{} is not built: `make bench` builds it", path.display());
    }
    Ok(path)
}

fn cargo_file(model: &Path, room: Room) -> Result<String> {
    let context = room.context;
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
context_tokens = {context}

[input_schema]
type = "object"

[input_schema.properties]
messages = {{ type = "array" }}
max_tokens = {{ type = "integer" }}
temperature = {{ type = "number" }}
response_format = {{ type = "object" }}

[output_schema]
type = "string"

[example.input]
messages = []
"#
    ))
}

/// A proxy before the mock.
#[derive(Debug)]
pub(crate) struct Proxy {
    child: Child,
    port: u16,
    path: &'static str,
    _folder: TempDir,
}

impl Proxy {
    /// nginx with `proxy_pass` and kept connections: the floor for anything that relays HTTP.
    pub(crate) async fn nginx(upstream: SocketAddr) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("islb").tempdir()?;
        let port = free_port()?;
        let path = folder.path().display();
        let config = format!(
            "daemon off; worker_processes 1; pid {path}/pid; error_log {path}/error.log;\n\
             events {{ worker_connections 4096; }}\n\
             http {{ access_log off; client_body_temp_path {path}/body; proxy_temp_path {path}/proxy;\n\
             fastcgi_temp_path {path}/fastcgi; uwsgi_temp_path {path}/uwsgi; scgi_temp_path {path}/scgi;\n\
             upstream mock {{ server {upstream}; keepalive 64; }}\n\
             server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://mock; proxy_http_version 1.1;\n\
             proxy_set_header Connection \"\"; proxy_buffering off; }} }} }}\n"
        );
        let file = folder.path().join("nginx.conf");
        fs::write(&file, config)?;
        let mut command = Command::new("nginx");
        command.arg("-c").arg(&file).arg("-p").arg(folder.path());
        Self::start(command, port, "/v1/chat/completions", folder).await.context("start nginx")
    }

    /// litellm with one worker, as its authors measure it.
    pub(crate) async fn litellm(program: &Path, upstream: SocketAddr) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("islb").tempdir()?;
        let port = free_port()?;
        let model = |name: &str| {
            format!(
                "  - model_name: {name}\n    litellm_params:\n      model: openai/{name}\n      \
                 api_base: http://{upstream}/v1\n      api_key: none\n"
            )
        };
        let file = folder.path().join("config.yaml");
        fs::write(&file, format!("model_list:\n{}{}", model("at-once"), model("paced")))?;
        let mut command = Command::new(program);
        command.arg("--config").arg(&file).args(["--host", "127.0.0.1", "--num_workers", "1", "--port"]);
        command.arg(port.to_string()).env("LITELLM_LOG", "ERROR").env("LITELLM_LOCAL_MODEL_COST_MAP", "True");
        // It serves this machine alone, so it needs no key.
        command.env("LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY", "true");
        Self::start(command, port, "/v1/chat/completions", folder).await.context("start litellm")
    }

    async fn start(mut command: Command, port: u16, path: &'static str, folder: TempDir) -> Result<Self> {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let proxy = Self { child, port, path, _folder: folder };
        let target = proxy.target("at-once")?;
        let end = Instant::now() + Duration::from_secs(90);
        while let Err(error) = target.ask_whole().await {
            if Instant::now() > end {
                return Err(error);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(proxy)
    }

    pub(crate) fn target(&self, model: &str) -> Result<Target> {
        Target::new(format!("http://127.0.0.1:{}{}", self.port, self.path), "none", model)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // SIGTERM, so that it stops its own workers.
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let _ = self.child.wait();
    }
}

pub(crate) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
