//! What OpenAI clients speak.

use island_protocol::{
    api::key::Scope,
    chat::{ChatChunk, ChatCompletion, ChatRequest},
    problem::Code,
};
use serde_json::json;

use super::Routes;
use crate::{api::chat, openapi::operation::Operation};

const ABOUT: &str = "Well-known model names, slugs and aliases are all accepted; for any other name the best model that an \
     Island can serve now is taken, and `model` in the answer names it. With `stream`, the answer is Server-Sent Events \
     of `data` lines that end with `data: [DONE]`. A client that goes away cancels. Fields that are not known are ignored.";

pub(super) fn add(routes: Routes) -> Routes {
    let example = json!({"model": "llm-chat", "messages": [{"role": "user", "content": "What is an island?"}], "max_tokens": 64});
    routes.post(
        "/chat/completions",
        chat::complete,
        Operation::keyed("Chat", "createChatCompletion", "Complete a chat", Scope::Write)
            .about(ABOUT)
            .once()
            .takes::<ChatRequest>(Some(example))
            .fails(&[
                Code::InvalidInput,
                Code::ContextLengthExceeded,
                Code::InsufficientCredits,
                Code::ConcurrentJobsExceeded,
                Code::ConcurrentStreamsExceeded,
                Code::JobFailed,
                Code::NoIslandAvailable,
                Code::JobTimeout,
            ])
            .answers_or_streams::<ChatCompletion, ChatChunk>("The reply"),
    )
}
