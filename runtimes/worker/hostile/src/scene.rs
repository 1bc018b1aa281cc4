//! The agent's side: a worker, and attempts in it.

use std::{collections::BTreeMap, fs, os::unix::net::UnixDatagram, path::PathBuf, time::Duration};

use island_protocol::{
    event::AttemptEvent,
    ids::{AttemptKey, InstanceId, JobId},
};
use island_runtimes_api::RunRequest;
use island_runtimes_worker::{
    frame::{FromWorker, ToWorker},
    host::{self, Worker},
    launch::Launch,
};
use serde_json::json;

use crate::acts::HOSTILE;

/// A worker of this program, and what it must not reach.
#[derive(Debug)]
pub struct Scene {
    /// Holds the worker's folder, and what it must not reach.
    pub dir: tempfile::TempDir,
    /// How the worker is started.
    pub launch: Launch,
    listener: std::net::TcpListener,
    /// As of a program that receives messages of others, such as the journal.
    _program: UnixDatagram,
}

impl Scene {
    /// A scene whose worker may use this much memory.
    pub fn new(memory_limit_mb: u64) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let model = dir.path().join("model");
        fs::write(&model, "weights").expect("a model");
        fs::write(dir.path().join("secret"), "secret").expect("a secret");
        // Another worker's folder, and the logs of jobs, as in the agent's state folder.
        fs::create_dir_all(dir.path().join("neighbor/scratch")).expect("a folder");
        fs::create_dir_all(dir.path().join("job-logs")).expect("a folder");
        for file in ["neighbor/launch.json", "neighbor/scratch/file", "job-logs/job.log"] {
            fs::write(dir.path().join(file), "a neighbor's").expect("a file");
        }
        let cargo = json!({"slug": "hostile", "runtime_type": "hostile"});
        let cargo = serde_json::from_value(cargo).expect("a Cargo");
        let launch = Launch {
            artifacts: BTreeMap::from([("model".to_owned(), model)]),
            memory_limit_mb,
            ..Launch::new(InstanceId(uuid::Uuid::now_v7()), cargo)
        };
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
        let program = UnixDatagram::bind(dir.path().join("program")).expect("a socket");
        Self { dir, launch, listener, _program: program }
    }

    /// The worker's folder.
    pub fn worker_dir(&self) -> PathBuf {
        self.dir.path().join("worker")
    }

    /// Starts this program as the worker.
    pub async fn spawn(&self) -> Worker {
        let own = std::env::current_exe().expect("own path");
        host::spawn(&own, &self.worker_dir(), &self.launch).await.expect("a worker")
    }

    /// The command to make an attempt.
    pub fn run(&self, name: &str) -> (AttemptKey, ToWorker) {
        let at = |name: &str| self.dir.path().join(name).display().to_string();
        let launch = self.worker_dir().join("launch.json").display().to_string();
        let input = json!({
            "try": name, "agent": std::process::id(), "model": at("model"), "secret": at("secret"), "launch": launch,
            "neighbor": at("neighbor"), "log": at("job-logs/job.log"), "program": at("program"),
            "listener": self.listener.local_addr().expect("an address").to_string(),
        });
        let (cargo, artifacts) = (self.launch.cargo.clone(), self.launch.artifacts.clone());
        let request = Box::new(RunRequest {
            cargo,
            input,
            artifacts,
            continues: None,
            continues_reasoning: None,
            scope: String::new(),
        });
        let key = AttemptKey { job_id: JobId(uuid::Uuid::now_v7()), attempt: 1, epoch: 1 };
        (key, ToWorker::Run { key, first_event: 1, request, reports_steps: false })
    }

    /// The result of an attempt; `None` if the worker ended because of it.
    pub async fn attempt(&self, worker: &mut Worker, name: &str) -> Option<String> {
        let (key, run) = self.run(name);
        worker.connection.commands.send(run).await.ok()?;
        loop {
            let frame = within(worker.connection.frames.next()).await?.ok()?;
            let FromWorker::Events { key: of, events } = frame else { continue };
            let result = events.into_iter().find_map(|event| match event.event {
                AttemptEvent::Token { content, .. } => Some(content),
                _ => None,
            });
            if of == key && result.is_some() {
                return result;
            }
        }
    }
}

/// The result of a future that ends soon.
pub async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("in time")
}

/// Runs a future to its end.
pub fn block_on(future: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(future);
}

/// Every attempt is refused, except those allowed, and the worker continues to serve.
pub fn holds(scene: &Scene, allowed: &[&str]) {
    block_on(async {
        let mut worker = scene.spawn().await;
        let mut through = Vec::new();
        for name in HOSTILE.iter().filter(|name| !allowed.contains(name)) {
            match scene.attempt(&mut worker, name).await.as_deref() {
                Some("refused") => {}
                other => through.push(format!("{name}: {other:?}")),
            }
            assert_eq!(scene.attempt(&mut worker, "serve").await.as_deref(), Some("served"), "after {name}");
        }
        assert!(through.is_empty(), "not refused: {through:#?}");
        assert_eq!(
            scene.attempt(&mut worker, "write scratch").await.as_deref(),
            Some("got through"),
            "scratch is its own"
        );
        assert_eq!(fs::read_to_string(scene.dir.path().join("secret")).expect("the secret"), "secret");
        for file in ["neighbor/scratch/file", "job-logs/job.log"] {
            assert_eq!(fs::read_to_string(scene.dir.path().join(file)).expect("a file"), "a neighbor's");
        }
        assert_eq!(fs::read_to_string(scene.dir.path().join("model")).expect("the model"), "weights");
        let file = fs::File::open(scene.dir.path().join("model")).expect("the model");
        assert!(file.try_lock().is_err(), "the worker holds its model against eviction");
        worker.process.kill().expect("kill");
    });
}
