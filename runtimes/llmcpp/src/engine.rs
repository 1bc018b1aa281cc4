//! The thread that owns the context. Each of its steps decodes one token of every running reply, and in addition a part of the waiting
//! prompts: as much as does not delay the replies. All other work happens on other threads.

mod budget;
mod kv_offload;
mod order;
mod sequences;
mod slot;
mod slot_assignment;
mod step;
mod thread;

pub use budget::Budget;
pub use kv_offload::{KvOffload, OffloadedSequence};
pub use sequences::{Idle, Leaving, Placed, PrefixMatch, Sequences, Source};
pub use thread::{EngineHandle, EngineOptions, Started, start};

use island_protocol::job::Outcome;
use island_runtimes_api::RunContext;
use llama_cpp_2::{sampling::LlamaSampler, token::LlamaToken};
use tokio::sync::oneshot;

use crate::{sampling::Sampling, tools::Offer};

/// A job that is ready to run: everything is parsed and encoded.
#[derive(Debug)]
pub struct Job {
    /// The prompt, followed by the text of an earlier attempt; never empty.
    pub prompt: Vec<LlamaToken>,
    /// Number of tokens at its end that an earlier attempt wrote.
    pub continued: usize,
    /// Maximum number of tokens to write; prompt and reply together fit into the context.
    pub max_tokens: u64,
    /// How tokens are sampled.
    pub sampling: Sampling,
    /// Texts that end the reply.
    pub stops: Vec<String>,
    /// Functions that the reply may call.
    pub offer: Option<Offer>,
    /// Restricts the tokens that may be chosen.
    pub grammar: Option<LlamaSampler>,
    /// Scope whose cached prefixes it may use.
    pub scope: String,
    /// Receives events, and signals cancellation.
    pub context: RunContext,
    /// Receives the outcome; closed when the run was dropped.
    pub done: oneshot::Sender<Outcome>,
}

impl Job {
    /// Whether it was cancelled or dropped.
    pub fn is_stopped(&self) -> bool {
        self.context.cancel.is_cancelled() || self.done.is_closed()
    }
}
