//! Time from a job to the first output of its container, cold and started ahead, compared with the same steps made with curl.
//!
//! All start the same program from the same image within the same bounds: it reads its input to the end and writes one line. The peer
//! calls the daemon's API directly: create, attach, start, one curl each. Where there is a `docker` command, `docker run --rm` with the
//! same bounds is measured too.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use bollard::{Docker, query_parameters::ListContainersOptionsBuilder};
use island_protocol::{
    cargo::CargoSpec,
    event::AttemptEvent,
    ids::{AttemptKey, InstanceId, JobId},
    job::Outcome,
};
use island_runtimes_api::{EventSink, JobLog, RunContext, RunRequest, Runtime, WorkCounter};
use island_runtimes_container::{
    Containers, Settings,
    body::create_body,
    daemon::Daemon,
    engine_config::EngineConfig,
    labels::{ContainerLabels, ISLAND, Maker},
    resource_limits::ResourceLimits,
    start::Spec,
    testing::{Dockerd, busybox},
};
use island_runtimes_worker::launch::ContainerRules;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::Command,
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    report::{Better, Report},
    stats::percentile,
};

const CLAIM: &str = "Container start";
const PROGRAM: &str = r#"cat >/dev/null; echo '{"type":"token","content":"x"}'; echo '{"type":"done"}'"#;
/// For a program that was started ahead to come to where it reads.
const SETTLED: Duration = Duration::from_millis(200);

/// Measures `rounds` times, the first not counted.
pub(crate) async fn run(rounds: usize) -> Result<Report> {
    let dockerd = match Dockerd::start().await {
        Ok(dockerd) => dockerd,
        Err(reason) => {
            let mut skipped = Report::new(CLAIM, "nothing was measured".to_owned());
            skipped.note(format!("SKIPPED: {reason}"));
            return Ok(skipped);
        }
    };
    let measured = measure(&dockerd.socket(), rounds).await;
    dockerd.stop().await;
    Ok(report(&measured?))
}

#[derive(Default)]
struct Times {
    curl: Vec<f64>,
    run: Vec<f64>,
    cold: Vec<f64>,
    ahead: Vec<f64>,
}

fn report(times: &Times) -> Report {
    let mut report = Report::new(CLAIM, format!("{} rounds", times.curl.len()));
    let (cold, ahead, unit) = ("cold container", "container started ahead", ("ms", Better::Lower));
    report.compare(cold, unit, &times.cold, "create, attach and start by curl", &times.curl);
    report.headline();
    if times.run.is_empty() {
        report.note("`docker run --rm` was not measured: there is no `docker` command here");
    } else {
        report.compare(cold, unit, &times.cold, "docker run --rm", &times.run);
        report.headline();
        report.compare(ahead, unit, &times.ahead, "docker run --rm", &times.run);
        report.headline();
    }
    report.compare(ahead, unit, &times.ahead, "Island, cold container", &times.cold);
    for (name, figures) in [("curl", &times.curl), (cold, &times.cold), (ahead, &times.ahead)] {
        let mut sorted = figures.clone();
        sorted.sort_by(f64::total_cmp);
        report.note(format!("{name}: p99 {:.2} ms", percentile(&sorted, 99.0)));
    }
    report
}

async fn measure(socket: &Path, rounds: usize) -> Result<Times> {
    let bench = Bench::new(socket)?;
    let cold = bench.engine(0).await?;
    let ahead = bench.engine(1).await?;
    // Brings the image, and the first container ahead.
    bench.job(&cold).await?;
    bench.job(&ahead).await?;
    let image = bench.image().await?;
    let mut times = Times::default();
    for round in 0..rounds {
        bench.settle(1).await?;
        let curl = bench.curl(&image).await?;
        bench.settle(1).await?;
        let run = bench.docker_run(&image).await?;
        bench.settle(1).await?;
        let cold = bench.job(&cold).await?;
        bench.settle(1).await?;
        let ahead = bench.job(&ahead).await?;
        if round > 0 {
            times.curl.push(curl);
            times.run.extend(run);
            times.cold.push(cold);
            times.ahead.push(ahead);
        }
    }
    cold.shutdown().await;
    ahead.shutdown().await;
    Ok(times)
}

struct Bench {
    socket: PathBuf,
    docker: Docker,
    folder: tempfile::TempDir,
}

