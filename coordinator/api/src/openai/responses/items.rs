//! The items of a response, in the order in which the model began them: the same in a stream, at its end and when the response is read
//! later.

use island_protocol::{
    job::{FinishReason, Usage},
    reply::{CallDelta, TokenLogprob},
};
use island_protocol_api::{
    chat::{FunctionCall, ToolCall},
    responses::{ContentPart, Item, ResponseStatus},
};
use serde_json::Value;

use crate::openai::chat::{
    parts::{End, Part},
    reply::Head,
};

/// An item, as far as it was written.
#[derive(Debug, Clone)]
pub(super) enum Draft {
    Reasoning(String),
    Text { text: String, logprobs: Vec<TokenLogprob> },
    Call(ToolCall),
}

impl Draft {
    /// The same item before anything was written.
    pub(super) fn begun(&self) -> Self {
        match self {
            Self::Reasoning(_) => Self::Reasoning(String::new()),
            Self::Text { .. } => Self::Text { text: String::new(), logprobs: Vec::new() },
            Self::Call(call) => {
                let function = FunctionCall { name: call.function.name.clone(), arguments: String::new() };
                Self::Call(ToolCall { id: call.id.clone(), kind: call.kind.clone(), function })
            }
        }
    }

    pub(super) fn id(&self, head: &Head, index: usize) -> String {
        let prefix = match self {
            Self::Reasoning(_) => "rs",
            Self::Text { .. } => "msg",
            Self::Call(_) => "fc",
        };
        format!("{prefix}_{index}_{}", head.job)
    }

    /// The text that it contains; `None` for a call.
    pub(super) fn content(&self) -> Option<ContentPart> {
        match self {
            Self::Reasoning(text) => Some(ContentPart::ReasoningText { text: text.clone() }),
            Self::Text { text, logprobs } => Some(ContentPart::OutputText {
                text: text.clone(),
                annotations: Vec::new(),
                logprobs: logprobs.clone(),
            }),
            Self::Call(_) => None,
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Reasoning(text) => text.is_empty(),
            Self::Text { text, logprobs } => text.is_empty() && logprobs.is_empty(),
            Self::Call(_) => false,
        }
    }

    /// The item in this state.
    pub(super) fn item(&self, head: &Head, index: usize, status: ResponseStatus) -> Item {
        let id = self.id(head, index);
        let content = self.content().filter(|_| !self.is_empty()).into_iter().collect();
        match self {
            Self::Reasoning(_) => Item::Reasoning { id, summary: Vec::new(), content, status },
            Self::Text { .. } => Item::Message { id, role: "assistant".to_owned(), content, status },
            Self::Call(call) => Item::FunctionCall {
                id,
                call_id: call.id.clone(),
                name: call.function.name.clone(),
                arguments: call.function.arguments.clone(),
                status,
            },
        }
    }
}

/// What the model has written of a response.
#[derive(Debug, Clone, Default)]
pub(super) struct Written {
    pub drafts: Vec<Draft>,
    pub usage: Option<Usage>,
    pub finish_reason: Option<FinishReason>,
}

impl Written {
    /// Adds a part to its item, which is a new one if another kind of item was written last. Returns the index of the item; `None` for the
    /// end, and for a part of a call that was never begun.
    pub(super) fn add(&mut self, part: &Part) -> Option<usize> {
        match part {
            Part::Reasoning(more) => match self.drafts.last_mut() {
                Some(Draft::Reasoning(text)) => text.push_str(more),
                _ => self.drafts.push(Draft::Reasoning(more.clone())),
            },
            Part::Text { text: more, logprobs: of_more } => match self.drafts.last_mut() {
                Some(Draft::Text { text, logprobs }) => {
                    text.push_str(more);
                    logprobs.extend(of_more.iter().cloned());
                }
                _ => self.drafts.push(Draft::Text { text: more.clone(), logprobs: of_more.clone() }),
            },
            Part::Call(part) => return self.add_to_call(part),
            Part::Done(End { usage, finish_reason, .. }) => {
                self.usage = Some(usage.clone());
                self.finish_reason = Some(*finish_reason);
                return None;
            }
        }
        self.drafts.len().checked_sub(1)
    }

    /// Adds a part to its call, which may be followed by other items.
    fn add_to_call(&mut self, part: &CallDelta) -> Option<usize> {
        let is_call = |(_, item): &(usize, &Draft)| matches!(item, Draft::Call(_));
        let calls: Vec<usize> =
            self.drafts.iter().enumerate().filter(is_call).map(|(position, _)| position).collect();
        let number = part.index as usize;
        if let (Some(id), Some(name), true) = (&part.id, &part.name, number == calls.len()) {
            let function = FunctionCall { name: name.clone(), arguments: part.arguments.clone() };
            let call = ToolCall { id: id.clone(), kind: "function".to_owned(), function };
            self.drafts.push(Draft::Call(call));
            return self.drafts.len().checked_sub(1);
        }
        let position = *calls.get(number)?;
        if let Some(Draft::Call(call)) = self.drafts.get_mut(position) {
            call.function.arguments.push_str(&part.arguments);
        }
        Some(position)
    }

    /// What a stored output contains, of a job whose events were deleted.
    pub(super) fn of_output(output: &Value) -> Self {
        let text = output.as_str().or_else(|| output["content"].as_str()).filter(|text| !text.is_empty());
        let text = text.map(|text| Draft::Text { text: text.to_owned(), logprobs: Vec::new() });
        // The output was checked against the Cargo's schema when the job ended.
        let calls = serde_json::from_value::<Vec<ToolCall>>(output["tool_calls"].clone());
        let calls = calls.unwrap_or_default().into_iter().map(Draft::Call);
        Self { drafts: text.into_iter().chain(calls).collect(), ..Self::default() }
    }

    /// The items of a response in this state. All but the last are complete: the model went on after them.
    pub(super) fn items(&self, head: &Head, state: ResponseStatus) -> Vec<Item> {
        let state = if state == ResponseStatus::Completed { state } else { ResponseStatus::Incomplete };
        let last = self.drafts.len().saturating_sub(1);
        let status = |index| if index == last { state } else { ResponseStatus::Completed };
        self.drafts.iter().enumerate().map(|(index, item)| item.item(head, index, status(index))).collect()
    }
}
