//! The engine's thread: receives jobs, assigns sequences, and steps while any job runs.

use std::{
    collections::VecDeque,
    num::NonZeroU32,
    sync::{Arc, mpsc},
    thread::JoinHandle,
};

use island_protocol::job::{Failure, FailureCode, Outcome};
use island_runtimes_api::Phase;
use llama_cpp_2::{
    context::{
        LlamaContext,
        params::{KvCacheType, LlamaContextParams},
    },
    llama_backend::LlamaBackend,
    llama_batch::LlamaBatch,
    token::LlamaToken,
};
use tokio::sync::oneshot;

use super::{
    Job,
    budget::{Budget, MOST},
    draft::{DraftCost, DraftCounts, DraftMode},
    kv_offload::KvOffload,
    sequences::{Idle, Sequences},
    slot::{end, interrupted},
    step::Stage,
};
use crate::{
    fit::Measured,
    model::{Model, does_not_run},
};

/// Maximum number of sequences in llama.cpp.
const MAX_SEQUENCES: usize = 64;

/// Settings of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineOptions {
    /// Jobs at once.
    pub slots: usize,
    /// Tokens of context for each job.
    pub context_tokens: u32,
    /// Tokens of context for all jobs together.
    pub total_tokens: u32,
    /// Tokens of idle conversations to keep outside the context; 0 keeps them in it.
    pub kv_offload_tokens: u32,
    /// How cached keys and values are stored.
    pub cache: KvCacheType,
    /// When guesses of the next tokens are checked.
    pub drafts: DraftMode,
    /// Processor threads.
    pub threads: i32,
}

impl EngineOptions {
    fn slots(&self) -> usize {
        self.slots.clamp(1, MAX_SEQUENCES / 2)
    }

    /// Parameters of the context with `sequences` for jobs and idle conversations. Flash attention is used where the device has it.
    fn context(&self, sequences: usize) -> LlamaContextParams {
        LlamaContextParams::default()
            .with_n_ctx(NonZeroU32::new(self.total_tokens))
            .with_n_batch((MOST + self.slots()) as u32)
            .with_n_ubatch(MOST as u32)
            .with_n_seq_max(sequences as u32)
            .with_kv_unified(true)
            .with_type_k(self.cache)
            .with_type_v(self.cache)
            .with_n_threads(self.threads)
            .with_n_threads_batch(self.threads)
            .with_no_perf(true)
    }
}

impl Measured for EngineOptions {
    fn largest_context(&self) -> LlamaContextParams {
        self.context(2 * self.slots())
    }
}

/// Facts about the running engine.
#[derive(Debug)]
pub struct Started {
    /// The model, for encoding prompts.
    pub model: Arc<Model>,
    /// Tokens of context for each job.
    pub context_tokens: u32,
    /// Counts guessed tokens.
    pub drafts: Arc<DraftCounts>,
}

/// The thread and its queue.
#[derive(Debug)]
pub struct EngineHandle {
    /// Receives jobs; the thread ends once it is dropped and all jobs have ended.
    pub jobs: mpsc::Sender<Job>,
    /// Resolves when the thread ends.
    pub thread: JoinHandle<()>,
}

/// Starts the thread. `load` runs on it; its result is sent to `started`.
pub fn start(
    backend: &'static LlamaBackend,
    load: impl FnOnce() -> Result<(Arc<Model>, EngineOptions), Failure> + Send + 'static,
    started: oneshot::Sender<Result<Started, Failure>>,
) -> std::io::Result<EngineHandle> {
    let (jobs, incoming) = mpsc::channel();
    let body = move || {
        let (model, options) = match load() {
            Ok(loaded) => loaded,
            Err(failure) => return drop(started.send(Err(failure))),
        };
        match Engine::new(backend, &model, options, incoming) {
            Ok(engine) => {
                let context_tokens = engine.context_tokens.min(options.context_tokens);
                let drafts = Arc::clone(&engine.stage.draft_counts);
                let told = started.send(Ok(Started { model: Arc::clone(&model), context_tokens, drafts }));
                if told.is_ok() {
                    engine.run();
                }
            }
            Err(failure) => drop(started.send(Err(failure))),
        }
    };
    let thread = std::thread::Builder::new().name("llama".into()).stack_size(8 << 20).spawn(body)?;
    Ok(EngineHandle { jobs, thread })
}

