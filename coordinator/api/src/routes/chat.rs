//! Endpoints of the OpenAI API.

use island_protocol_api::{
    audio::AudioRequest,
    chat::{ChatChunk, ChatCompletion, ChatRequest, Embeddings, EmbeddingsRequest},
    completions::{Completion, CompletionRequest},
    images::{ImageEditRequest, ImageEvent, Images, ImagesRequest},
    key::Scope,
    messages::{CountTokensRequest, MessageEvent, MessageReply, MessagesRequest, TokenCount},
    model::{Model, ModelList},
    moderations::{ModerationRequest, Moderations},
    problem::Code,
    rerank::{RerankRequest, Reranking},
    responses::{DeletedResponse, InputItems, InputTokens, Response, ResponseEvent, ResponseRequest},
    speech::{SpeechEvent, SpeechRequest},
};
use serde_json::json;

use super::Routes;
use crate::{
    anthropic::messages,
    openai::{
        audio::{self, AudioAnswer},
        chat, embeddings, images, models, moderations, rerank, responses, speech,
    },
    openapi::operation::Operation,
};

const ABOUT: &str = "`model` is a slug or alias of the catalogue, or the name of a well-known model of others, which means the nearest in size. A Cargo that no Island can serve \
     now is answered with 503 and the reason, a name that was meant for a certain model and is not its name (misspelled, with a tag) with 404 and \
     the nearest names. For any other name the best model that an Island can serve is used; \
     `model` in the answer, and the header `island-substitute`, name it. With `stream`, the answer is Server-Sent Events of `data` lines that end with \
     `data: [DONE]`. If the client disconnects, the job is cancelled. Unknown fields are ignored.";

const EMBEDDINGS: &str = "Served by the Cargos of the task feature-extraction. Vectors of different models cannot be compared, \
     so `model` must be the slug or an alias of one of them, and no other model replaces it. If the client disconnects, the job is cancelled.";

const IMAGES: &str = "Served by the Cargos that make images from a prompt. Without `model`, or with one of OpenAI's names, the \
     nearest that an Island can serve is used; any other name must be a slug or alias. Images are PNG files that contain \
     their parameters, and the same seed makes the same images. With `stream`, the answer is Server-Sent Events: up to \
     `partial_images` previews before each image. If the client disconnects, the job is cancelled. Unknown fields are ignored.";

const SPEECH: &str = "Served by the Cargos of the task text-to-speech. OpenAI's names `tts-1`, `tts-1-hd` and `gpt-4o-mini-tts` mean the nearest \
     that an Island can serve, those with several voices first; any other name must be a slug or alias. A text of more than 500 characters is \
     spoken in pieces, each by a job at the Cargo's price, and the sound is sent while the next ones are spoken. If the client disconnects, \
     the jobs are cancelled. Unknown fields are ignored.";

const MODERATIONS: &str = "Served by the Cargos that map their labels to categories. Without `model`, or with one of OpenAI's names, the nearest that \
     an Island can serve is used; any other name must be a slug or alias. A category that the model does not judge is null. A text runs as \
     one job, a long one as several, each at the Cargo's price. If the client disconnects, the jobs are cancelled. Unknown fields are ignored.";

const EDITS: &str = "Served by the Cargos that make images from a prompt and an image. The transparent pixels of `mask` select the part that is \
     changed; without a model's name those that were trained for parts come first. Everything else is as for `POST /images/generations`.";

const RERANK: &str = "Served by the Cargos of the task text-ranking. `rerank` and the names of Cohere's and Jina's models, which begin with \
     `rerank-` and `jina-reranker-`, mean one that an Island can serve: the Cargo with the name as an alias before others, then the nearest; any other \
     name must be a slug or alias. Scores of different models cannot be compared. The bodies are those that Cohere's and Jina's APIs have in common. If the \
     client disconnects, the job is cancelled. Unknown fields are ignored.";

const MODELS: &str = "The models that the endpoints of other APIs serve, with the fields by which OpenRouter lists providers. As there, the list has \
     those that write texts, unless `output_modalities` asks for others.";

