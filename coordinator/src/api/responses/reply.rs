//! A reply in the form of OpenAI's newer API.

use bytes::{Bytes, BytesMut};
use island_protocol::{
    chat::{CallDelta, FunctionCall, TokenLogprob, ToolCall},
    event::{JobEvent, Numbered},
    job::{FinishReason, Usage},
    problem::Code,
    responses::{
        ContentPart, IncompleteDetails, InputTokensDetails, Item, OutputTokensDetails, Response,
        ResponseChange, ResponseError, ResponseEvent, ResponseStatus, ResponseUsage,
    },
};
use serde_json::{Value, json};

use super::{id_of, stored::Stored};
use crate::{
    api::{
        ApiError,
        chat::{
            reply::{Head, Part, Whole, add_part},
            stream::Encode,
        },
    },
    sse,
};

/// What the model has written of a response.
#[derive(Debug, Clone, Default)]
pub(super) struct Written {
    reasoning: String,
    text: String,
    logprobs: Vec<TokenLogprob>,
    calls: Vec<ToolCall>,
    pub usage: Option<Usage>,
    pub finish_reason: Option<FinishReason>,
}

impl Written {
    /// What the events of a job contain.
    pub(super) fn of(events: Vec<Numbered<JobEvent>>) -> Self {
        let mut written = Self::default();
        for Numbered { event, .. } in events {
            match event {
                JobEvent::Token { content, reasoning: true, .. } => written.reasoning.push_str(&content),
                JobEvent::Token { content, reasoning: false, logprobs, call } => {
                    written.text.push_str(&content);
                    written.logprobs.extend(logprobs);
                    if let Some(part) = call {
                        add_part(&mut written.calls, &part);
                    }
                }
                JobEvent::Done { finish_reason, .. } => written.finish_reason = finish_reason,
                _ => {}
            }
        }
        written
    }

    /// Adds what a stored output has beyond the events, which may have been deleted.
    pub(super) fn add_output(&mut self, output: Option<&Value>) {
        match output {
            Some(Value::String(text)) => self.text.clone_from(text),
            Some(output) => {
                // The output was checked against the Cargo's schema when the job ended.
                self.calls = serde_json::from_value(output["tool_calls"].clone()).unwrap_or_default();
            }
            None => {}
        }
    }

    fn add(&mut self, part: &Part) {
        match part {
            Part::Reasoning(text) => self.reasoning.push_str(text),
            Part::Text { text, logprobs } => {
                self.text.push_str(text);
                self.logprobs.extend(logprobs.iter().cloned());
            }
            Part::Call(part) => {
                add_part(&mut self.calls, part);
            }
            Part::Done { usage, finish_reason } => {
                self.usage = Some(usage.clone());
                self.finish_reason = Some(*finish_reason);
            }
        }
    }

    fn items(self, head: &Head, state: ResponseStatus) -> Vec<Item> {
        let state = if state == ResponseStatus::Completed { state } else { ResponseStatus::Incomplete };
        let mut items = Vec::new();
        if !self.reasoning.is_empty() {
            items.push(reasoning(head, items.len(), self.reasoning, ResponseStatus::Completed));
        }
        if !self.text.is_empty() {
            items.push(text(head, items.len(), self.text, self.logprobs, state));
        }
        let last = self.calls.len();
        for (number, one) in (1..).zip(self.calls) {
            let state = if number == last { state } else { ResponseStatus::Completed };
            items.push(call(head, items.len(), one, state));
        }
        items
    }
}

fn reasoning(head: &Head, index: usize, text: String, status: ResponseStatus) -> Item {
    let content = if text.is_empty() { Vec::new() } else { vec![ContentPart::ReasoningText { text }] };
    Item::Reasoning { id: format!("rs_{index}_{}", head.job), summary: Vec::new(), content, status }
}

fn text(
    head: &Head,
    index: usize,
    text: String,
    logprobs: Vec<TokenLogprob>,
    status: ResponseStatus,
) -> Item {
    let content = if text.is_empty() { Vec::new() } else { vec![output_text(text, logprobs)] };
    Item::Message { id: format!("msg_{index}_{}", head.job), role: "assistant".to_owned(), content, status }
}

fn output_text(text: String, logprobs: Vec<TokenLogprob>) -> ContentPart {
    ContentPart::OutputText { text, annotations: Vec::new(), logprobs }
}

fn call(head: &Head, index: usize, call: ToolCall, status: ResponseStatus) -> Item {
    Item::FunctionCall {
        id: call_id(head, index),
        call_id: call.id,
        name: call.function.name,
        arguments: call.function.arguments,
        status,
    }
}

