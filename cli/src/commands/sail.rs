//! `island sail`: reading the message fabric.

use std::process::ExitCode;

use anyhow::{Context, Result};
use futures::StreamExt;
use island_coordinator_client::fabric::FabricWatch;
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

use crate::{args::Sail, failure::INTERRUPTED, output::Output, settings::Settings};

pub(super) async fn run(command: Sail, settings: &Settings, output: &Output) -> Result<ExitCode> {
    let Sail::Subscribe { subject, max } = command;
    let credentials = settings.client()?.watch_credentials().await?;
    let url = settings.nats_url.as_deref();
    let mut watch = FabricWatch::connect(&credentials, url, settings.allow_plaintext).await?;
    let mut messages = watch.subscribe(&subject).await?;
    output.note(&format!("listening on {subject}; Ctrl-C ends"));
    let mut interrupts = signal(SignalKind::interrupt()).context("handle SIGINT")?;
    let mut left = max.unwrap_or(u64::MAX);
    while left > 0 {
        let message = tokio::select! {
            biased;
            _ = interrupts.recv() => return Ok(ExitCode::from(INTERRUPTED)),
            refused = watch.refused() => return Err(refused.into()),
            message = messages.next() => message,
        };
        let Some(message) = message else { break };
        let payload: Value = serde_json::from_slice(&message.payload)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&message.payload).into_owned()));
        output.json_line(&json!({ "subject": message.subject.as_str(), "message": payload }))?;
        left -= 1;
    }
    Ok(ExitCode::SUCCESS)
}