const RERANK_ALIAS: &str = "As `POST /rerank`: Cohere's clients add this path to their base URL.";

const AUDIO: &str = "Served by the Cargos of the task automatic-speech-recognition. OpenAI's names `whisper-1`, `gpt-4o-transcribe` and \
     `gpt-4o-mini-transcribe` mean the nearest that an Island can serve, Whisper before others; any other name must be a slug or alias. \
     `response_format` decides whether the answer is JSON, plain text or captions. Captions and `verbose_json` need a model that gives times, and \
     times of words one that gives these: others answer with 422. If the client disconnects, the job is cancelled. Unknown fields are ignored.";

const MESSAGES: &str = "The API of Anthropic's clients, whose base URL is this one without its last part, `/v1`. The key may come in \
     the header `x-api-key`. Models are chosen as for chats, and reason only if `thinking` is enabled. Errors have the form of that API. \
     If the client disconnects, the job is cancelled. Unknown fields are ignored.";

const COMPLETIONS: &str = "Continues a text as it is, without a chat template; with `suffix`, fills the gap between two texts, for models \
     that were trained to. Models are chosen as for chats. With `stream`, the answer is Server-Sent Events of `data` lines that end with \
     `data: [DONE]`. If the client disconnects, the job is cancelled. Unknown fields are ignored.";

const RESPONSES: &str = "The newer API of OpenAI's clients. A response is stored with its job unless `store` is false, and later ones continue its \
     conversation by `previous_response_id`. Tools are functions that the client runs. With `stream`, the answer is named Server-Sent Events. \
     If the client disconnects, the job is cancelled, except in the background. Unknown fields are ignored.";

const COUNTS: &str = "A job that writes nothing: an Island applies the model's own chat template and vocabulary, so the number is exact. It costs \
     nothing, and counts as a request and as a running job. Models are chosen as for chats; the same Island need not serve both.";

/// Errors of a request that one job answers.
const OF_ONE_JOB: [Code; 10] = [
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
];

/// Errors of a request that a language model answers, whole or streamed.
const OF_CHAT: [Code; 3] =
    [Code::ModelNotFound, Code::ContextLengthExceeded, Code::ConcurrentStreamsExceeded];

pub(super) fn add(routes: Routes) -> Routes {
    let add = [
        openai,
        completions_route,
        rerank_routes,
        moderations_route,
        audio_routes,
        messages_route,
        responses_routes,
    ];
    add.into_iter().fold(routes, |routes, add| add(routes))
}

fn moderations_route(routes: Routes) -> Routes {
    routes.post(
        "/moderations",
        moderations::create,
        Operation::keyed("Chat", "createModeration", "Judge texts by unwanted content", Scope::Write)
            .about(MODERATIONS)
            .preferring()
            .takes::<ModerationRequest>(Some(json!({"input": "What a lovely day."})))
            .fails(&OF_ONE_JOB)
            .answers::<Moderations>(200, "The verdicts"),
    )
}

fn rerank_routes(routes: Routes) -> Routes {
    let operation = |id: &'static str, about: &'static str| {
        Operation::keyed("Chat", id, "Order documents by relevance", Scope::Write)
            .about(about)
            .preferring()
            .takes::<RerankRequest>(Some(json!({
                "model": "tiny-onnx-text-ranking", "query": "What is an island?",
                "documents": ["Land with water around it.", "A kind of train."], "top_n": 1,
            })))
            .fails(&OF_ONE_JOB)
            .answers::<Reranking>(200, "The documents by relevance")
    };
    routes
        .post("/rerank", rerank::create, operation("createReranking", RERANK))
        .post("/v1/rerank", rerank::create, operation("createRerankingV1", RERANK_ALIAS))
        .post("/v2/rerank", rerank::create, operation("createRerankingV2", RERANK_ALIAS))
}

