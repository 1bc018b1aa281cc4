//! The thread that owns the context. Each of its steps decodes one token of every running reply, and in addition a part of the waiting
//! prompts: as much as does not delay the replies. All other work happens on other threads.

mod budget;
mod draft;
mod kv_offload;
mod order;
mod sequences;
mod slot;
mod slot_assignment;
mod step;
mod thread;

pub use budget::{Budget, MOST as MAX_BATCH};
pub use draft::{DraftCost, DraftCounts, DraftMode, Drafts};
pub use kv_offload::{KvOffload, OffloadedSequence};
pub use sequences::{Idle, Leaving, Placed, PrefixMatch, Sequences, Source};
pub use thread::{EngineHandle, EngineOptions, Started, start};

use island_protocol::job::Outcome;
use island_runtimes_api::RunContext;
use llama_cpp_2::{sampling::LlamaSampler, token::LlamaToken};
use tokio::sync::oneshot;

use crate::{
    reasoning::Splitter,
    sampling::Sampling,
    tools::calls::CallFinder,
    vision::{Placed as PlacedPicture, Span, keepable, position_shift},
};

/// A job that is ready to run: everything is parsed and encoded.
#[derive(Debug)]
pub struct Job {
    /// The prompt, followed by the text of an earlier attempt; never empty.
    pub prompt: Vec<LlamaToken>,
    /// Its pictures, in order; in the prompt are placeholders.
    pub pictures: Vec<PlacedPicture>,
    /// Number of tokens at its end that an earlier attempt wrote.
    pub continued: usize,
    /// Maximum number of tokens to write; prompt and reply together fit into the context.
    pub max_tokens: u64,
    /// How tokens are sampled.
    pub sampling: Sampling,
    /// Texts that end the reply.
    pub stops: Vec<String>,
    /// Finds its calls, if functions are offered.
    pub calls: Option<CallFinder>,
    /// Separates its reasoning, if the model reasons.
    pub reasoning: Option<Reasoning>,
    /// Restricts the tokens that may be chosen.
    pub grammar: Option<LlamaSampler>,
    /// Scope whose cached prefixes it may use.
    pub scope: String,
    /// Receives events, and signals cancellation.
    pub context: RunContext,
    /// Receives the outcome; closed when the run was dropped.
    pub done: oneshot::Sender<Outcome>,
}

/// The reasoning of a reply.
#[derive(Debug)]
pub struct Reasoning {
    /// Separates it from the answer.
    pub splitter: Splitter,
    /// Number of its tokens that may still be written; `None` if unlimited.
    pub budget: Option<u64>,
    /// Tokens that end it when the budget is used up.
    pub closing: Vec<LlamaToken>,
}

impl Job {
    /// Position in a sequence of the token at `index` of the prompt and the reply.
    pub fn position(&self, index: usize) -> usize {
        index - position_shift(self.spans(), index)
    }

    /// Whether a token's position may differ from its index.
    pub fn moves_positions(&self) -> bool {
        position_shift(self.spans(), usize::MAX) > 0
    }

    /// Number of tokens that can be kept of `keep` that its prompt has in common with another.
    pub fn keepable(&self, keep: usize) -> usize {
        keepable(self.spans(), keep)
    }

    fn spans(&self) -> impl Iterator<Item = Span> + '_ {
        self.pictures.iter().map(PlacedPicture::span)
    }

    /// The next picture from `index` of the prompt on.
    pub fn next_picture(&self, index: usize) -> Option<&PlacedPicture> {
        self.pictures.iter().find(|placed| placed.at >= index)
    }

    /// Whether it was cancelled or dropped.
    pub fn is_stopped(&self) -> bool {
        self.context.cancel.is_cancelled() || self.done.is_closed()
    }
}
