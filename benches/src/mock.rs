//! A chat server that costs nothing: one reply at once, or frames at a steady pace.

use std::{convert::Infallible, net::SocketAddr, time::Duration};

use anyhow::Result;
use axum::{
    Json, Router,
    body::Body,
    response::{IntoResponse, Response},
    routing::post,
    serve::ListenerExt,
};
use futures::StreamExt;
use serde_json::{Value, json};

use crate::load::Target;

/// Frames of a paced reply, unless fewer tokens are requested.
const FRAMES: u64 = 64;
const PACE: Duration = Duration::from_millis(20);

/// Starts it on a free port; it runs until the program ends.
pub(crate) async fn start() -> Result<SocketAddr> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let listener = listener.tap_io(|stream| stream.set_nodelay(true).expect("a fresh socket takes options"));
    let router = Router::new().route("/chat", post(answer)).route("/v1/chat/completions", post(answer));
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(address)
}

/// The whole reply at once.
pub(crate) fn at_once(address: SocketAddr) -> Result<Target> {
    Target::new(format!("http://{address}/v1/chat/completions"), "none", "at-once")
}

/// Frames at a pace.
pub(crate) fn paced(address: SocketAddr) -> Result<Target> {
    Target::new(format!("http://{address}/v1/chat/completions"), "none", "paced")
}

async fn answer(Json(request): Json<Value>) -> Response {
    if request["stream"] == Value::Bool(true) {
        return frames(request["max_tokens"].as_u64().unwrap_or(FRAMES));
    }
    let message = json!({"role": "assistant", "content": "word "});
    let choice = json!({"index": 0, "message": message, "finish_reason": "stop"});
    let usage = json!({"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2});
    let reply = json!({"id": "mock", "object": "chat.completion", "created": 1, "model": "mock", "choices": [choice], "usage": usage});
    Json(reply).into_response()
}

fn frames(count: u64) -> Response {
    let frames = futures::stream::unfold(0, move |n| async move {
        if n >= count {
            return None;
        }
        tokio::time::sleep(PACE).await;
        let chunk = json!({
            "id": "mock", "object": "chat.completion.chunk", "created": 1, "model": "mock",
            "choices": [{"index": 0, "delta": {"content": "word "}, "finish_reason": null}],
        });
        Some((Ok::<_, Infallible>(format!("data: {chunk}\n\n")), n + 1))
    });
    let end = futures::stream::once(async { Ok("data: [DONE]\n\n".to_owned()) });
    ([("content-type", "text/event-stream")], Body::from_stream(frames.chain(end))).into_response()
}
