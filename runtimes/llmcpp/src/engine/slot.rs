//! One running job: what it has read and written, and how its text is sent.

use island_protocol::{
    job::{Failure, FailureCode, FinishReason, Outcome, Usage},
    reply::{CallDelta, TokenLogprob},
};
use island_runtimes_api::Phase;
use llama_cpp_2::{context::LlamaContext, token::LlamaToken};

use std::collections::VecDeque;

use super::{
    Job, Reasoning,
    draft::{DraftCost, Drafts},
    order::Prompt,
};
use crate::{
    logprobs::Pending,
    model::Model,
    reasoning::Part,
    sampling::Sampler,
    stop::StopMatcher,
    text::Characters,
    tools::calls::{CallFinder, Ending, Found},
};

/// Minimum length of a prompt whose reading reports progress, tokens.
const LONG_PROMPT: usize = 256;

/// What a step wrote.
#[derive(Debug)]
pub(super) struct Written {
    /// Number of guessed tokens that were chosen.
    pub(super) right: usize,
    /// Why the reply ended; `None` if it goes on.
    pub(super) end: Option<FinishReason>,
}

/// A job that has a sequence.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) job: Job,
    pub(super) sequence: usize,
    /// Tokens of the prompt that are in the cache.
    pub(super) read: usize,
    /// Steps since it has a sequence.
    pub(super) waited: usize,
    /// The latest step that it had rows in, where slots take turns.
    pub(super) latest_step: u64,
    /// The last token chosen, not in the cache yet.
    pub(super) next: Option<LlamaToken>,
    written: u64,
    /// Guesses of its next tokens, if any are made.
    drafts: Option<Drafts>,
    sampler: Sampler,
    characters: Characters,
    stop: StopMatcher,
    calls: Option<CallFinder>,
    reasoning: Option<Reasoning>,
    /// Tokens to write next instead of sampled ones.
    forced: VecDeque<LlamaToken>,
    /// Number of tokens whose text was not sent yet.
    unsent: u32,
    /// Probabilities of tokens whose text was not sent yet.
    logprobs: Pending,
}

impl Slot {
    /// A slot in `sequence` whose first `keep` prompt tokens are in the cache already.
    pub(super) fn new(mut job: Job, sequence: usize, keep: usize, model: &Model, drafts: bool) -> Self {
        job.context.work.enter(Phase::Prompt);
        let grammar = job.grammar.take();
        let sampler = Sampler::new(
            job.sampling.clone(),
            model.llama.n_vocab(),
            &job.prompt,
            job.continued,
            job.max_tokens,
            grammar,
        );
        let calls = job.calls.take();
        let stop = StopMatcher::new(std::mem::take(&mut job.stops));
        let reasoning = job.reasoning.take();
        let drafts = drafts.then(|| Drafts::new(&job.prompt));
        Self {
            job,
            sequence,
            read: keep,
            waited: 0,
            latest_step: 0,
            next: None,
            written: 0,
            drafts,
            sampler,
            characters: Characters::default(),
            stop,
            calls,
            reasoning,
            forced: VecDeque::new(),
            unsent: 0,
            logprobs: Pending::default(),
        }
    }

    /// Whether its prompt is not completely read.
    pub(super) fn is_reading(&self) -> bool {
        self.read < self.job.prompt.len()
    }

    /// The unread part of its prompt.
    pub(super) fn prompt(&self) -> Prompt {
        Prompt { unread: self.job.prompt.len() - self.read, waited: self.waited }
    }

    /// Position in the sequence of the next token to decode.
    pub(super) fn position(&self) -> usize {
        let written = self.job.prompt.len() + self.written as usize;
        self.job.position(if self.is_reading() { self.read } else { written - 1 })
    }

    /// Number of prompt tokens that can be read as a part of a batch: up to the next picture.
    pub(super) fn readable(&self) -> usize {
        let end = self.job.next_picture(self.read).map_or(self.job.prompt.len(), |placed| placed.at);
        end - self.read
    }