fn messages_route(routes: Routes) -> Routes {
    let example = json!({"model": "llm-chat", "max_tokens": 64, "messages": [{"role": "user", "content": "What is an island?"}]});
    routes
        .post(
            "/messages",
            messages::create,
            Operation::keyed("Chat", "createMessage", "Reply to a conversation", Scope::Write)
                .about(MESSAGES)
                .preferring()
                .idempotent()
                .takes::<MessagesRequest>(Some(example))
                .fails(&OF_ONE_JOB)
                .fails(&OF_CHAT)
                .answers_or_streams::<MessageReply, MessageEvent>("The reply"),
        )
        .post(
            "/messages/count_tokens",
            messages::count_tokens,
            Operation::keyed(
                "Chat",
                "countMessageTokens",
                "Count the tokens of a conversation",
                Scope::Write,
            )
            .about(COUNTS)
            .preferring()
            .takes::<CountTokensRequest>(Some(json!({
                "model": "llm-chat", "messages": [{"role": "user", "content": "What is an island?"}],
            })))
            .fails(&OF_ONE_JOB)
            .fails(&[Code::ModelNotFound])
            .answers::<TokenCount>(200, "The number"),
        )
}

fn completions_route(routes: Routes) -> Routes {
    let example = json!({"model": "llm-chat", "prompt": "Once upon a time", "max_tokens": 32});
    routes.post(
        "/completions",
        chat::continue_text,
        Operation::keyed("Chat", "createCompletion", "Continue a text", Scope::Write)
            .about(COMPLETIONS)
            .preferring()
            .idempotent()
            .takes::<CompletionRequest>(Some(example))
            .fails(&OF_ONE_JOB)
            .fails(&OF_CHAT)
            .answers_or_streams::<Completion, Completion>("The completion"),
    )
}

fn responses_routes(routes: Routes) -> Routes {
    let example = json!({"model": "llm-chat", "input": "What is an island?", "max_output_tokens": 64});
    let of_one = |id: &'static str, summary: &'static str, scope: Scope| {
        Operation::keyed("Chat", id, summary, scope)
            .segment("id", "Id of a response.", &json!({"type": "string"}))
            .fails(&[Code::NotFound])
    };
    routes
        .post(
            "/responses",
            responses::create,
            Operation::keyed("Chat", "createResponse", "Create a response", Scope::Write)
                .about(RESPONSES)
                .preferring()
                .idempotent()
                .takes::<ResponseRequest>(Some(example))
                .fails(&OF_ONE_JOB)
                .fails(&OF_CHAT)
                .answers_or_streams::<Response, ResponseEvent>("The response"),
        )
        .post(
            "/responses/input_tokens",
            responses::input_tokens,
            Operation::keyed(
                "Chat",
                "countResponseTokens",
                "Count the tokens of a request for a response",
                Scope::Write,
            )
            .about(COUNTS)
            .preferring()
            .takes::<ResponseRequest>(Some(json!({"model": "llm-chat", "input": "What is an island?"})))
            .fails(&OF_ONE_JOB)
            .fails(&[Code::ModelNotFound])
            .answers::<InputTokens>(200, "The number"),
        )
        .get(
            "/responses/{id}",
            responses::get,
            of_one("getResponse", "One stored response", Scope::Read)
                .answers::<Response>(200, "The response"),
        )
        .delete(
            "/responses/{id}",
            responses::delete,
            of_one("deleteResponse", "Delete a response and the data of its job", Scope::Write)
                .fails(&[Code::JobNotFinal])
                .answers::<DeletedResponse>(200, "The response was deleted"),
        )
        .post(
            "/responses/{id}/cancel",
            responses::cancel,
            of_one("cancelResponse", "Cancel a response", Scope::Write)
                .about("A response that has ended is answered as it is.")
                .answers::<Response>(200, "The response"),
        )
        .get(
            "/responses/{id}/input_items",
            responses::input_items,
            of_one("listResponseInputItems", "The items of a response's request", Scope::Read)
                .query(
                    "limit",
                    false,
                    "Maximum number of entries.",
                    &json!({"type": "integer", "minimum": 1, "maximum": 100, "default": 20}),
                )
                .query("after", false, "Id of the last item of the page before.", &json!({"type": "string"}))
                .query(
                    "order",
                    false,
                    "By position in the request.",
                    &json!({"type": "string", "enum": ["asc", "desc"], "default": "desc"}),
                )
                .fails(&[Code::ValidationError])
                .answers::<InputItems>(200, "A page of items"),
        )
}