fn call_id(head: &Head, index: usize) -> String {
    format!("fc_{index}_{}", head.job)
}

fn item_id(item: &Item) -> String {
    let (Item::Reasoning { id, .. } | Item::Message { id, .. } | Item::FunctionCall { id, .. }) = item;
    id.clone()
}

fn counts(usage: &Usage) -> ResponseUsage {
    let details = usage.completion_tokens_details.unwrap_or_default();
    ResponseUsage {
        input_tokens: usage.prompt_tokens,
        input_tokens_details: InputTokensDetails::default(),
        output_tokens: usage.completion_tokens,
        output_tokens_details: OutputTokensDetails { reasoning_tokens: details.reasoning_tokens },
        total_tokens: usage.total_tokens,
    }
}

/// A response in this state.
pub(super) fn response(head: &Head, about: &Stored, status: ResponseStatus, written: Written) -> Response {
    let is_incomplete = status == ResponseStatus::Incomplete;
    Response {
        id: id_of(head.job),
        object: "response".to_owned(),
        created_at: head.created,
        status,
        background: about.background,
        error: None,
        incomplete_details: is_incomplete
            .then(|| IncompleteDetails { reason: "max_output_tokens".to_owned() }),
        instructions: about.instructions.clone(),
        max_output_tokens: about.max_output_tokens,
        model: head.model.clone(),
        usage: written.usage.as_ref().map(counts),
        output: written.items(head, status),
        parallel_tool_calls: about.parallel_tool_calls.unwrap_or(true),
        previous_response_id: about.previous_response_id.clone(),
        reasoning: about.reasoning.clone(),
        store: about.is_kept(),
        temperature: about.temperature,
        text: about.text.clone(),
        tool_choice: about.tool_choice.clone().unwrap_or_else(|| json!("auto")),
        tools: about.tools.clone(),
        top_p: about.top_p,
        truncation: "disabled".to_owned(),
        metadata: about.metadata.clone(),
    }
}

fn final_state(reason: Option<FinishReason>) -> ResponseStatus {
    if reason == Some(FinishReason::Length) { ResponseStatus::Incomplete } else { ResponseStatus::Completed }
}

/// The whole response.
pub(super) fn whole(head: &Head, about: &Stored, whole: Whole) -> Response {
    let Whole { reasoning, text, logprobs, calls, usage, finish_reason } = whole;
    let written = Written {
        reasoning,
        text,
        logprobs,
        calls: calls.unwrap_or_default(),
        usage: Some(usage),
        finish_reason: Some(finish_reason),
    };
    response(head, about, final_state(written.finish_reason), written)
}

/// The item that is being written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Reasoning,
    Text,
    Call,
}

/// Writes named events: each item begins, grows and ends.
pub(super) struct Events {
    about: Stored,
    written: Written,
    open: Option<Kind>,
    /// Index of the next item.
    next: u32,
    /// Number of the next event.
    number: u64,
}

impl Events {
    /// Those of a response to this request.
    pub(super) fn new(about: Stored) -> Self {
        Self { about, written: Written::default(), open: None, next: 0, number: 0 }
    }

    fn frame(&mut self, change: ResponseChange, bytes: &mut BytesMut) {
        let name: &'static str = (&change).into();
        let sequence_number = self.number;
        self.number += 1;
        bytes.extend(sse::named_frame(name, &ResponseEvent { change, sequence_number }));
    }

    /// Begins the item of a call.
    fn open_call(&mut self, head: &Head, begun: ToolCall, bytes: &mut BytesMut) {
        self.close(head, bytes);
        let item = call(head, self.next as usize, begun, ResponseStatus::InProgress);
        let output_index = self.next;
        self.next += 1;
        self.open = Some(Kind::Call);
        self.frame(ResponseChange::ItemAdded { output_index, item }, bytes);
    }

    /// Ends the item of the last call.
    fn close_call(&mut self, head: &Head, output_index: u32, bytes: &mut BytesMut) {
        let Some(one) = self.written.calls.last().cloned() else { return };
        let (name, arguments) = (one.function.name.clone(), one.function.arguments.clone());
        let item = call(head, output_index as usize, one, final_state(self.written.finish_reason));
        let item_id = item_id(&item);
        self.frame(ResponseChange::ArgumentsDone { item_id, output_index, name, arguments }, bytes);
        self.frame(ResponseChange::ItemDone { output_index, item }, bytes);
    }

