//! Stored responses.

use std::collections::{BTreeMap, HashSet, VecDeque};

use island_protocol::{
    ids::JobId,
    job::{FinishReason, JobStatus},
};
use island_protocol_api::{
    chat::{ChatMessage, ReasoningOptions, ToolCall},
    problem::Code,
    responses::{PREFIX, Response, ResponseError, ResponseRequest, ResponseStatus, TextOptions},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{items::Written, reply, request::message};
use crate::{
    Api, ApiError,
    http::auth::Caller,
    openai::chat::{
        parts::{Parts, Piece},
        reply::Head,
    },
};
use island_coordinator_domain::job::Job;
use island_coordinator_execution::stored_events::StoredEvents;
use island_coordinator_storage as storage;

/// What is kept of a request beyond the conversation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Stored {
    pub instructions: Option<String>,
    pub previous_response_id: Option<String>,
    store: Option<bool>,
    pub background: bool,
    pub max_output_tokens: Option<u64>,
    pub temperature: Option<f64>,
    pub top_p: Option<f64>,
    pub tools: Vec<Value>,
    pub tool_choice: Option<Value>,
    pub parallel_tool_calls: Option<bool>,
    pub text: TextOptions,
    pub reasoning: ReasoningOptions,
    pub metadata: BTreeMap<String, String>,
    /// The items of the request, as they were sent.
    input: Value,
    /// Whether the reply reached its maximum length, which is added when its job ends.
    #[serde(skip_serializing)]
    is_cut: bool,
}

impl Stored {
    /// What is kept of a request.
    pub(super) fn of(request: &ResponseRequest) -> Self {
        Self {
            instructions: request.instructions.clone(),
            previous_response_id: request.previous_response_id.clone(),
            store: request.store,
            background: request.background,
            max_output_tokens: request.max_output_tokens,
            temperature: request.temperature,
            top_p: request.top_p,
            tools: request.tools.clone().unwrap_or_default(),
            tool_choice: request.tool_choice.clone(),
            parallel_tool_calls: request.parallel_tool_calls,
            text: request.text.clone().unwrap_or_default(),
            reasoning: request.reasoning.clone().unwrap_or_default(),
            metadata: request.metadata.clone().unwrap_or_default(),
            input: request.input.clone(),
            is_cut: false,
        }
    }

    /// Whether the response can be read later.
    pub(super) fn is_kept(&self) -> bool {
        self.store != Some(false)
    }

    /// As it is stored.
    pub(super) fn text(&self) -> String {
        storage::to_json(self)
    }
}

/// The job of a response. The response of another account, and one that is not stored, are unknown.
pub(super) async fn job_of(api: &Api, caller: &Caller, id: &str) -> Result<JobId, ApiError> {
    read(api, caller, id).await.map(|(job, _)| job.id)
}

async fn read(api: &Api, caller: &Caller, id: &str) -> Result<(Job, Stored), ApiError> {
    let unknown = || ApiError::new(Code::NotFound, "there is no such response; it may have been deleted");
    let job_id: JobId = id.strip_prefix(PREFIX).and_then(|id| id.parse().ok()).ok_or_else(unknown)?;
    let reader = api.store.reader();
    let job = storage::jobs::get(reader, job_id).await?;
    let job = job.filter(|job| job.account == caller.account).ok_or_else(unknown)?;
    let kept = storage::response::get(reader, job_id).await?.ok_or_else(unknown)?;
    let kept = serde_json::from_str(&kept).map_err(ApiError::internal)?;
    Ok((job, kept))
}

fn head(job: &Job) -> Head {
    Head { job: job.id, model: job.workload.to_string(), created: job.created_at.unix_ms() / 1000 }
}

/// A stored response as it is now.
pub(super) async fn get(api: &Api, caller: &Caller, id: &str) -> Result<Response, ApiError> {
    let (job, about) = read(api, caller, id).await?;
    let head = head(&job);
    let live = api.execution.live_state(job.id);
    let (workload_status, end) = (job.status, job.end.clone());
    let status = job.view(live).status;
    let Some(end) = end else {
        let state = if matches!(status, JobStatus::Running) {
            ResponseStatus::InProgress
        } else {
            ResponseStatus::Queued
        };
        return Ok(reply::response(&head, &about, state, &Written::default()));
    };
    let mut written = match StoredEvents::open(&api.store, head.job, 0).await? {
        Some(events) => read_events(events, !about.reasoning.exclude).await?,
        None => end.output.as_ref().map(Written::of_output).unwrap_or_default(),
    };
    written.usage = Some(end.usage);
    let state = match workload_status {
        JobStatus::Completed if about.is_cut || written.finish_reason == Some(FinishReason::Length) => {
            ResponseStatus::Incomplete
        }
        JobStatus::Completed => ResponseStatus::Completed,
        JobStatus::Cancelled => ResponseStatus::Cancelled,
        _ => ResponseStatus::Failed,
    };
    let mut response = reply::response(&head, &about, state, &written);
    if state == ResponseStatus::Failed {
        response.error = end.error.map(|error| ResponseError { code: error.code, message: error.message });
    }
    Ok(response)
}

