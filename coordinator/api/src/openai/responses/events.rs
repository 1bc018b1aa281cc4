//! A response as it is written, in the form of OpenAI's newer API.

use bytes::{Bytes, BytesMut};
use island_protocol_api::{
    chat::{FunctionCall, ToolCall},
    problem::Code,
    responses::{Response, ResponseChange, ResponseError, ResponseEvent, ResponseStatus},
};

use super::{
    items::{Draft, Written},
    reply::{final_state, response},
    stored::Stored,
};
use crate::{
    ApiError,
    openai::chat::{
        parts::{End, Part},
        reply::Head,
        stream::Encode,
    },
};
use island_coordinator_domain::sse;

/// Writes named events: each item begins, grows and ends, one after another.
pub(super) struct Events {
    about: Stored,
    written: Written,
    /// Number of the next event.
    number: u64,
}

impl Events {
    /// Those of a response to this request.
    pub(super) fn new(about: Stored) -> Self {
        Self { about, written: Written::default(), number: 0 }
    }

    fn frame(&mut self, change: ResponseChange, bytes: &mut BytesMut) {
        let name: &'static str = (&change).into();
        let sequence_number = self.number;
        self.number += 1;
        bytes.extend(sse::named_frame(name, &ResponseEvent { change, sequence_number }));
    }

    fn begin_item(&mut self, head: &Head, index: usize, bytes: &mut BytesMut) {
        let draft = self.written.drafts[index].begun();
        let (output_index, item_id) = (index as u32, draft.id(head, index));
        let item = draft.item(head, index, ResponseStatus::InProgress);
        self.frame(ResponseChange::ItemAdded { output_index, item }, bytes);
        if let Some(part) = draft.content() {
            self.frame(ResponseChange::PartAdded { item_id, output_index, content_index: 0, part }, bytes);
        }
    }

    fn grow_item(&mut self, head: &Head, index: usize, part: Part, bytes: &mut BytesMut) {
        let (output_index, item_id) = (index as u32, self.written.drafts[index].id(head, index));
        let content_index = 0;
        let change = match part {
            Part::Reasoning(delta) => {
                ResponseChange::ReasoningDelta { item_id, output_index, content_index, delta }
            }
            Part::Text { text: delta, logprobs } => {
                ResponseChange::TextDelta { item_id, output_index, content_index, delta, logprobs }
            }
            Part::Call(part) if !part.arguments.is_empty() => {
                ResponseChange::ArgumentsDelta { item_id, output_index, delta: part.arguments }
            }
            Part::Call(_) | Part::Done { .. } => return,
        };
        self.frame(change, bytes);
    }

    fn end_item(&mut self, head: &Head, index: usize, state: ResponseStatus, bytes: &mut BytesMut) {
        let draft = self.written.drafts[index].clone();
        let (output_index, item_id) = (index as u32, draft.id(head, index));
        let (item, part) = (draft.item(head, index, state), draft.content());
        let (done_id, content_index) = (item_id.clone(), 0);
        let done = match draft {
            Draft::Reasoning(text) => {
                ResponseChange::ReasoningDone { item_id: done_id, output_index, content_index, text }
            }
            Draft::Text { text, logprobs } => {
                ResponseChange::TextDone { item_id: done_id, output_index, content_index, text, logprobs }
            }
            Draft::Call(ToolCall { function: FunctionCall { name, arguments }, .. }) => {
                ResponseChange::ArgumentsDone { item_id: done_id, output_index, name, arguments }
            }
        };
        self.frame(done, bytes);
        if let Some(part) = part {
            self.frame(ResponseChange::PartDone { item_id, output_index, content_index, part }, bytes);
        }
        self.frame(ResponseChange::ItemDone { output_index, item }, bytes);
    }

    fn now(&self, head: &Head, status: ResponseStatus) -> Box<Response> {
        Box::new(response(head, &self.about, status, &self.written))
    }
}

impl Encode for Events {
    fn begin(&mut self, head: &Head) -> Bytes {
        let mut bytes = BytesMut::new();
        let response = self.now(head, ResponseStatus::InProgress);
        self.frame(ResponseChange::Created { response: response.clone() }, &mut bytes);
        self.frame(ResponseChange::InProgress { response }, &mut bytes);
        bytes.freeze()
    }

    fn part(&mut self, head: &Head, part: Part) -> Bytes {
        let mut bytes = BytesMut::new();
        let before = self.written.drafts.len();
        let last = before.checked_sub(1);
        let added = self.written.add(&part);
        if self.written.drafts.len() > before {
            if let Some(last) = last {
                self.end_item(head, last, ResponseStatus::Completed, &mut bytes);
            }
            self.begin_item(head, before, &mut bytes);
        }
        if let Part::Done(End { finish_reason, .. }) = part {
            let state = final_state(finish_reason);
            if let Some(last) = last {
                self.end_item(head, last, state, &mut bytes);
            }
            let response = self.now(head, state);
            let change = if state == ResponseStatus::Incomplete {
                ResponseChange::Incomplete { response }
            } else {
                ResponseChange::Completed { response }
            };
            self.frame(change, &mut bytes);
        } else if let Some(index) = added {
            self.grow_item(head, index, part, &mut bytes);
            if index + 1 < self.written.drafts.len() {
                // Another item was begun after this call, which therefore has ended before.
                self.end_item(head, index, ResponseStatus::Completed, &mut bytes);
            }
        }
        bytes.freeze()
    }

    fn error(&mut self, head: &Head, error: ApiError) -> Bytes {
        let mut bytes = BytesMut::new();
        let mut response = self.now(head, ResponseStatus::Failed);
        let body = error.body();
        let code = if error.code() == Code::ContextLengthExceeded {
            "invalid_prompt".to_owned()
        } else {
            "server_error".to_owned()
        };
        response.error = Some(ResponseError { code, message: body.error.message });
        self.frame(ResponseChange::Failed { response }, &mut bytes);
        bytes.freeze()
    }
}
