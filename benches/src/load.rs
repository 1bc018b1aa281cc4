//! Streaming chat requests, and the times of their frames. The same code reads every system.

use std::time::Instant;

use anyhow::{Context, Result, bail};
use eventsource_stream::Eventsource;
use futures::{StreamExt, future::try_join_all};
use serde_json::{Value, json};

/// One streamed reply.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    /// Milliseconds from the request to the first text.
    pub(crate) first_ms: f64,
    /// Milliseconds from the request to the last frame.
    pub(crate) total_ms: f64,
    /// Milliseconds from the request to each frame with text.
    pub(crate) frames_ms: Vec<f64>,
    /// Tokens written, as the system counts them.
    pub(crate) tokens: u64,
}

/// Where to send chat requests.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) http: reqwest::Client,
    pub(crate) url: String,
    pub(crate) key: String,
    pub(crate) model: String,
}

impl Target {
    pub(crate) fn new(url: String, key: &str, model: &str) -> Result<Self> {
        let http = reqwest::Client::builder().tcp_nodelay(true).build()?;
        Ok(Self { http, url, key: key.to_owned(), model: model.to_owned() })
    }

    /// The same with a connection for each request: llama-server closes some of those it kept just as they are used again.
    pub(crate) fn unpooled(self) -> Result<Self> {
        let http = reqwest::Client::builder().tcp_nodelay(true).pool_max_idle_per_host(0).build()?;
        Ok(Self { http, ..self })
    }

    /// Streams one reply to a question.
    pub(crate) async fn ask(&self, prompt: &str, tokens: u64) -> Result<Reply> {
        self.ask_messages(json!([{ "role": "user", "content": prompt }]), tokens).await
    }

    /// Streams one reply to a conversation.
    pub(crate) async fn ask_messages(&self, messages: Value, tokens: u64) -> Result<Reply> {
        self.ask_in_format(messages, tokens, None).await
    }

    /// The same with a required format of the reply.
    pub(crate) async fn ask_in_format(
        &self,
        messages: Value,
        tokens: u64,
        format: Option<Value>,
    ) -> Result<Reply> {
        let mut body = json!({
            "model": self.model,
            "messages": messages,
            "max_tokens": tokens,
            "stream": true,
            "stream_options": { "include_usage": true },
            "cache_prompt": true,
        });
        // The scripted engine has none, and what a model does not take is refused.
        if !self.model.starts_with("sim-") {
            body["temperature"] = json!(0);
        }
        if let Some(format) = format {
            body["response_format"] = format;
        }
        let start = Instant::now();
        let elapsed = || start.elapsed().as_secs_f64() * 1e3;
        let response = self.http.post(&self.url).bearer_auth(&self.key).json(&body).send().await?;
        if !response.status().is_success() {
            bail!("{}: {}", response.status(), response.text().await?);
        }
        let mut frames = response.bytes_stream().eventsource();
        let mut reply = Reply { first_ms: 0.0, total_ms: 0.0, frames_ms: Vec::new(), tokens: 0 };
        while let Some(frame) = frames.next().await {
            let frame = frame.context("read the stream")?;
            if frame.data == "[DONE]" {
                break;
            }
            let chunk: Value = serde_json::from_str(&frame.data)?;
            if let Some(error) = chunk.get("error") {
                bail!("the stream broke off: {error}");
            }
            if chunk["choices"][0]["delta"]["content"].as_str().is_some_and(|text| !text.is_empty()) {
                reply.frames_ms.push(elapsed());
            }
            reply.tokens = chunk["usage"]["completion_tokens"].as_u64().unwrap_or(reply.tokens);
        }
        reply.total_ms = elapsed();
        reply.first_ms = *reply.frames_ms.first().context("no text came")?;
        Ok(reply)
    }

    /// Requests a short reply without streaming and returns the milliseconds until it was read.
    pub(crate) async fn ask_whole(&self) -> Result<f64> {
        let body = json!({
            "model": self.model,
            "messages": [{ "role": "user", "content": "word" }],
            "max_tokens": 1,
        });
        let start = Instant::now();
        let response = self.http.post(&self.url).bearer_auth(&self.key).json(&body).send().await?;
        let status = response.status();
        let text = response.text().await?;
        if !status.is_success() {
            bail!("{status}: {text}");
        }
        Ok(start.elapsed().as_secs_f64() * 1e3)
    }

    /// Streams several talks at once, each with one reply after the other.
    pub(crate) async fn ask_many(&self, talks: &[Vec<String>], tokens: u64) -> Result<Vec<Reply>> {
        let talk = async |prompts: &Vec<String>| {
            let mut replies = Vec::with_capacity(prompts.len());
            for prompt in prompts {
                replies.push(self.ask(prompt, tokens).await?);
            }
            anyhow::Ok(replies)
        };
        Ok(try_join_all(talks.iter().map(talk)).await?.into_iter().flatten().collect())
    }
}

/// Tokens per second after the first token: decode alone.
pub(crate) fn decode_rate(reply: &Reply) -> f64 {
    reply.tokens.saturating_sub(1) as f64 / (reply.total_ms - reply.first_ms) * 1e3
}
