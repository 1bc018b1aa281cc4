//! A world of one daemon and one image, and jobs in it.

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bollard::{Docker, query_parameters::ListContainersOptionsBuilder};
use island_protocol::{
    cargo::CargoSpec,
    event::AttemptEvent,
    ids::{AttemptKey, InstanceId, JobId},
    job::{Failure, Outcome},
};
use island_runtimes_api::{EventSink, JobLog, RunContext, RunRequest, Runtime, WorkCounter};
use island_runtimes_container::{
    Containers, Settings,
    daemon::Daemon,
    labels::{ISLAND, JOB, Maker},
    testing::{Dockerd, busybox},
};
use island_runtimes_worker::launch::ContainerRules;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Longest wait for anything; reached only where something is broken.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

/// A program of the tests: speaks the contract, in the words of a shell.
const PROGRAM: &str = r#"#!/bin/sh
input=$(cat)
field() { printf '%s' "$input" | sed -n 's/.*"'"$1"'":"\([^"]*\)".*/\1/p'; }
case $input in *'"bad":true'*) echo '{"type":"error","message":"the input is invalid","code":"invalid_input"}'; exit 1 ;; esac
echo '{"type":"status","message":"ready"}'
if [ "$(field mode)" = long ]; then
    i=0
    while :; do echo '{"type":"token","content":"x"}'; i=$((i+1)); sleep 0.05; done
fi
echo "debug words" >&2
for word in $(field text); do printf '{"type":"token","content":"%s "}\n' "$word"; done
echo '{"type":"done"}'
"#;

pub(crate) struct World {
    pub(crate) socket: PathBuf,
    pub(crate) docker: Docker,
    pub(crate) files: TempDir,
    pub(crate) image: PathBuf,
    /// A port on every address of the daemon's host, which accepts connections and closes them.
    pub(crate) open_port: u16,
    /// Number of connections that it accepted.
    pub(crate) connections: Arc<AtomicUsize>,
}