/// What the events of a job contain, as its stream did.
async fn read_events(mut events: StoredEvents, shows_reasoning: bool) -> Result<Written, ApiError> {
    let (mut written, mut parts) = (Written::default(), Parts::new(shows_reasoning));
    let mut ready = VecDeque::new();
    while let Some(entries) = events.next().await? {
        for entry in entries {
            parts.read(&entry.event.event, &mut ready);
        }
        for piece in ready.drain(..) {
            // Why a job failed is in its row.
            if let Piece::Part(part) = piece {
                written.add(&part);
            }
        }
    }
    Ok(written)
}

/// The conversation of a stored response with the model's reply, without its instructions.
pub(super) async fn conversation(api: &Api, caller: &Caller, id: &str) -> Result<Vec<ChatMessage>, ApiError> {
    let refused = |message: &str| ApiError::field(Code::ValidationError, "previous_response_id", message);
    let (job, about) = read(api, caller, id).await.map_err(|error| match error.code() {
        Code::NotFound => refused("there is no such response; it may have been deleted"),
        _ => error,
    })?;
    if job.status != JobStatus::Completed {
        return Err(refused("only a response that is complete can be continued"));
    }
    let messages = job.input.get("messages").unwrap_or_default();
    let messages: Vec<ChatMessage> = serde_json::from_value(messages)
        .map_err(|_| refused("the model of this response keeps no conversation"))?;
    let skipped = usize::from(about.instructions.is_some());
    let reply = job.end.and_then(|end| end.output).unwrap_or_default();
    let reply = match &reply {
        Value::String(text) => message("assistant", text.clone().into()),
        calls => {
            let read = serde_json::from_value::<Vec<ToolCall>>(calls["tool_calls"].clone());
            let tool_calls = read.map_err(|_| refused("the output of this response was deleted"))?;
            ChatMessage { tool_calls: Some(tool_calls), ..message("assistant", calls["content"].clone()) }
        }
    };
    Ok(messages.into_iter().skip(skipped).chain([reply]).collect())
}

/// All items of a stored response: those of its request, and those that the model wrote.
pub(super) async fn items(api: &Api, caller: &Caller, id: &str) -> Result<Vec<Value>, ApiError> {
    let input = input_items(api, caller, id).await?;
    let Response { output, .. } = get(api, caller, id).await?;
    Ok(input.into_iter().chain(output.iter().map(|item| json!(item))).collect())
}

/// The items of the request of a stored response, in its order.
pub(super) async fn input_items(api: &Api, caller: &Caller, id: &str) -> Result<Vec<Value>, ApiError> {
    let (job, about) = read(api, caller, id).await?;
    Ok(identified(about.input, job.id))
}

/// The items of an input with types and ids. An id that a client sent stays unless an earlier item has it: the pages of a
/// list need ids that differ.
fn identified(input: Value, job: JobId) -> Vec<Value> {
    let mut items = match input {
        Value::String(text) => vec![json!({
            "type": "message", "role": "user", "content": [{"type": "input_text", "text": text}],
        })],
        Value::Array(items) => items,
        _ => Vec::new(),
    };
    let mut ids: HashSet<String> = HashSet::new();
    for (index, item) in items.iter_mut().enumerate() {
        let Some(item) = item.as_object_mut() else { continue };
        item.entry("type").or_insert_with(|| "message".into());
        let sent = item.get("id").and_then(Value::as_str).filter(|id| !id.is_empty() && !ids.contains(*id));
        let id = sent.map_or_else(|| format!("in_{index}_{job}"), str::to_owned);
        item.insert("id".to_owned(), id.as_str().into());
        ids.insert(id);
    }
    items
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn every_item_has_an_id_of_its_own() {
        let job = JobId(Uuid::from_u128(7));
        let ids = |input: Value| -> Vec<Value> {
            identified(input, job).into_iter().map(|item| item["id"].clone()).collect()
        };
        let own = |index: usize| json!(format!("in_{index}_{job}"));
        assert_eq!(ids(json!("hi")), [own(0)]);
        let sent = json!([{"id": "a"}, {"id": null}, {}, {"id": "a"}, {"id": ""}, {"id": 4}, {"id": "b"}]);
        assert_eq!(ids(sent), [json!("a"), own(1), own(2), own(3), own(4), own(5), json!("b")]);
        assert_eq!(identified(json!([{"id": "a"}]), job), [json!({"id": "a", "type": "message"})]);
    }
}
