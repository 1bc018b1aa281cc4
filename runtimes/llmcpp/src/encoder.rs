//! Embedding and ranking models: vectors of texts, and the relevance of documents to a query.
//!
//! One thread owns the context. Each step decodes as many texts of one job as fit into a batch, then those of the next job.

mod request;
mod rows;

pub use request::Request;
pub use rows::Rows;

use std::{
    collections::VecDeque,
    num::NonZeroU32,
    sync::{Arc, mpsc},
    thread::JoinHandle,
};

use island_protocol::{
    cargo::CargoSpec,
    job::{Failure, FailureCode},
};
use island_runtimes_api::{Phase, RunContext};
use island_runtimes_kit::keys::unsupported;
use llama_cpp_2::{
    context::{
        LlamaContext,
        params::{LlamaContextParams, LlamaPoolingType},
    },
    llama_backend::LlamaBackend,
    llama_batch::LlamaBatch,
    token::LlamaToken,
};
use serde_json::Value;
use tokio::sync::oneshot;

use crate::{
    fit::Measured,
    gguf::Header,
    model::{Model, number, rejected},
};

/// Maximum number of texts in one batch.
const MAX_ROWS: usize = 16;
/// Maximum number of tokens of a text where the Cargo sets none: the memory of a batch grows with its square.
const USUAL_TOKENS: u32 = 2048;

/// What a model that generates no text is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Vectors of texts.
    Embeds,
    /// Relevance of documents.
    Ranks,
}

impl Purpose {
    /// That of a Cargo's task; `None` for models that generate text.
    pub fn of(cargo: &CargoSpec) -> Option<Self> {
        match cargo.engine.get("task").and_then(Value::as_str) {
            Some("feature-extraction") => Some(Self::Embeds),
            Some("text-ranking") => Some(Self::Ranks),
            _ => None,
        }
    }
}

/// How the states of a text's tokens become one vector, and the sizes of batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    pooling: LlamaPoolingType,
    /// Maximum number of tokens of one text.
    pub tokens: u32,
    /// Processor threads.
    pub threads: i32,
}

impl Options {
    /// Those of a Cargo and its model. The setting `pooling` overrides what the file states.
    pub fn of(purpose: Purpose, cargo: &CargoSpec, header: &Header, threads: i32) -> Result<Self, Failure> {
        let pooling = match purpose {
            Purpose::Embeds => pooling(cargo, header)?,
            Purpose::Ranks if has_head(header) => LlamaPoolingType::Rank,
            Purpose::Ranks => return Err(rejected("the model has no head that ranks (cls.output or cls)")),
        };
        let wanted = match cargo.limits.context_tokens {
            0 => USUAL_TOKENS,
            named => u32::try_from(named).unwrap_or(u32::MAX),
        };
        let trained = number(header, "context_length").and_then(|tokens| u32::try_from(tokens).ok());
        Ok(Self { pooling, tokens: wanted.min(trained.unwrap_or(u32::MAX)).max(8), threads })
    }

    fn context(&self) -> LlamaContextParams {
        LlamaContextParams::default()
            .with_embeddings(true)
            .with_pooling_type(self.pooling)
            .with_n_ctx(NonZeroU32::new(self.tokens))
            // All tokens of a text are in one step: its vector is computed from those of one step only.
            .with_n_batch(self.tokens)
            .with_n_ubatch(self.tokens)
            .with_n_seq_max(MAX_ROWS as u32)
            .with_kv_unified(true)
            .with_n_threads(self.threads)
            .with_n_threads_batch(self.threads)
            .with_no_perf(true)
    }
}

impl Measured for Options {
    fn largest_context(&self) -> LlamaContextParams {
        self.context()
    }
}

fn pooling(cargo: &CargoSpec, header: &Header) -> Result<LlamaPoolingType, Failure> {
    let must = "the engine setting pooling must be \"mean\", \"cls\" or \"lasttoken\"";
    match cargo.engine.get("pooling") {
        Some(setting) => match setting.as_str() {
            Some("mean") => Ok(LlamaPoolingType::Mean),
            Some("cls") => Ok(LlamaPoolingType::Cls),
            Some("lasttoken") => Ok(LlamaPoolingType::Last),
            _ => Err(unsupported("[engine]", "pooling", setting).followed_by(must).into()),
        },
        None => match number(header, "pooling_type") {
            Some(1) => Ok(LlamaPoolingType::Mean),
            Some(2) => Ok(LlamaPoolingType::Cls),
            Some(3) => Ok(LlamaPoolingType::Last),
            _ => Err(rejected(&format!("the model's file states no pooling of vectors; {must}"))),
        },
    }
}

fn has_head(header: &Header) -> bool {
    header.tensors.iter().any(|tensor| ["cls.output.weight", "cls.weight"].contains(&tensor.name.as_str()))
}

/// A job: texts to encode.
#[derive(Debug)]
pub struct Job {
    /// The tokens of each text, at least one and at most [`Options::tokens`].
    pub rows: Vec<Vec<LlamaToken>>,
    /// Signals cancellation.
    pub context: RunContext,
    /// Receives the vector of each text; closed when the run was dropped.
    pub done: oneshot::Sender<Result<Vec<Vec<f32>>, Failure>>,
}

/// The thread and its queue.
#[derive(Debug)]
pub struct EncoderHandle {
    /// Receives jobs; the thread ends once it is dropped and all jobs have ended.
    pub jobs: mpsc::Sender<Job>,
    /// Resolves when the thread ends.
    pub thread: JoinHandle<()>,
}