    /// Records that a part of the prompt is in the cache.
    pub(super) fn has_read(&mut self, tokens: usize) {
        self.read += tokens;
        self.job.context.work.advance(tokens as u64);
        let total = self.job.prompt.len();
        if total >= LONG_PROMPT {
            self.job.context.events.progress("prompt", self.read as u64, total as u64);
        }
        if !self.is_reading() {
            self.job.context.work.enter(Phase::Run);
        }
    }

    /// The tokens to decode behind the next one, in case they are chosen.
    pub(super) fn draft(&self, cost: &DraftCost) -> &[LlamaToken] {
        // A step chooses one token more than it has guessed ones.
        let most = self.job.max_tokens.saturating_sub(self.written + 1);
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        self.drafts.as_ref().map_or(&[], |drafts| drafts.offer(most, cost))
    }

    /// Chooses the next token by a row of the batch that was just decoded, and one more for each token of the draft that was chosen.
    pub(super) fn write(
        &mut self,
        context: &LlamaContext<'_>,
        row: i32,
        draft: &[LlamaToken],
        model: &Model,
    ) -> Written {
        let mut right = 0;
        loop {
            let end = self.write_token(context, row + right as i32, model);
            if end.is_some() || draft.get(right).is_none_or(|&guessed| self.next != Some(guessed)) {
                return Written { right, end };
            }
            right += 1;
        }
    }

    /// Samples the next token from a row of the batch that was just decoded, and sends its text. Returns the reason if it was the last.
    fn write_token(&mut self, context: &LlamaContext<'_>, row: i32, model: &Model) -> Option<FinishReason> {
        self.limit_reasoning();
        let in_answer = self.reasoning.as_ref().is_none_or(|reasoning| reasoning.splitter.is_answer());
        let token = if let Some(token) = self.forced.pop_front() {
            self.sampler.accept(token)
        } else {
            self.sampler.choose(context, row, in_answer)
        };
        self.job.context.work.advance(1);
        let vocab = model.llama.vocab();
        if vocab.is_eog(token) {
            self.finish_text();
            return Some(FinishReason::Stop);
        }
        self.written += 1;
        self.unsent += 1;
        self.next = Some(token);
        if let Some(drafts) = &mut self.drafts {
            drafts.push(token);
        }
        let is_delimiter =
            model.delimiters.contains(&token) || (self.calls.is_some() && model.call_marks.contains(&token));
        let characters = self.characters.push(&vocab.token_to_piece(token, is_delimiter, None));
        let has_text = !characters.is_empty();
        let parts = match &mut self.reasoning {
            Some(reasoning) => reasoning.splitter.push(&characters),
            None => vec![Part::Answer(characters)],
        };
        if in_answer && let Some(probabilities) = self.sampler.probabilities(context, row, token) {
            let length = parts.iter().map(Part::answer_len).sum();
            let is_outside =
                self.reasoning.as_ref().is_some_and(|reasoning| reasoning.splitter.is_outside_answer());
            if has_text && length == 0 && is_outside {
                self.logprobs.leave_out();
            } else {
                self.logprobs.push(&probabilities, &vocab, length);
            }
        }
        if self.send_parts(parts) {
            return Some(FinishReason::Stop);
        }
        if self.written >= self.job.max_tokens {
            let is_stopped = self.finish_text();
            return Some(if is_stopped { FinishReason::Stop } else { FinishReason::Length });
        }
        None
    }

