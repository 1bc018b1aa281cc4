//! Reads the reply of a job, whatever the API in whose form it is answered.

use std::{collections::VecDeque, ops::Add, sync::Arc, time::Duration};

use island_protocol::{
    ids::{HostId, JobId},
    job::{CompletionTokensDetails, FinishReason, Usage},
    reply::TokenLogprob,
};
use island_protocol_api::{chat::ToolCall, problem::Code};
use tokio::time::timeout;

use super::parts::{End, Part, Parts, Piece, add_part};
use crate::{ApiError, native::jobs::follow::Followed};
use island_coordinator_domain::job::{CANCELLED_BY_OPERATOR, Job};
use island_coordinator_execution::job_handle::JobHandle;

/// What is known of a reply before its first part.
#[derive(Debug, Clone)]
pub(crate) struct Head {
    pub job: JobId,
    /// Slug of the Cargo that runs.
    pub model: String,
    /// Unix seconds.
    pub created: i64,
}

/// A reply in progress. Dropped before its end, it cancels the job.
#[derive(Debug)]
pub(crate) struct Reply {
    handle: Arc<JobHandle>,
    followed: Followed,
    head: Head,
    parts: Parts,
    /// Read but not yet returned.
    ready: VecDeque<Piece>,
}

/// A whole reply.
#[derive(Debug)]
pub(crate) struct Whole {
    pub reasoning: String,
    pub text: String,
    /// Probabilities of the tokens of the text, if requested.
    pub logprobs: Vec<TokenLogprob>,
    pub calls: Option<Vec<ToolCall>>,
    pub usage: Usage,
    pub finish_reason: FinishReason,
}

/// What several replies used.
pub(crate) fn sum<'u>(all: impl IntoIterator<Item = &'u Usage>) -> Usage {
    all.into_iter().fold(Usage::default(), |total, one| {
        let details = [total.completion_tokens_details, one.completion_tokens_details];
        let reasoning_tokens = details.iter().flatten().map(|details| details.reasoning_tokens).sum();
        Usage {
            completion_tokens_details: details
                .iter()
                .any(Option::is_some)
                .then_some(CompletionTokensDetails { reasoning_tokens }),
            credits_used: [total.credits_used, one.credits_used].into_iter().flatten().reduce(Add::add),
            fuel: total.fuel.or(one.fuel),
            device: total.device.or_else(|| one.device.clone()),
            ..Usage::tokens(
                total.prompt_tokens.saturating_add(one.prompt_tokens),
                total.completion_tokens.saturating_add(one.completion_tokens),
            )
        }
    })
}

/// The error for a failed job.
pub(crate) fn problem(code: &str, message: &str) -> ApiError {
    let code = match code {
        "context_length_exceeded" => Code::ContextLengthExceeded,
        "invalid_input" => Code::InvalidInput,
        "deadline_exceeded" => Code::JobTimeout,
        "no_island_available" => Code::NoIslandAvailable,
        _ => {
            let failed = ApiError::new(Code::JobFailed, format!("{message} ({code})"));
            // An operator who ends a job that harms the network does not want it again.
            return if code == CANCELLED_BY_OPERATOR { failed.never_repeated() } else { failed };
        }
    };
    ApiError::new(code, message)
}

impl Reply {
    pub(super) fn new(followed: Followed, job: &Job, shows_reasoning: bool) -> Self {
        let handle = followed.guard.handle();
        let (model, created) = (job.workload.to_string(), job.created_at.unix_ms() / 1000);
        let head = Head { job: handle.id, model, created };
        Self { handle, followed, head, parts: Parts::new(shows_reasoning), ready: VecDeque::new() }
    }

    /// What is known before the first part.
    pub(crate) fn head(&self) -> &Head {
        &self.head
    }

    /// The Island that runs the job, and whether it ran the last one of the same conversation.
    pub(super) fn island(&self) -> Option<(HostId, bool)> {
        self.handle.island()
    }

    /// Whether there is nothing to send yet.
    pub(super) fn is_silent(&self) -> bool {
        self.ready.is_empty()
    }

    /// The next piece that was read.
    pub(super) fn next_ready(&mut self) -> Option<Piece> {
        self.ready.pop_front()
    }

    /// Waits up to `wait` for an Island that accepts the job, and then up to `delay` for the first piece. Errors until
    /// then are answered with their HTTP status.
    pub(super) async fn begin(&mut self, wait: Duration, delay: Duration) -> Result<(), ApiError> {
        let accepted = self.followed.accepted(wait, &self.head.model);
        let is_read = tokio::select! {
            biased;
            _ = self.fill() => true,
            accepted = accepted => {
                accepted?;
                false
            }
        };
        if !is_read && timeout(delay, self.fill()).await.is_err() {
            return Ok(());
        }
        match self.ready.front() {
            Some(Piece::Failed { code, message }) => Err(problem(code, message)),
            Some(_) => Ok(()),
            None => Err(self.interruption()),
        }
    }

    /// Lets the job run to its end even if the client disconnects.
    pub(super) fn outlive_client(&mut self) {
        self.followed.guard.disarm();
    }

    /// Reads until there is a piece. Returns `false` if there are no more. Cancel safe.
    pub(super) async fn fill(&mut self) -> bool {
        while self.ready.is_empty() {
            let Some(entries) = self.followed.next().await else { return false };
            for entry in entries {
                self.parts.read(&entry.event.event, &mut self.ready);
            }
        }
        true
    }

    /// Why there are no more events before the end of the reply.
    pub(super) fn interruption(&self) -> ApiError {
        self.followed.interruption()
    }

    /// Waits for the whole reply.
    pub(crate) async fn whole(self) -> Result<Whole, ApiError> {
        let (mut reasoning, mut text, mut logprobs, mut calls) =
            (String::new(), String::new(), Vec::new(), Vec::new());
        let take = |part: Part| match part {
            Part::Reasoning(more) => reasoning.push_str(&more),
            Part::Text { text: more, logprobs: of_more } => {
                text.push_str(&more);
                logprobs.extend(of_more);
            }
            Part::Call(part) => {
                add_part(&mut calls, &part);
            }
            Part::Done { .. } => {}
        };
        let End { usage, finish_reason, .. } = self.read(take).await?;
        let calls = (!calls.is_empty()).then_some(calls);
        Ok(Whole { reasoning, text, logprobs, calls, usage, finish_reason })
    }

    /// Waits for the end of the reply. `take` gets each part before it as it arrives.
    pub(crate) async fn read(mut self, mut take: impl FnMut(Part)) -> Result<End, ApiError> {
        while self.fill().await {
            while let Some(piece) = self.ready.pop_front() {
                match piece {
                    Piece::Failed { code, message } => return Err(problem(&code, &message)),
                    Piece::Part(Part::Done(end)) => return Ok(end),
                    Piece::Part(part) => take(part),
                }
            }
        }
        Err(self.interruption())
    }
}
