//! `island dev`: a whole network on this machine, in the foreground.
//!
//! Children are started in the order in which they need each other and stopped in the reverse order: Islands, the
//! coordinator, NATS. Each has one owner, [`child::Spec::supervise`]; this module awaits them all.
//!
//! | what ends it | what ends its children |
//! | --- | --- |
//! | Ctrl-C, SIGTERM, SIGHUP | it stops them in order |
//! | SIGKILL, a crash | each gets SIGTERM from the kernel ([`launch`]) |
//! | SIGKILL, together with a child | the next start on the folder ends what is left ([`leftovers`]) |

mod child;
mod launch;
mod layout;
mod leftovers;
mod ports;
mod process;
mod programs;

use std::{convert::Infallible, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context, Result, bail};
use island_coordinator_client::{Client, api::HostView, protocol::host::SandboxLevel};
use rustix::process::geteuid;
use serde_json::json;
use tokio::{
    process::Command,
    task::{JoinHandle, LocalSet, spawn_local},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

pub(crate) use self::launch::become_child;
use self::{
    child::{Log, Spec},
    layout::{Accounts, DevInfo, Layout},
    programs::Programs,
};
use crate::{
    args::Dev,
    output::Output,
    settings::{Settings, island_home},
    signals::Signals,
};

/// How long a part gets to answer after its start. Generous: a debug build on a busy machine is slow.
const START_LIMIT: Duration = Duration::from_mins(1);
/// Credits the consumer's account begins with.
const DEV_CREDITS: &str = "10000";

/// How long a worker gets to stop before it is killed.
const WORKER_GRACE: Duration = Duration::from_secs(10);

/// How long a part gets to stop before it is killed.
fn grace(name: &str) -> Duration {
    match name {
        "nats-server" => Duration::from_secs(10),
        "coordinator" => Duration::from_secs(20),
        // An Island lets its jobs finish.
        _ => Duration::from_secs(45),
    }
}

/// Starts everything, prints how to reach it, and waits for a signal.
pub(crate) async fn run(options: Dev, settings: &Settings, output: &Output) -> Result<ExitCode> {
    let nats_url = settings.nats_url.clone();
    let root = match &options.data_dir {
        Some(root) => root.clone(),
        None => island_home()?.join("dev"),
    };
    let layout = Layout::open(&root)?;
    layout.remove_info();
    let mut network = Network {
        programs: Programs::find(&options, nats_url.is_some())?,
        layout,
        allow_plaintext: settings.allow_plaintext,
        parts: Vec::new(),
    };
    let mut signals = Signals::new()?;
    // Tasks of this set run on the main thread. A child ends with the thread that started it, and that one lives longest.
    let main_thread = LocalSet::new();
    let ended = main_thread.run_until(async {
        let ended = tokio::select! {
            biased;
            _ = signals.asked_to_stop() => Ok(()),
            ended = network.serve(&options, nats_url, output) => ended.map(|never| match never {}),
        };
        network.layout.remove_info();
        output.note("stopping");
        network.stop(output).await;
        ended
    });
    ended.await.map(|()| ExitCode::SUCCESS)
}

fn announce(info: &DevInfo, layout: &Layout, output: &Output) -> Result<()> {
    layout.write_info(info)?;
    if output.is_json() {
        return output.json_line(info);
    }
    let islands = info.host_ids.len();
    let plural = if islands == 1 { "" } else { "s" };
    output.line(&format!("ready: {} with {islands} Island{plural}; Ctrl-C stops it", info.api_url))?;
    output.note(&format!(
        "in another terminal:\n  export SERVICE_API_URL={} SERVICE_API_KEY={}\n  {} chat \"What is Island?\"\nlogs: {}",
        info.api_url,
        info.api_key,
        programs::own_command(),
        layout.root().join("logs").display()
    ));
    Ok(())
}

/// Prints a link to the console; a network may have none.
async fn announce_console(info: &DevInfo, output: &Output) {
    let Ok(client) = Client::new(&info.api_url, Some(info.api_key.clone())) else { return };
    if let Ok(link) = client.sign_in_link().await {
        output.note(&format!("console, signed in once: {}", client.console_address(&link)));
    }
}

/// Returns the lowest sandbox level of the Islands, and warns if jobs are confined less than completely or not accepted because of it.
fn sandbox(hosts: &[HostView], allowed: bool, output: &Output) -> Option<SandboxLevel> {
    let reports = hosts.iter().filter_map(|host| Some(&host.capabilities.as_ref()?.sandbox));
    let lowest = reports.min_by_key(|report| report.level)?;
    if lowest.level < SandboxLevel::Full {
        let missing = lowest.missing.join(", ");
        output.warn(&if allowed {
            format!("this machine cannot confine jobs completely ({missing}); they run all the same")
        } else {
            format!(
                "this machine cannot confine jobs completely ({missing}), so its Islands accept none; \
                 --allow-weak-sandbox runs them all the same"
            )
        });
    }
    Some(lowest.level)
}

/// One supervised child.
struct Part {
    name: String,
    log: Log,
    stop: CancellationToken,
    task: JoinHandle<Result<()>>,
}

struct Ports {
    nats: u16,
    api: u16,
}

struct Network {
    programs: Programs,
    layout: Layout,
    /// Whether Islands use the fabric without encryption if it is on another machine.
    allow_plaintext: bool,
    parts: Vec<Part>,
}

impl Network {
    /// Starts everything and keeps it running. Returns only why that is not possible.
    async fn serve(
        &mut self,
        options: &Dev,
        nats_url: Option<String>,
        output: &Output,
    ) -> Result<Infallible> {
        leftovers::end(&self.layout, output).await?;
        let info = self.start(options, nats_url, output).await?;
        announce(&info, &self.layout, output)?;
        announce_console(&info, output).await;
        Err(self.first_failure().await)
    }

    async fn start(&mut self, options: &Dev, nats_url: Option<String>, output: &Output) -> Result<DevInfo> {
        let progress = output.progress("starting NATS");
        let ports = Ports {
            nats: ports::choose(options.nats_port, "NATS")?,
            api: ports::choose(options.api_port, "the HTTP API")?,
        };
        let nats_url = nats_url.unwrap_or_else(|| format!("nats://127.0.0.1:{}", ports.nats));
        let config = self.configure(options, &ports, &nats_url).await?;
        self.start_nats(ports.nats).await?;
        progress.set_message("starting the coordinator");
        let api_url = self.start_coordinator(config, ports.api).await?;
        let accounts =
            self.layout.accounts()?.context("accounts were made before the coordinator started")?;
        let client = Client::new(&api_url, Some(accounts.consumer_key.clone()))?;
        let islands = if options.no_island { 0 } else { options.islands };
        for index in 1..=islands {
            progress.set_message(&format!("starting Island {index} of {islands}"));
            self.start_island(index, &api_url, options, &accounts)?;
        }
        progress.set_message("waiting for the Islands to come online");
        let hosts = self.wait_for_islands(&client, islands as usize).await?;
        let sandbox = sandbox(&hosts, options.allow_weak_sandbox, output);
        let host_ids: Vec<_> = hosts.iter().map(|host| host.id.to_string()).collect();
        Ok(DevInfo {
            api_url,
            api_key: accounts.consumer_key,
            nats_url,
            host_id: host_ids.first().cloned(),
            host_ids,
            sandbox,
        })
    }

    /// Writes the coordinator's settings, keys and NATS' settings, and returns the path of the first.
    async fn configure(&self, options: &Dev, ports: &Ports, nats_url: &str) -> Result<String> {
        let limit = |usual: u64| if options.no_limits { 0 } else { usual };
        let config = json!({
            "http": { "listen": format!("127.0.0.1:{}", ports.api) },
            "database": { "path": self.layout.root().join("coordinator.sqlite") },
            "fabric": { "url": nats_url, "dir": self.layout.fabric() },
            "nats": {
                "listen": format!("127.0.0.1:{}", ports.nats),
                "store_dir": self.layout.root().join("nats"),
            },
            "catalogue": { "dir": self.programs.cargos, "fixtures": options.fixtures },
            "limits": {
                "requests_per_minute": limit(100),
                "concurrent_jobs": limit(10),
                "concurrent_streams": limit(5),
            },
        });
        self.layout.write("coordinator.toml", &toml::to_string(&config)?)?;
        let config = self.layout.root().join("coordinator.toml").display().to_string();
        let mut init = Command::new(&self.programs.coordinator);
        init.args(["--config", &config, "init"]);
        run_to_end(init, "make the fabric's keys").await?;
        Ok(config)
    }

    /// Starts NATS, unless the user has a server of their own.
    async fn start_nats(&mut self, port: u16) -> Result<()> {
        let Some(program) = self.programs.nats_server.clone() else { return Ok(()) };
        let config = self.layout.fabric().join("nats.conf").display().to_string();
        self.supervise("nats-server", program, vec!["-c".into(), config]);
        self.wait_until("nats-server", || async move {
            tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok().then_some(())
        })
        .await
    }

    async fn start_coordinator(&mut self, config: String, port: u16) -> Result<String> {
        self.make_accounts(&config).await?;
        let program = self.programs.coordinator.clone();
        let arguments = vec!["--config".into(), config, "serve".into()];
        self.supervise("coordinator", program, arguments);
        let api_url = format!("http://127.0.0.1:{port}");
        let client = Client::new(&api_url, None)?;
        self.wait_until("coordinator", || {
            let client = client.clone();
            async move { client.health().await.ok().filter(|health| health.status == "ok").map(|_| ()) }
        })
        .await?;
        Ok(api_url)
    }

    /// The consumer, who is operator too, and the Islands' owner: two accounts, so that charges are visible.
    async fn make_accounts(&self, config: &str) -> Result<()> {
        if self.layout.accounts()?.is_some() {
            return Ok(());
        }
        let consumer = ["--operator", "--credits", DEV_CREDITS];
        let accounts = Accounts {
            consumer_key: self.make_account(config, "dev@island.localhost", &consumer).await?,
            owner_key: self.make_account(config, "owner@island.localhost", &["--credits", "0"]).await?,
        };
        self.layout.write_accounts(&accounts)
    }

    /// A key of the account with this e-mail address, which an earlier start may have made: one that was interrupted has
    /// recorded no key.
    async fn make_account(&self, config: &str, email: &str, options: &[&str]) -> Result<String> {
        let mut create = Command::new(&self.programs.coordinator);
        create.args(["--config", config, "admin", "account", "create", "--email", email]).args(options);
        let created = run_to_end(create, "make an account").await;
        let mut key = Command::new(&self.programs.coordinator);
        key.args(["--config", config, "admin", "key", "create", "--account", email, "--name", "island dev"]);
        match (created, run_to_end(key, "make an API key").await) {
            (Err(error), Err(_)) => Err(error),
            (_, key) => Ok(key?.trim().to_owned()),
        }
    }

    fn start_island(&mut self, index: u32, api_url: &str, options: &Dev, accounts: &Accounts) -> Result<()> {
        let folder = self.layout.island(index);
        std::fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
        let config = json!({
            "state_dir": folder,
            "api_url": api_url,
            "api_key": accounts.owner_key,
            "name": format!("dev-{index}"),
            "allow_plaintext": self.allow_plaintext,
            "allow_weak_sandbox": options.allow_weak_sandbox,
            "simulated": options.fixtures,
            // Islands of one machine share one store: a model is fetched once.
            "cache": { "dir": self.layout.root().join("cache") },
        });
        let name = format!("island-{index}");
        let file = format!("{name}.toml");
        self.layout.write(&file, &toml::to_string(&config)?)?;
        let config = self.layout.root().join(file).display().to_string();
        let program = self.programs.agent.clone();
        let arguments = vec!["--config".into(), config, "run".into()];
        self.supervise(&name, program, arguments);
        Ok(())
    }

    async fn wait_for_islands(&mut self, client: &Client, wanted: usize) -> Result<Vec<HostView>> {
        self.wait_until("Island", || async move {
            let hosts = client.hosts().await.ok()?;
            let mut online: Vec<_> = hosts.into_iter().filter(|host| host.status == "online").collect();
            online.sort_by(|a, b| a.name.cmp(&b.name));
            (online.len() >= wanted).then_some(online)
        })
        .await
    }

    fn supervise(&mut self, name: &str, program: PathBuf, arguments: Vec<String>) {
        let log = Log::new(self.layout.log(name));
        let spec = Spec {
            name: name.to_owned(),
            program,
            arguments,
            log: log.clone(),
            pid_file: self.layout.pid(name),
            grace: grace(name),
        };
        let stop = CancellationToken::new();
        let task = spawn_local(spec.supervise(stop.clone()));
        self.parts.push(Part { name: name.to_owned(), log, stop, task });
    }

    /// Asks again and again until there is an answer, a child has been given up, or time is over.
    async fn wait_until<T, F: Future<Output = Option<T>>>(
        &mut self,
        what: &str,
        mut ask: impl FnMut() -> F,
    ) -> Result<T> {
        let end = Instant::now() + START_LIMIT;
        loop {
            if let Some(answer) = ask().await {
                return Ok(answer);
            }
            if self.parts.iter().any(|part| part.task.is_finished()) {
                return Err(self.first_failure().await);
            }
            if Instant::now() > end {
                let log = self.parts.last().map(|part| part.log.tail()).unwrap_or_default();
                bail!("{what} did not answer; its log ends with:\n{log}");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Resolves when a child cannot be kept running.
    async fn first_failure(&mut self) -> anyhow::Error {
        loop {
            if let Some(at) = self.parts.iter().position(|part| part.task.is_finished()) {
                let part = self.parts.remove(at);
                return match part.task.await {
                    Ok(Err(error)) => error,
                    Ok(Ok(())) => anyhow::anyhow!("{} exited unexpectedly", part.name),
                    Err(panic) => anyhow::Error::new(panic).context(format!("supervise {}", part.name)),
                };
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Stops Islands together, with the workers that one of them could not stop, then the coordinator, then NATS.
    async fn stop(&mut self, output: &Output) {
        let (islands, rest): (Vec<Part>, Vec<Part>) =
            self.parts.drain(..).partition(|part| part.name.starts_with("island-"));
        for part in &islands {
            part.stop.cancel();
        }
        for part in islands {
            finish(part, output).await;
        }
        if let Err(error) = leftovers::end_workers(self.layout.root()).await {
            output.warn(&format!("{error:#}"));
        }
        for part in rest.into_iter().rev() {
            part.stop.cancel();
            finish(part, output).await;
        }
    }
}

async fn finish(part: Part, output: &Output) {
    match part.task.await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => output.warn(&format!("{error:#}")),
        Err(panic) => output.warn(&format!("supervising {} failed: {panic}", part.name)),
    }
}

/// Runs a program to its end and returns its output.
async fn run_to_end(mut command: Command, what: &str) -> Result<String> {
    let result = command.output().await.with_context(|| format!("{what} as user {}", geteuid().as_raw()))?;
    if !result.status.success() {
        bail!("{what}: {}", String::from_utf8_lossy(&result.stderr).trim());
    }
    String::from_utf8(result.stdout).with_context(|| format!("{what}: the answer is not text"))
}