/// Starts the thread. `load` runs on it; the model is sent to `started`.
pub fn start(
    backend: &'static LlamaBackend,
    load: impl FnOnce() -> Result<(Arc<Model>, Options), Failure> + Send + 'static,
    started: oneshot::Sender<Result<(Arc<Model>, Options), Failure>>,
) -> std::io::Result<EncoderHandle> {
    let (jobs, incoming) = mpsc::channel();
    let body = move || {
        let (model, options) = match load() {
            Ok(loaded) => loaded,
            Err(failure) => return drop(started.send(Err(failure))),
        };
        match Encoder::new(backend, &model, options) {
            Ok(encoder) => {
                if started.send(Ok((Arc::clone(&model), options))).is_ok() {
                    encoder.run(&incoming);
                }
            }
            Err(failure) => drop(started.send(Err(failure))),
        }
    };
    let thread = std::thread::Builder::new().name("llmcpp-encoder".to_owned()).spawn(body)?;
    Ok(EncoderHandle { jobs, thread })
}

/// A job and the vectors of its first texts.
struct Running {
    job: Job,
    vectors: Vec<Vec<f32>>,
}

struct Encoder<'m> {
    context: LlamaContext<'m>,
    batch: LlamaBatch<'static>,
    tokens: usize,
}

impl<'m> Encoder<'m> {
    fn new(backend: &LlamaBackend, model: &'m Model, options: Options) -> Result<Self, Failure> {
        let mut context = model.llama.new_context(backend, options.context()).map_err(|_| {
            Failure::of_host(FailureCode::OutOfMemory, "llama.cpp cannot create a context; see its log")
        })?;
        model.adapt(&mut context)?;
        let tokens = options.tokens as usize;
        Ok(Self { context, batch: LlamaBatch::new(tokens, 1), tokens })
    }

    fn run(mut self, incoming: &mpsc::Receiver<Job>) {
        let mut running: VecDeque<Running> = VecDeque::new();
        loop {
            if running.is_empty() {
                let Ok(job) = incoming.recv() else { return };
                running.push_back(Running::of(job));
            }
            running.extend(incoming.try_iter().map(Running::of));
            let Some(mut next) = running.pop_front() else { continue };
            if next.job.context.cancel.is_cancelled() || next.job.done.is_closed() {
                let failure = Failure::interrupted(FailureCode::CancelledByUser, "the run was cancelled");
                next.end(Err(failure));
                continue;
            }
            match self.step(&mut next) {
                Ok(()) if next.vectors.len() == next.job.rows.len() => next.end(Ok(())),
                Ok(()) => running.push_back(next),
                Err(failure) => next.end(Err(failure)),
            }
        }
    }

    /// Decodes the next texts of a job.
    fn step(&mut self, running: &mut Running) -> Result<(), Failure> {
        let failed =
            |what: &str| Failure::of_host(FailureCode::RuntimeCrashed, format!("encode the texts: {what}"));
        let rows = &running.job.rows[running.vectors.len()..];
        let count = rows_of_batch(rows.iter().map(Vec::len), self.tokens);
        self.batch.clear();
        for (sequence, row) in rows[..count].iter().enumerate() {
            for (position, &token) in row.iter().enumerate() {
                let added = self.batch.add(token, position as i32, &[sequence as i32], true);
                added.map_err(|error| failed(&error.to_string()))?;
            }
        }
        self.context.clear_kv_cache();
        self.context.decode(&mut self.batch).map_err(|error| failed(&error.to_string()))?;
        for sequence in 0..count {
            let vector = self.context.embeddings_seq_ith(sequence as i32);
            running.vectors.push(vector.map_err(|error| failed(&error.to_string()))?.to_vec());
        }
        running.job.context.work.advance(self.batch.n_tokens() as u64);
        Ok(())
    }
}

impl Running {
    fn of(job: Job) -> Self {
        job.context.work.enter(Phase::Run);
        Self { vectors: Vec::with_capacity(job.rows.len()), job }
    }

    fn end(self, result: Result<(), Failure>) {
        let Self { job: Job { context, done, .. }, vectors } = self;
        drop(context);
        // Without a receiver the run was dropped.
        let _ = done.send(result.map(|()| vectors));
    }
}

/// Number of texts, by their lengths, that are in one batch: at least one.
fn rows_of_batch(lengths: impl Iterator<Item = usize>, limit: usize) -> usize {
    let sums = lengths.take(MAX_ROWS).scan(0, |sum, length| {
        *sum += length;
        Some(*sum)
    });
    sums.take_while(|&sum| sum <= limit).count().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_is_measured_with_the_batches_that_are_computed() {
        let options = Options { pooling: LlamaPoolingType::Mean, tokens: 8192, threads: 1 };
        let context = options.largest_context();
        assert_eq!((context.n_ctx().map(NonZeroU32::get), context.n_ubatch()), (Some(8192), 8192));
    }

    #[test]
    fn a_batch_has_what_fits_and_at_least_one_text() {
        let rows = |lengths: &[usize]| rows_of_batch(lengths.iter().copied(), 10);
        assert_eq!(rows(&[4, 6, 1]), 2);
        assert_eq!(rows(&[10, 1]), 1);
        assert_eq!(rows(&[11, 1]), 1);
        assert_eq!(rows(&[0; 40]), MAX_ROWS);
    }
}