struct Engine<'m> {
    stage: Stage<'m>,
    waiting: VecDeque<Job>,
    incoming: mpsc::Receiver<Job>,
    max_slots: usize,
    context_tokens: u32,
}

impl<'m> Engine<'m> {
    fn new(
        backend: &LlamaBackend,
        model: &'m Model,
        options: EngineOptions,
        incoming: mpsc::Receiver<Job>,
    ) -> Result<Self, Failure> {
        let slots = options.slots();
        let idle = match (model.can_rewind(), options.kv_offload_tokens) {
            (false, _) => Idle::Nowhere,
            (true, 0) => Idle::Here,
            (true, _) => Idle::PrefixMatch,
        };
        // If idle conversations stay in the context, half of the sequences are for them.
        let sequences = if idle == Idle::Here { 2 * slots } else { slots };
        let mut context = model.llama.new_context(backend, options.context(sequences)).map_err(|_| {
            Failure::of_host(FailureCode::OutOfMemory, "llama.cpp cannot create a context; see its log")
        })?;
        model.adapt(&mut context)?;
        let capacity = context.n_ctx();
        let mut stage = Stage {
            model,
            context,
            batch: LlamaBatch::new(MOST + slots, 1),
            sequences: Sequences::new(sequences, capacity as usize, idle),
            kv_offload: KvOffload::new(if idle == Idle::PrefixMatch {
                options.kv_offload_tokens as usize
            } else {
                0
            }),
            slots: Vec::new(),
            budget: Budget::new(model.placement.gpus.is_empty()),
            // Guesses that are wrong are removed from the context again.
            draft_cost: DraftCost::new(options.drafts).filter(|_| model.can_rewind()),
            draft_counts: Arc::default(),
            steps: 0,
        };
        warm_up(&mut stage.context, &mut stage.batch, model)?;
        Ok(Self { stage, waiting: VecDeque::new(), incoming, max_slots: slots, context_tokens: capacity })
    }

    fn run(mut self) {
        while self.take_jobs() {
            self.drop_stopped();
            self.admit();
            if !self.stage.slots.is_empty() {
                self.stage.step();
            }
        }
    }

    /// Receives new jobs; waits only if there is nothing to do. Returns `false` once no job can arrive any more.
    fn take_jobs(&mut self) -> bool {
        if self.stage.slots.is_empty() && self.waiting.is_empty() {
            match self.incoming.recv() {
                Ok(job) => self.queue(job),
                Err(mpsc::RecvError) => return false,
            }
        }
        while let Ok(job) = self.incoming.try_recv() {
            self.queue(job);
        }
        true
    }

    fn queue(&mut self, job: Job) {
        job.context.work.enter(Phase::Wait);
        self.waiting.push_back(job);
    }

    fn drop_stopped(&mut self) {
        let (stopped, waiting) = std::mem::take(&mut self.waiting).into_iter().partition(Job::is_stopped);
        self.waiting = waiting;
        for job in stopped {
            end(job, Outcome::failed(interrupted()));
        }
        for index in (0..self.stage.slots.len()).rev() {
            if self.stage.slots[index].job.is_stopped() {
                let slot = self.stage.slots.swap_remove(index);
                self.stage.release(&slot);
                slot.interrupt();
            }
        }
    }

    /// Assigns sequences to waiting jobs, in their order, while there is space.
    fn admit(&mut self) {
        while self.stage.slots.len() < self.max_slots
            && let Some(job) = self.waiting.front()
            && let Some(assignment) = self.stage.assign(job)
        {
            let job = self.waiting.pop_front().expect("it is not empty");
            let slot = self.stage.slot(job, assignment);
            self.stage.slots.push(slot);
        }
    }
}

/// One decode before the first job: it touches memory and selects kernels.
fn warm_up(context: &mut LlamaContext<'_>, batch: &mut LlamaBatch<'_>, model: &Model) -> Result<(), Failure> {
    let on_gpus = !model.placement.gpus.is_empty();
    let failed = |what: String| does_not_run(on_gpus, &what);
    let vocab = model.llama.vocab();
    let token = [vocab.bos(), vocab.eos()].into_iter().find(|token| token.0 >= 0).unwrap_or(LlamaToken(0));
    batch.clear();
    batch.add(token, 0, &[0], true).map_err(|error| failed(error.to_string()))?;
    context.decode(batch).map_err(|error| failed(error.to_string()))?;
    context.clear_kv_cache();
    Ok(())
}
