//! The server loop: owns the listener, the connection, the load and every run, and awaits them all.

use std::{
    future::pending,
    io,
    os::unix::net::UnixListener as StdListener,
    path::PathBuf,
    process::ExitCode,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use island_protocol::{
    host::SandboxReport,
    ids::AttemptKey,
    job::{Failure, FailureCode},
};
use island_runtimes_api::{RunRequest, Runtime};
use tokio::{
    net::{UnixListener, UnixStream},
    signal::unix::{SignalKind, signal},
    sync::{mpsc, watch},
    task::{JoinError, JoinHandle, JoinSet},
    time::{Instant, sleep_until, timeout},
};

use super::{
    connection::{self, FrameWriter},
    engine::{EngineLoader, LoadProgress, Loaded},
    run,
    state::{LoadState, State, latest},
};
use crate::{
    frame::ToWorker,
    launch::{EXIT_LOAD_FAILED, Launch, log_file},
};

/// Number of commands that were read but not yet executed.
const QUEUE: usize = 64;
/// Time for cancelled runs to end and their ends to reach the agent.
const GRACE: Duration = Duration::from_secs(3);

/// What the server is started with.
#[derive(Debug)]
pub(super) struct World {
    pub(super) launch: Launch,
    pub(super) scratch: PathBuf,
    pub(super) sandbox: SandboxReport,
    pub(super) resident_mb: Arc<AtomicU64>,
}

/// Loads the engine and serves the socket until stopped, or without a connection for too long.
pub(super) async fn serve<E: EngineLoader>(
    engine: E,
    world: World,
    listener: StdListener,
    ready: Result<(), Failure>,
) -> io::Result<ExitCode> {
    let listener = UnixListener::from_std(listener)?;
    let mut terminate = signal(SignalKind::terminate())?;
    let (progress, load) = watch::channel(LoadState::Loading { done: 0, total: 0 });
    let (commands, mut incoming) = mpsc::channel(QUEUE);
    let mut server = Server::<E::Runtime>::new(world, load, commands);
    let loading = tokio::spawn(load_engine(engine, server.world.launch.clone(), progress.clone(), ready));
    let mut loading = Some(loading);
    loop {
        if server.is_done() {
            return Ok(server.finish().await);
        }
        let due = server.due();
        tokio::select! {
            biased;
            _ = terminate.recv() => server.shut_down(true),
            loaded = join(&mut loading) => {
                loading = None;
                server.loaded(&progress, loaded);
            }
            accepted = listener.accept() => server.connect(accepted?.0).await,
            Some(command) = incoming.recv() => server.handle(command),
            Some(ended) = server.runs.join_next() => log_panic(ended),
            () = closed(&mut server.connection) => server.disconnected(),
            () = until(due) => {}
        }
    }
}

struct Server<R> {
    world: World,
    state: Arc<State>,
    load: watch::Receiver<LoadState>,
    commands: mpsc::Sender<ToWorker>,
    engine: watch::Sender<Option<Arc<R>>>,
    runs: JoinSet<()>,
    connection: Option<JoinHandle<()>>,
    /// When the last connection ended; the orphan timeout starts there.
    alone_since: Instant,
    /// Set once it stops: until when runs may take to end.
    leave_by: Option<Instant>,
    draining: bool,
    failure_told: bool,
}

impl<R: Runtime> Server<R> {
    fn new(world: World, load: watch::Receiver<LoadState>, commands: mpsc::Sender<ToWorker>) -> Self {
        Self {
            world,
            state: Arc::default(),
            load,
            commands,
            engine: watch::Sender::new(None),
            runs: JoinSet::new(),
            connection: None,
            alone_since: Instant::now(),
            leave_by: None,
            draining: false,
            failure_told: false,
        }
    }

    fn loaded(&mut self, progress: &watch::Sender<LoadState>, loaded: Result<Loaded<R>, Failure>) {
        match loaded {
            Ok(Loaded { runtime, version, slots, vram_mb }) => {
                self.engine.send_replace(Some(Arc::new(runtime)));
                progress.send_replace(LoadState::Ready { version, slots, vram_mb });
            }
            Err(failure) => {
                tracing::error!(code = %failure.code, message = failure.message, "the model cannot be loaded");
                self.state.stop_all(&failure);
                progress.send_replace(LoadState::Failed(failure));
            }
        }
    }

    /// The newest connection replaces earlier ones.
    async fn connect(&mut self, stream: UnixStream) {
        if let Some(older) = self.connection.take() {
            older.abort();
            // Its slot is free once it has ended.
            let _ = older.await;
        }
        self.state.forget_cursors();
        let writer = FrameWriter {
            instance: self.world.launch.instance,
            sandbox: self.world.sandbox.clone(),
            resident_mb: Arc::clone(&self.world.resident_mb),
            load: self.load.clone(),
            state: Arc::clone(&self.state),
        };
        self.connection = Some(tokio::spawn(connection::serve(stream, writer, self.commands.clone())));
    }

    fn disconnected(&mut self) {
        self.connection = None;
        self.alone_since = Instant::now();
        self.failure_told = self.load_failed();
    }

    fn handle(&mut self, command: ToWorker) {
        match command {
            ToWorker::Run { key, first_event, request, reports_steps } => {
                self.run(key, first_event, *request, reports_steps);
            }
            ToWorker::Cancel { key, failure } => self.state.stop(key, failure),
            ToWorker::Replay { key, from } => self.state.replay(key, from),
            ToWorker::Spooled { key, below } => self.state.spooled(key, below),
            ToWorker::Shutdown { now } => self.shut_down(now),
        }
    }

    fn run(&mut self, key: AttemptKey, first_event: u64, request: RunRequest, reports_steps: bool) {
        let most = request.cargo.limits.max_output_bytes;
        let Some(handles) = self.state.admit(key, first_event, most, reports_steps) else {
            return;
        };
        let name = format!("{}-{}-{}", key.job_id, key.attempt, key.epoch);
        let log = self.world.launch.log_dir.as_ref().map(|dir| log_file(dir, key));
        let places = run::Places { scratch: self.world.scratch.join(name), log };
        let (engine, state) = (self.engine.subscribe(), Arc::clone(&self.state));
        self.runs.spawn(run::run(engine, state, key, request, handles, places));
    }

    fn shut_down(&mut self, now: bool) {
        self.draining = true;
        if now && self.leave_by.is_none() {
            self.leave_by = Some(Instant::now() + GRACE);
            self.state
                .stop_all(&Failure::interrupted(FailureCode::CancelledByUser, "the worker was stopped"));
        }
    }

    fn is_done(&self) -> bool {
        let (now, lonely, idle) = (Instant::now(), self.connection.is_none(), self.runs.is_empty());
        let failed = self.failure_told && lonely && idle;
        let drained = self.draining && idle && self.state.is_empty();
        let leaving = self.leave_by.is_some_and(|by| now >= by || (idle && lonely));
        failed || drained || leaving || (lonely && now >= self.orphaned_at())
    }

    fn load_failed(&self) -> bool {
        matches!(latest(&self.load), LoadState::Failed(_))
    }

    fn orphaned_at(&self) -> Instant {
        self.alone_since + Duration::from_secs(self.world.launch.orphan_timeout_s)
    }

    /// When something is due that is not announced by an event.
    fn due(&self) -> Option<Instant> {
        let orphaned = self.connection.is_none().then(|| self.orphaned_at());
        orphaned.into_iter().chain(self.leave_by).min()
    }

    async fn finish(mut self) -> ExitCode {
        self.runs.shutdown().await;
        if let Some(connection) = self.connection.take() {
            connection.abort();
            let _ = connection.await;
        }
        let runtime = latest(&self.engine.subscribe());
        if let Some(runtime) = runtime {
            // After the grace period the process ends with everything in it.
            let _ = timeout(GRACE, runtime.shutdown()).await;
        }
        if self.load_failed() { ExitCode::from(EXIT_LOAD_FAILED as u8) } else { ExitCode::SUCCESS }
    }
}

async fn load_engine<E: EngineLoader>(
    engine: E,
    launch: Launch,
    progress: watch::Sender<LoadState>,
    ready: Result<(), Failure>,
) -> Result<Loaded<E::Runtime>, Failure> {
    ready?;
    engine.load(launch, LoadProgress(progress)).await
}

async fn join<T>(loading: &mut Option<JoinHandle<Result<T, Failure>>>) -> Result<T, Failure> {
    let Some(task) = loading else { return pending().await };
    task.await.unwrap_or_else(|_| {
        Err(Failure::of_host(FailureCode::RuntimeCrashed, "the engine failed while loading the model"))
    })
}

async fn closed(connection: &mut Option<JoinHandle<()>>) {
    match connection {
        // Its error was logged; only its end counts.
        Some(connection) => drop(connection.await),
        None => pending().await,
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => pending().await,
    }
}

fn log_panic(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a run's task failed");
    }
}