    /// Begins an item of text, unless it is open.
    fn open(&mut self, kind: Kind, head: &Head, bytes: &mut BytesMut) {
        if self.open == Some(kind) {
            return;
        }
        self.close(head, bytes);
        let (output_index, index) = (self.next, self.next as usize);
        self.next += 1;
        self.open = Some(kind);
        let (item, part) = match kind {
            Kind::Reasoning => (
                reasoning(head, index, String::new(), ResponseStatus::InProgress),
                ContentPart::ReasoningText { text: String::new() },
            ),
            Kind::Text | Kind::Call => (
                text(head, index, String::new(), Vec::new(), ResponseStatus::InProgress),
                output_text(String::new(), Vec::new()),
            ),
        };
        let item_id = item_id(&item);
        self.frame(ResponseChange::ItemAdded { output_index, item }, bytes);
        self.frame(ResponseChange::PartAdded { item_id, output_index, content_index: 0, part }, bytes);
    }

    /// Ends the item that is being written.
    fn close(&mut self, head: &Head, bytes: &mut BytesMut) {
        let Some(kind) = self.open.take() else { return };
        let (output_index, index) = (self.next - 1, self.next as usize - 1);
        let (item, part, done) = match kind {
            Kind::Call => return self.close_call(head, output_index, bytes),
            Kind::Reasoning => {
                let written = self.written.reasoning.clone();
                let item = reasoning(head, index, written.clone(), ResponseStatus::Completed);
                let done = ResponseChange::ReasoningDone {
                    item_id: item_id(&item),
                    output_index,
                    content_index: 0,
                    text: written.clone(),
                };
                (item, ContentPart::ReasoningText { text: written }, done)
            }
            Kind::Text => {
                let (written, logprobs) = (self.written.text.clone(), self.written.logprobs.clone());
                let state = final_state(self.written.finish_reason);
                let item = text(head, index, written.clone(), logprobs.clone(), state);
                let done = ResponseChange::TextDone {
                    item_id: item_id(&item),
                    output_index,
                    content_index: 0,
                    text: written.clone(),
                    logprobs: logprobs.clone(),
                };
                (item, output_text(written, logprobs), done)
            }
        };
        let item_id = item_id(&item);
        self.frame(done, bytes);
        self.frame(ResponseChange::PartDone { item_id, output_index, content_index: 0, part }, bytes);
        self.frame(ResponseChange::ItemDone { output_index, item }, bytes);
    }

    fn call(&mut self, head: &Head, part: &CallDelta, bytes: &mut BytesMut) {
        if let (Some(id), Some(name)) = (&part.id, &part.name) {
            let function = FunctionCall { name: name.clone(), arguments: String::new() };
            let begun = ToolCall { id: id.clone(), kind: "function".to_owned(), function };
            self.open_call(head, begun, bytes);
        }
        if !part.arguments.is_empty() {
            let output_index = self.next - 1;
            let item_id = call_id(head, output_index as usize);
            let delta = part.arguments.clone();
            self.frame(ResponseChange::ArgumentsDelta { item_id, output_index, delta }, bytes);
        }
    }

    fn now(&self, head: &Head, status: ResponseStatus) -> Box<Response> {
        Box::new(response(head, &self.about, status, self.written.clone()))
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
        match &part {
            Part::Reasoning(delta) => {
                self.open(Kind::Reasoning, head, &mut bytes);
                let item_id = item_id(&reasoning(
                    head,
                    self.next as usize - 1,
                    String::new(),
                    ResponseStatus::InProgress,
                ));
                let (output_index, delta) = (self.next - 1, delta.clone());
                let change =
                    ResponseChange::ReasoningDelta { item_id, output_index, content_index: 0, delta };
                self.frame(change, &mut bytes);
            }
            Part::Text { text: delta, logprobs } => {
                self.open(Kind::Text, head, &mut bytes);
                let item =
                    text(head, self.next as usize - 1, String::new(), Vec::new(), ResponseStatus::InProgress);
                let change = ResponseChange::TextDelta {
                    item_id: item_id(&item),
                    output_index: self.next - 1,
                    content_index: 0,
                    delta: delta.clone(),
                    logprobs: logprobs.clone(),
                };
                self.frame(change, &mut bytes);
            }
            Part::Call(part) => self.call(head, part, &mut bytes),
            Part::Done { .. } => {}
        }
        self.written.add(&part);
        if let Part::Done { finish_reason, .. } = part {
            self.close(head, &mut bytes);
            let state = final_state(Some(finish_reason));
            let response = self.now(head, state);
            let change = if state == ResponseStatus::Incomplete {
                ResponseChange::Incomplete { response }
            } else {
                ResponseChange::Completed { response }
            };
            self.frame(change, &mut bytes);
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
