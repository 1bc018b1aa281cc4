//! Jobs through the engine, as a worker runs them: on an async runtime of one thread.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow, ensure};
use island_protocol::{
    cargo::CargoSpec,
    ids::{AttemptKey, JobId},
    job::Outcome,
};
use island_runtimes_api::{EventSink, JobLog, RunContext, RunRequest, Runtime, WorkCounter};
use island_runtimes_wasm::runtime::Wasm;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::programs::Program;

/// The engine and the runtime it lives on.
pub(crate) struct Island {
    tokio: tokio::runtime::Runtime,
    engine: Arc<Wasm>,
}

impl Island {
    /// With as many slots as there are jobs at once.
    pub(crate) fn start(slots: usize) -> Result<Self> {
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let engine = Wasm::new(slots as u32).map_err(|failure| anyhow!(failure.message))?;
        Ok(Self { tokio, engine: Arc::new(engine) })
    }

    /// Microseconds a job, of `jobs` of which `parallel` run at once.
    pub(crate) fn round(&self, program: &Program, parallel: usize, jobs: usize) -> Result<f64> {
        let request = request(program, &program.compiled)?;
        let requests: Vec<Vec<RunRequest>> = vec![vec![request; jobs / parallel]; parallel];
        let start = Instant::now();
        self.tokio.block_on(async {
            let mut clients = tokio::task::JoinSet::new();
            for requests in requests {
                let engine = Arc::clone(&self.engine);
                clients.spawn(async move {
                    for request in requests {
                        play(&engine, request).await?;
                    }
                    anyhow::Ok(())
                });
            }
            while let Some(client) = clients.join_next().await {
                client??;
            }
            anyhow::Ok(())
        })?;
        Ok(micros(start.elapsed(), jobs / parallel * parallel))
    }

    /// Microseconds a job, each with a compiled file that this engine has never seen.
    pub(crate) fn cold_round(&self, program: &Program, round: usize, jobs: usize) -> Result<f64> {
        let files: Vec<_> =
            (0..jobs).map(|job| program.compiled.with_extension(format!("{round}-{job}"))).collect();
        for file in &files {
            fs::copy(&program.compiled, file)?;
        }
        let requests = files.iter().map(|file| request(program, file)).collect::<Result<Vec<_>>>()?;
        let start = Instant::now();
        self.tokio.block_on(async {
            for request in requests {
                play(&self.engine, request).await?;
            }
            anyhow::Ok(())
        })?;
        let taken = start.elapsed();
        for file in files {
            fs::remove_file(file)?;
        }
        Ok(micros(taken, jobs))
    }

    pub(crate) fn stop(self) {
        self.tokio.block_on(self.engine.shutdown());
    }
}

/// Microseconds of each of `jobs`.
pub(crate) fn micros(taken: Duration, jobs: usize) -> f64 {
    taken.as_secs_f64() * 1e6 / jobs as f64
}

fn request(program: &Program, file: &Path) -> Result<RunRequest> {
    let cargo: CargoSpec =
        serde_json::from_value(json!({"slug": "bench", "runtime_type": "wasm", "required_ram_mb": 64}))?;
    let artifacts = BTreeMap::from([("model".to_owned(), file.to_owned())]);
    Ok(RunRequest {
        cargo,
        input: program.input.clone(),
        artifacts,
        continues: None,
        continues_reasoning: None,
        scope: String::new(),
    })
}

async fn play(engine: &Wasm, request: RunRequest) -> Result<()> {
    let (events, _sent) = EventSink::channel();
    let context = RunContext {
        key: AttemptKey { job_id: JobId(uuid::Uuid::nil()), attempt: 1, epoch: 1 },
        events,
        cancel: CancellationToken::new(),
        scratch: std::env::temp_dir(),
        work: WorkCounter::default(),
        log: JobLog::default(),
    };
    let outcome = engine.run(request, context).await;
    ensure!(matches!(outcome, Outcome::Completed { .. }), "a job failed: {outcome:?}");
    Ok(())
}
