//! The one thread that owns the context. Each of its steps decodes one token of every running reply, and beside them a piece of the
//! prompts that wait: as much as lets the replies flow on. Everything else happens on other threads.

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

/// A job ready to run: all that is left is arithmetic.
#[derive(Debug)]
pub struct Job {
    /// The prompt, and behind it what an earlier attempt wrote; never empty.
    pub prompt: Vec<LlamaToken>,
    /// Tokens at the end of it that an earlier attempt wrote.
    pub continued: usize,
    /// Most tokens to write; prompt and reply fit the context together.
    pub max_tokens: u64,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Texts that end the reply.
    pub stops: Vec<String>,
    /// Functions that the reply may call.
    pub offer: Option<Offer>,
    /// Allows only some tokens.
    pub grammar: Option<LlamaSampler>,
    /// Whose cached prefixes it may use.
    pub scope: String,
    /// Whom to tell, and when to stop.
    pub context: RunContext,
    /// Takes the outcome; closed when nobody waits any more.
    pub done: oneshot::Sender<Outcome>,
}

impl Job {
    /// Whether it was cancelled, or dropped by whoever waited.
    pub fn is_stopped(&self) -> bool {
        self.context.cancel.is_cancelled() || self.done.is_closed()
    }
}