    /// Ends the job as completed.
    pub(super) fn complete(mut self, reason: FinishReason) {
        let (mut output, mut finish_reason) = (None, reason);
        if let Some(calls) = self.calls.take() {
            match calls.finish() {
                Ending::Text(held) => self.send(held),
                Ending::Calls { parts, output: calls, text, is_complete } => {
                    self.send_calls(parts);
                    // Tokens that no part stands for, such as those of the end of a call, are counted.
                    self.job.context.events.token(text, std::mem::take(&mut self.unsent));
                    output = Some(calls);
                    if is_complete || reason != FinishReason::Length {
                        finish_reason = FinishReason::ToolCalls;
                    }
                }
            }
        }
        let stop_text = self.stop.found().filter(|_| finish_reason == FinishReason::Stop).map(str::to_owned);
        let usage = self.usage();
        self.end(Outcome::Completed { usage, output, finish_reason: Some(finish_reason), stop_text });
    }

    /// Ends a cancelled job.
    pub(super) fn interrupt(self) {
        let usage = self.usage();
        self.end(Outcome::Failed { failure: interrupted(), usage });
    }

    /// Ends the job because of a failure.
    pub(super) fn fail(self, failure: Failure) {
        let usage = self.usage();
        self.end(Outcome::Failed { failure, usage });
    }

    fn usage(&self) -> Usage {
        let (read, before) = (self.job.prompt.len(), self.job.continued);
        Usage::tokens((read - before) as u64, before as u64 + self.written)
    }

    /// Ends the reasoning once its budget is used up. Called before each token.
    fn limit_reasoning(&mut self) {
        let Some(Reasoning { splitter, budget: Some(left), closing }) = &mut self.reasoning else { return };
        if !splitter.is_reasoning() {
            return;
        }
        match left.checked_sub(1) {
            Some(fewer) => *left = fewer,
            None => self.forced.extend(std::mem::take(closing)),
        }
    }

    /// Sends parts of the reply; `true` if a stop text ended it.
    fn send_parts(&mut self, parts: Vec<Part>) -> bool {
        for part in parts {
            match part {
                Part::Reasoning(text) => {
                    self.job.context.events.reasoning(text, std::mem::take(&mut self.unsent));
                }
                Part::Answer(text) => {
                    let shown = self.stop.push(&text);
                    self.send(shown.text);
                    if shown.stopped {
                        return true;
                    }
                }
            }
        }
        false
    }

    /// Sends the text that was held back, after the last token; `true` if a stop text is in it.
    fn finish_text(&mut self) -> bool {
        let held = self.reasoning.take().map(|reasoning| reasoning.splitter.finish()).unwrap_or_default();
        if self.send_parts(held) {
            return true;
        }
        let held = self.stop.finish();
        self.send(held);
        let logprobs = self.logprobs.take_all();
        if !logprobs.is_empty() && self.calls.is_none() {
            self.emit(String::new(), logprobs);
        }
        false
    }

    fn send(&mut self, text: String) {
        let Found { text, calls } = match &mut self.calls {
            Some(calls) => calls.push(&text),
            None => Found { text, calls: Vec::new() },
        };
        if !text.is_empty() {
            let logprobs = self.logprobs.take(&text);
            self.emit(text, logprobs);
        }
        self.send_calls(calls);
    }

    fn send_calls(&mut self, parts: Vec<CallDelta>) {
        for part in parts {
            self.job.context.events.call(part, std::mem::take(&mut self.unsent));
        }
    }

    fn emit(&mut self, text: String, logprobs: Vec<TokenLogprob>) {
        let count = std::mem::take(&mut self.unsent);
        self.job.context.events.token_with_logprobs(text, count, logprobs);
    }

    fn end(self, outcome: Outcome) {
        end(self.job, outcome);
    }
}

/// Ends a job that has no slot.
pub(super) fn end(job: Job, outcome: Outcome) {
    let Job { context, done, .. } = job;
    // The sink is dropped first: when the outcome arrives, all events have arrived.
    drop(context);
    // Without a receiver the job was dropped.
    let _ = done.send(outcome);
}

/// The failure of a cancelled job.
pub(super) fn interrupted() -> Failure {
    Failure::interrupted(FailureCode::CancelledByUser, "the run was cancelled")
}