fn audio_routes(routes: Routes) -> Routes {
    let operation = |id: &'static str, summary: &'static str| {
        Operation::keyed("Chat", id, summary, Scope::Write)
            .about(AUDIO)
            .preferring()
            .takes_form::<AudioRequest>()
            .fails(&OF_ONE_JOB)
            .answers_or_text::<AudioAnswer>("The text")
    };
    routes
        .post(
            "/audio/transcriptions",
            audio::transcribe,
            operation("createTranscription", "Transcribe speech"),
        )
        .post(
            "/audio/translations",
            audio::translate,
            operation("createTranslation", "Translate speech into English"),
        )
        .post(
            "/audio/speech",
            speech::create,
            Operation::keyed("Chat", "createSpeech", "Speak a text", Scope::Write)
                .about(SPEECH)
                .preferring()
                .takes::<SpeechRequest>(Some(
                    json!({"model": "tts-1", "input": "The sea is calm.", "voice": "alloy"}),
                ))
                .fails(&OF_ONE_JOB)
                .sends_sound_or_streams::<SpeechEvent>("The sound"),
        )
}

fn openai(routes: Routes) -> Routes {
    let example = json!({"model": "llm-chat", "messages": [{"role": "user", "content": "What is an island?"}], "max_tokens": 64});
    let routes = routes.post(
        "/chat/completions",
        chat::complete,
        Operation::keyed("Chat", "createChatCompletion", "Complete a chat", Scope::Write)
            .about(ABOUT)
            .preferring()
            .idempotent()
            .takes::<ChatRequest>(Some(example))
            .fails(&[
                Code::ModelNotFound,
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
            Operation::keyed("Chat", "listModels", "List models", Scope::Read)
                .about(MODELS)
                .query(
                    "output_modalities",
                    false,
                    "What the models make, with commas: `text`, `image`, `embeddings`, `rerank`, `speech`, `transcription`, `moderation`, or `all`.",
                    &json!({"type": "string", "pattern": models::output_pattern(), "default": "text"}),
                )
                .fails(&[Code::ValidationError])
                .answers::<ModelList>(200, "The models"),
        )
        .get(
            "/models/{name}",
            models::get,
            Operation::keyed("Chat", "getModel", "One model", Scope::Read)
                .segment(
                    "name",
                    "Slug or alias of a model.",
                    &json!({"type": "string", "examples": ["llm-chat"]}),
                )
                .fails(&[Code::WorkloadNotFound])
                .answers::<Model>(200, "The model"),
        )
        .post(
            "/embeddings",
            embeddings::create,
            Operation::keyed("Chat", "createEmbeddings", "Embed texts", Scope::Write)
                .about(EMBEDDINGS)
                .preferring()
                .idempotent()
                .takes::<EmbeddingsRequest>(Some(
                    json!({"model": "all-minilm-l6-v2", "input": "What is an island?"}),
                ))
                .fails(&OF_ONE_JOB)
                .answers::<Embeddings>(200, "The embeddings"),
        )
        .post(
            "/images/generations",
            images::create,
            Operation::keyed("Chat", "createImages", "Make images", Scope::Write)
                .about(IMAGES)
                .preferring()
                .idempotent()
                .takes::<ImagesRequest>(Some(
                    json!({"prompt": "a lighthouse at dusk, oil on canvas", "size": "512x512"}),
                ))
                .fails(&OF_ONE_JOB)
                .fails(&[Code::ConcurrentStreamsExceeded])
                .answers_or_streams::<Images, ImageEvent>("The images"),
        )
        .post(
            "/images/edits",
            images::edit,
            Operation::keyed("Chat", "editImages", "Change an image", Scope::Write)
                .about(EDITS)
                .preferring()
                .idempotent()
                .takes_form::<ImageEditRequest>()
                .fails(&OF_ONE_JOB)
                .fails(&[Code::ConcurrentStreamsExceeded])
                .answers_or_streams::<Images, ImageEvent>("The images"),
        )
}
