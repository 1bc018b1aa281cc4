//! Endpoints of the OpenAI API.

use island_protocol::{
    api::{
        key::Scope,
        model::{Model, ModelList},
    },
    chat::{ChatChunk, ChatCompletion, ChatRequest, Embeddings, EmbeddingsRequest},
    images::{ImageEvent, Images, ImagesRequest},
    problem::Code,
};
use serde_json::json;

use super::{Routes, slug};
use crate::{
    api::{chat, embeddings, images, models},
    openapi::operation::Operation,
};

const ABOUT: &str = "`model` is a slug or alias of the catalogue, or one of five well-known names. A Cargo that no Island can serve \
     now is answered with 503 and the reason. For any other name the best model that an Island can serve is used, and \
     `model` in the answer names it. With `stream`, the answer is Server-Sent Events of `data` lines that end with \
     `data: [DONE]`. If the client disconnects, the job is cancelled. Unknown fields are ignored.";

const EMBEDDINGS: &str = "Served by the Cargos of the task feature-extraction. Vectors of different models cannot be compared, \
     so `model` must be the slug or an alias of one of them, and no other model replaces it. If the client disconnects, the job is cancelled.";

const IMAGES: &str = "Served by the Cargos that make images from a prompt. Without `model`, or with one of OpenAI's names, the \
     nearest that an Island can serve is used; any other name must be a slug or alias. Images are PNG files that contain \
     their parameters, and the same seed makes the same images. With `stream`, the answer is Server-Sent Events: up to \
     `partial_images` previews before each image. If the client disconnects, the job is cancelled. Unknown fields are ignored.";

pub(super) fn add(routes: Routes) -> Routes {
    let example = json!({"model": "llm-chat", "messages": [{"role": "user", "content": "What is an island?"}], "max_tokens": 64});
    let routes = routes.post(
        "/chat/completions",
        chat::complete,
        Operation::keyed("Chat", "createChatCompletion", "Complete a chat", Scope::Write)
            .about(ABOUT)
            .idempotent()
            .takes::<ChatRequest>(Some(example))
            .fails(&[
                Code::InvalidInput,
                Code::ContextLengthExceeded,
                Code::InsufficientCredits,
                Code::ConcurrentJobsExceeded,
                Code::QuotaExceeded,
                Code::Maintenance,
                Code::WorkloadDisabled,
                Code::ConcurrentStreamsExceeded,
                Code::JobFailed,
                Code::NoIslandAvailable,
                Code::JobTimeout,
            ])
            .answers_or_streams::<ChatCompletion, ChatChunk>("The reply"),
    );
    routes
        .get(
            "/models",
            models::list,
            Operation::keyed("Chat", "listModels", "List the models that can chat", Scope::Read)
                .answers::<ModelList>(200, "The models"),
        )
        .get(
            "/models/{name}",
            models::get,
            Operation::keyed("Chat", "getModel", "One model", Scope::Read)
                .segment("name", "Slug or alias of a model.", &slug())
                .fails(&[Code::WorkloadNotFound])
                .answers::<Model>(200, "The model"),
        )
        .post(
            "/embeddings",
            embeddings::create,
            Operation::keyed("Chat", "createEmbeddings", "Embed texts", Scope::Write)
                .about(EMBEDDINGS)
                .takes::<EmbeddingsRequest>(Some(
                    json!({"model": "all-minilm-l6-v2", "input": "What is an island?"}),
                ))
                .fails(&[
                    Code::WorkloadNotFound,
                    Code::InvalidInput,
                    Code::InsufficientCredits,
                    Code::ConcurrentJobsExceeded,
                    Code::QuotaExceeded,
                    Code::Maintenance,
                    Code::WorkloadDisabled,
                    Code::JobFailed,
                    Code::NoIslandAvailable,
                    Code::JobTimeout,
                ])
                .answers::<Embeddings>(200, "The embeddings"),
        )
        .post(
            "/images/generations",
            images::create,
            Operation::keyed("Chat", "createImages", "Make images", Scope::Write)
                .about(IMAGES)
                .idempotent()
                .takes::<ImagesRequest>(Some(
                    json!({"prompt": "a lighthouse at dusk, oil on canvas", "size": "512x512"}),
                ))
                .fails(&[
                    Code::WorkloadNotFound,
                    Code::InvalidInput,
                    Code::InsufficientCredits,
                    Code::ConcurrentJobsExceeded,
                    Code::QuotaExceeded,
                    Code::Maintenance,
                    Code::WorkloadDisabled,
                    Code::ConcurrentStreamsExceeded,
                    Code::JobFailed,
                    Code::NoIslandAvailable,
                    Code::JobTimeout,
                ])
                .answers_or_streams::<Images, ImageEvent>("The images"),
        )
}