impl World {
    pub(crate) fn new(daemon: &Dockerd) -> Self {
        let socket = daemon.socket();
        let docker = Docker::connect_with_unix(&socket.to_string_lossy(), 60, bollard::API_DEFAULT_VERSION);
        let files = tempfile::tempdir().expect("a folder");
        let image = files.path().join("busybox.tar");
        let rootfs =
            busybox().expect("busybox").file("bin/cargo", 0o755, PROGRAM.as_bytes()).expect("a program");
        std::fs::write(&image, rootfs.finish().expect("a tar")).expect("an image file");
        let listener = daemon.listen().expect("a listener");
        let open_port = listener.local_addr().expect("an address").port();
        let connections = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&connections);
        std::thread::spawn(move || {
            while listener.accept().is_ok() {
                counter.fetch_add(1, Ordering::Relaxed);
            }
        });
        Self { docker: docker.expect("a client"), socket, files, image, open_port, connections }
    }

    pub(crate) fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.files.path().join(name);
        std::fs::write(&path, bytes).expect("a file");
        path
    }

    /// An engine of an Island of its own.
    pub(crate) async fn engine(&self, ahead: u32) -> Containers {
        self.engine_of(&Uuid::now_v7().to_string(), ahead).await
    }

    pub(crate) async fn engine_of(&self, island: &str, ahead: u32) -> Containers {
        let rules = ContainerRules {
            socket: Some(self.socket.clone()),
            max_tier: island_protocol::cargo::SandboxTier::Elevated,
            ahead,
            ..ContainerRules::default()
        };
        let maker = Maker { island: island.to_owned(), worker: InstanceId(Uuid::now_v7()) };
        let daemon = Daemon::connect(&self.socket).await.expect("a daemon");
        Containers::start(daemon, Settings { rules, maker, slots: 4, egress_dir: None, gpus: Vec::new() })
    }

    /// Containers of an Island, or of all, whatever they do.
    pub(crate) async fn containers(&self, island: Option<&str>) -> Vec<String> {
        let label = island.map_or_else(|| ISLAND.to_owned(), |island| format!("{ISLAND}={island}"));
        let filters = [("label".to_owned(), vec![label])].into_iter().collect();
        let options = ListContainersOptionsBuilder::new().all(true).filters(&filters).build();
        let found = self.docker.list_containers(Some(options)).await.expect("a list");
        found.into_iter().filter_map(|container| container.id).collect()
    }

    /// Waits until the only container left is one made ahead; the count alone would take a used one on its way out for it.
    pub(crate) async fn one_ahead_is_left(&self) {
        let left = async {
            loop {
                let options = ListContainersOptionsBuilder::new().all(true).build();
                let found = self.docker.list_containers(Some(options)).await.expect("a list");
                let of_no_job =
                    |labels: &HashMap<String, String>| labels.get(JOB).is_some_and(String::is_empty);
                if let [only] = &found[..]
                    && only.labels.as_ref().is_some_and(of_no_job)
                {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        within(left).await;
    }

    /// Waits until an Island has `count` containers.
    pub(crate) async fn settle(&self, island: Option<&str>, count: usize) {
        let settled = async {
            while self.containers(island).await.len() != count {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        within(settled).await;
    }
}

/// A Cargo that runs a command.
pub(crate) fn cargo(command: &[&str]) -> CargoSpec {
    with(&json!({"engine": {"command": command}}))
}

/// A Cargo with these fields.
pub(crate) fn with(fields: &Value) -> CargoSpec {
    let mut cargo = json!({"slug": "test", "runtime_type": "container"});
    for (name, value) in fields.as_object().expect("fields") {
        cargo[name] = value.clone();
    }
    serde_json::from_value(cargo).expect("a Cargo")
}

/// A Cargo that runs a script; what it writes to the third descriptor of a shell is nobody's.
pub(crate) fn script(text: &str) -> CargoSpec {
    cargo(&["/bin/sh", "-c", text])
}

pub(crate) fn key() -> AttemptKey {
    AttemptKey { job_id: JobId(Uuid::now_v7()), attempt: 1, epoch: 1 }
}

/// A job about to run.
pub(crate) struct Job {
    pub(crate) request: RunRequest,
    pub(crate) context: RunContext,
    pub(crate) events: UnboundedReceiver<AttemptEvent>,
    _scratch: TempDir,
}

/// A job that ran.
#[derive(Debug)]
pub(crate) struct Played {
    pub(crate) text: String,
    pub(crate) outcome: Outcome,
    pub(crate) log: String,
}

impl Job {
    pub(crate) fn new(image: &Path, cargo: CargoSpec, input: Value) -> Self {
        let (sink, events) = EventSink::channel();
        let scratch = tempfile::tempdir().expect("a folder");
        let artifacts = BTreeMap::from([("model".to_owned(), image.to_owned())]);
        let request = RunRequest {
            cargo,
            input,
            artifacts,
            continues: None,
            continues_reasoning: None,
            scope: "test".to_owned(),
        };
        let context = RunContext {
            key: key(),
            events: sink,
            cancel: CancellationToken::new(),
            scratch: scratch.path().to_owned(),
            work: WorkCounter::default(),
            log: JobLog::default(),
        };
        Self { request, context, events, _scratch: scratch }
    }

    pub(crate) async fn play(self, engine: &Containers) -> Played {
        let Self { request, context, events, _scratch } = self;
        let log = context.log.clone();
        let outcome = within(engine.run(request, context)).await;
        Played { text: text(events).await, outcome, log: log.text() }
    }
}

impl Played {
    pub(crate) fn failure(&self) -> &Failure {
        match &self.outcome {
            Outcome::Failed { failure, .. } => failure,
            completed @ Outcome::Completed { .. } => panic!("it completed: {completed:?}, {:?}", self.text),
        }
    }

    pub(crate) fn completed(self) -> Self {
        assert!(matches!(self.outcome, Outcome::Completed { .. }), "it failed: {self:?}");
        self
    }
}

/// What was streamed, joined.
pub(crate) async fn text(mut events: UnboundedReceiver<AttemptEvent>) -> String {
    let mut text = String::new();
    while let Some(event) = within(events.recv()).await {
        if let AttemptEvent::Token { content, .. } = event {
            text.push_str(&content);
        }
    }
    text
}

pub(crate) async fn play(world: &World, engine: &Containers, cargo: CargoSpec, input: Value) -> Played {
    Job::new(&world.image, cargo, input).play(engine).await
}

pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it ends in time")
}