impl Bench {
    fn new(socket: &Path) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let rootfs = busybox().map_err(anyhow::Error::msg)?.finish()?;
        std::fs::write(folder.path().join("image.tar"), rootfs)?;
        let docker = Docker::connect_with_unix(&socket.to_string_lossy(), 60, bollard::API_DEFAULT_VERSION)?;
        Ok(Self { socket: socket.to_owned(), docker, folder })
    }

    async fn engine(&self, ahead: u32) -> Result<Arc<Containers>> {
        let daemon = Daemon::connect(&self.socket).await?;
        let rules = ContainerRules { ahead, ..ContainerRules::default() };
        let settings = Settings { rules, maker: maker(), slots: 1, egress_dir: None, gpus: Vec::new() };
        Ok(Arc::new(Containers::start(daemon, settings)))
    }

    /// Milliseconds from handing a job to the engine to its first token.
    async fn job(&self, engine: &Arc<Containers>) -> Result<f64> {
        let (events, mut received) = EventSink::channel();
        let context = RunContext {
            key: AttemptKey { job_id: JobId(Uuid::now_v7()), attempt: 1, epoch: 1 },
            events,
            cancel: CancellationToken::new(),
            scratch: self.folder.path().to_owned(),
            work: WorkCounter::default(),
            log: JobLog::default(),
        };
        let artifacts = BTreeMap::from([("model".to_owned(), self.folder.path().join("image.tar"))]);
        let request = RunRequest {
            cargo: cargo()?,
            input: json!({}),
            artifacts,
            continues: None,
            continues_reasoning: None,
            scope: String::new(),
        };
        let started = Instant::now();
        let run = engine.run(request, context);
        let first = async {
            while let Some(event) = received.recv().await {
                if matches!(event, AttemptEvent::Token { .. }) {
                    break;
                }
            }
            started.elapsed().as_secs_f64() * 1e3
        };
        let (outcome, first) = tokio::join!(run, first);
        match outcome {
            Outcome::Completed { .. } => Ok(first),
            Outcome::Failed { failure, .. } => bail!("the job failed: {failure:?}"),
        }
    }

    async fn image(&self) -> Result<String> {
        let images = self.docker.list_images(None::<bollard::query_parameters::ListImagesOptions>).await?;
        Ok(images.into_iter().next().context("an image")?.id)
    }

    /// Milliseconds from the first curl to the first byte that the program wrote.
    async fn curl(&self, image: &str) -> Result<f64> {
        let cargo = cargo()?;
        let table = EngineConfig::of(&cargo).map_err(|failure| anyhow::anyhow!(failure.message))?;
        let grant = ResourceLimits::of(&cargo, &table, &ContainerRules::default(), None);
        let grant = grant.map_err(|failure| anyhow::anyhow!(failure.message))?;
        let maker = maker();
        let spec = Spec {
            cleared: Vec::new(),
            image: image.to_owned(),
            command: table.command,
            limits: grant,
            gpus: Vec::new(),
            egress_mount: None,
        };
        let labels = ContainerLabels { maker: &maker, key: None, lifetime: Duration::from_mins(1) };
        let mut body = serde_json::to_value(create_body(&spec, &labels))?;
        // It has no input to send: the program finds the end of it at once.
        body["OpenStdin"] = json!(false);
        body["AttachStdin"] = json!(false);
        let started = Instant::now();
        let created: Value = serde_json::from_slice(
            &self.request("POST", "containers/create", Some(&body.to_string())).await?,
        )?;
        let id = created["Id"].as_str().with_context(|| format!("created: {created}"))?.to_owned();
        let attach = format!("http://docker/containers/{id}/attach?stream=1&stdout=1");
        let mut attached = self.command();
        attached.args(["-N", "-D", "/dev/stderr", "-X", "POST", &attach]);
        let mut attached = attached.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let mut heads = attached.stderr.take().context("its heads")?;
        let mut output = attached.stdout.take().context("its output")?;
        // Once the head of the answer is there, nothing that the program writes is lost.
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(heads.read_u8().await.context("the answer to attach")?);
        }
        self.request("POST", &format!("containers/{id}/start"), None).await?;
        let first = output.read_u8().await.context("the first byte");
        let elapsed = started.elapsed().as_secs_f64() * 1e3;
        attached.wait().await?;
        self.request("DELETE", &format!("containers/{id}?force=1"), None).await?;
        first.map(|_| elapsed)
    }

    /// Milliseconds from the command to the first byte that the program wrote; none where there is no such command.
    async fn docker_run(&self, image: &str) -> Result<Option<f64>> {
        let mut command = Command::new("docker");
        command.arg("--host").arg(format!("unix://{}", self.socket.display()));
        command.args(["run", "--rm", "--network", "none", "--read-only", "--cap-drop", "ALL", "--init"]);
        command.args([
            "--security-opt",
            "no-new-privileges",
            "--user",
            "65534:65534",
            "--log-driver",
            "none",
        ]);
        command.args(["--memory", "256m", "--memory-swap", "256m", "--cpus", "1", "--pids-limit", "64"]);
        command.args(["--tmpfs", "/tmp:rw,noexec,nosuid,nodev,size=128m", image, "/bin/sh", "-c", PROGRAM]);
        let started = Instant::now();
        let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = match spawned {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            spawned => spawned.context("run docker")?,
        };
        let mut output = child.stdout.take().context("its output")?;
        output.read_u8().await.context("the first byte")?;
        let elapsed = started.elapsed().as_secs_f64() * 1e3;
        child.wait().await?;
        Ok(Some(elapsed))
    }

    fn command(&self) -> Command {
        let mut command = Command::new("curl");
        command.arg("-s").arg("--unix-socket").arg(&self.socket);
        command
    }

    async fn request(&self, method: &str, path: &str, body: Option<&str>) -> Result<Vec<u8>> {
        let mut command = self.command();
        command.args(["-X", method]);
        if body.is_some() {
            command.args(["-H", "Content-Type: application/json", "--data-binary", "@-"]);
        }
        command.arg(format!("http://docker/{path}")).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("run curl")?;
        if let (Some(body), Some(mut input)) = (body, child.stdin.take()) {
            input.write_all(body.as_bytes()).await?;
        }
        Ok(child.wait_with_output().await?.stdout)
    }

    /// Waits until only `count` containers are left: those that wait for their job.
    async fn settle(&self, count: usize) -> Result<()> {
        let filters = [("label".to_owned(), vec![ISLAND.to_owned()])].into_iter().collect();
        let options = ListContainersOptionsBuilder::new().all(true).filters(&filters).build();
        while self.docker.list_containers(Some(options.clone())).await?.len() != count {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        tokio::time::sleep(SETTLED).await;
        Ok(())
    }
}

fn maker() -> Maker {
    Maker { island: Uuid::now_v7().to_string(), worker: InstanceId(Uuid::now_v7()) }
}

fn cargo() -> Result<CargoSpec> {
    let command = ["/bin/sh", "-c", PROGRAM];
    Ok(serde_json::from_value(
        json!({"slug": "bench", "runtime_type": "container", "engine": {"command": command}}),
    )?)
}
