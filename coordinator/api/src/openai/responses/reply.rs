//! A response in the form of OpenAI's newer API.

use island_protocol::job::{FinishReason, Usage};
use island_protocol_api::responses::{
    IncompleteDetails, InputTokensDetails, OutputTokensDetails, Response, ResponseStatus, ResponseUsage,
};
use serde_json::json;

use super::{id_of, items::Written, stored::Stored};
use crate::{
    ApiError,
    openai::chat::{
        parts::Part,
        reply::{Head, Reply},
    },
};

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
pub(super) fn response(head: &Head, about: &Stored, status: ResponseStatus, written: &Written) -> Response {
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

/// The state of a response that has ended with this reason.
pub(super) fn final_state(reason: FinishReason) -> ResponseStatus {
    if reason == FinishReason::Length { ResponseStatus::Incomplete } else { ResponseStatus::Completed }
}

/// Waits for the whole response.
pub(super) async fn whole(reply: Reply, about: &Stored) -> Result<Response, ApiError> {
    let head = reply.head().clone();
    let mut written = Written::default();
    let take = |part: Part| {
        written.add(&part);
    };
    let end = reply.read(take).await?;
    let state = final_state(end.finish_reason);
    written.add(&Part::Done(end));
    Ok(response(&head, about, state, &written))
}
