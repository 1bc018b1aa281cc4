//! Completions of texts, in the form of OpenAI's older API.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use island_protocol::{
    job::{FinishReason, Usage},
    reply::TokenLogprob,
};
use island_protocol_api::completions::{Completion, CompletionChoice, CompletionLogprobs, CompletionRequest};

use super::{
    parts::{End, Part},
    reply::{Head, Whole, sum},
    request,
    stream::{Encode, Tally},
};
use crate::ApiError;
use island_coordinator_domain::sse;

/// The text with which an answer begins: the prompt if the request wants it repeated, otherwise nothing.
pub(super) fn echo(request: &CompletionRequest) -> String {
    if request.echo {
        request::text_of(&request.prompt).unwrap_or_default().to_owned()
    } else {
        String::new()
    }
}

fn completion(head: &Head, choices: Vec<CompletionChoice>, usage: Option<Usage>) -> Completion {
    Completion {
        id: format!("cmpl-{}", head.job),
        object: "text_completion".to_owned(),
        created: head.created,
        model: head.model.clone(),
        choices,
        usage,
    }
}

/// Converts probabilities; `offset` is where the first token begins, in characters, and is moved behind the last one.
fn lists(tokens: &[TokenLogprob], offset: &mut u64) -> CompletionLogprobs {
    let mut lists = CompletionLogprobs::default();
    for TokenLogprob { token, top_logprobs } in tokens {
        lists.text_offset.push(*offset);
        *offset += token.token.chars().count() as u64;
        lists.tokens.push(token.token.clone());
        lists.token_logprobs.push(token.logprob);
        lists.top_logprobs.push(top_logprobs.iter().map(|one| (one.token.clone(), one.logprob)).collect());
    }
    lists
}

fn length(text: &str) -> u64 {
    text.chars().count() as u64
}

/// The whole completions of one request.
pub(super) fn whole(head: &Head, wholes: Vec<Whole>, echo: &str, has_logprobs: bool) -> Completion {
    let usage = sum(wholes.iter().map(|whole| &whole.usage));
    let choice = |(index, whole): (u32, Whole)| CompletionChoice {
        index,
        text: format!("{echo}{}", whole.text),
        logprobs: has_logprobs.then(|| lists(&whole.logprobs, &mut length(echo))),
        finish_reason: Some(whole.finish_reason),
    };
    completion(head, (0..).zip(wholes).map(choice).collect(), Some(usage))
}

/// Writes `data` events of one of the completions, as [`super::completion::Chunks`].
pub(super) struct Pieces {
    head: Head,
    index: u32,
    echo: String,
    /// Where the next token begins, in characters.
    offset: u64,
    tally: Arc<Tally>,
    include_usage: bool,
}

impl Pieces {
    /// The encoders of all completions of a request; `head` is that of the first one.
    pub(super) fn of(
        head: &Head,
        replies: usize,
        echo: &str,
        include_usage: bool,
    ) -> impl Iterator<Item = Self> {
        let (head, tally, echo) = (head.clone(), Arc::new(Tally::new(replies)), echo.to_owned());
        (0..).map(move |index| Self {
            head: head.clone(),
            index,
            offset: length(&echo),
            echo: echo.clone(),
            tally: tally.clone(),
            include_usage,
        })
    }

    fn piece(
        &mut self,
        text: String,
        logprobs: &[TokenLogprob],
        finish_reason: Option<FinishReason>,
    ) -> Bytes {
        let logprobs = (!logprobs.is_empty()).then(|| lists(logprobs, &mut self.offset));
        let choice = CompletionChoice { index: self.index, text, logprobs, finish_reason };
        sse::data_frame(&completion(&self.head, vec![choice], None))
    }

    /// The end of the stream, after the last completion.
    fn end(&self, usage: Usage) -> Bytes {
        let mut bytes = BytesMut::new();
        if self.include_usage {
            bytes.extend(sse::data_frame(&completion(&self.head, Vec::new(), Some(usage))));
        }
        bytes.extend(sse::CHAT_DONE);
        bytes.freeze()
    }
}

impl Encode for Pieces {
    fn begin(&mut self, _head: &Head) -> Bytes {
        let echo = std::mem::take(&mut self.echo);
        if echo.is_empty() { Bytes::new() } else { self.piece(echo, &[], None) }
    }

    fn part(&mut self, _head: &Head, part: Part) -> Bytes {
        match part {
            Part::Text { text, logprobs } => self.piece(text, &logprobs, None),
            // Text that is not a conversation has neither.
            Part::Reasoning(_) | Part::Call(_) => Bytes::new(),
            Part::Done(End { usage, finish_reason, .. }) => {
                let mut bytes = BytesMut::from(self.piece(String::new(), &[], Some(finish_reason)));
                bytes.extend(self.tally.ended(&usage).map(|usage| self.end(usage)).unwrap_or_default());
                bytes.freeze()
            }
        }
    }

    fn error(&mut self, _head: &Head, error: ApiError) -> Bytes {
        let mut bytes = BytesMut::from(sse::data_frame(&error.body()));
        bytes.extend(self.tally.failed().map(|usage| self.end(usage)).unwrap_or_default());
        bytes.freeze()
    }
}
