//! The engine's half of `tools/parity/gguf.py`: greedy replies, token by token, with the logarithms of their probabilities.
//!
//! A line of the input is `{"model": PATH, "messages": [...], "tokens": N}`; its line of the output has the tokens as `logprobs` of a chat.

#![expect(clippy::print_stdout, reason = "a report is what this program is for")]

use std::{collections::BTreeMap, error::Error, io, path::PathBuf};

use island_protocol::{cargo::CargoSpec, event::AttemptEvent, reply::TokenLogprob};
use island_runtimes_api::conformance::Fixture;
use island_runtimes_llmcpp::{Llmcpp, Settings};
use serde_json::{Value, json};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    for line in io::stdin().lines() {
        let asked: Value = serde_json::from_str(&line?)?;
        let path = PathBuf::from(asked["model"].as_str().unwrap_or_default());
        let defaults =
            json!({"temperature": 0, "max_tokens": asked["tokens"], "logprobs": true, "top_logprobs": 2});
        let cargo: CargoSpec = serde_json::from_value(
            json!({"slug": "tiny", "runtime_type": "llmcpp", "engine": {"defaults": defaults}}),
        )?;
        let settings = Settings {
            path: path.clone(),
            projector: None,
            adapter: None,
            cargo: cargo.clone(),
            slots: 1,
            threads: 1,
            memory_limit_mb: 0,
            gpus: Vec::new(),
        };
        let engine = match Llmcpp::load(settings, |_, _| {}).await {
            Ok(engine) => engine,
            Err(failure) => {
                println!("{}", json!({ "refused": failure.message }));
                continue;
            }
        };
        let fixture = Fixture {
            cargo,
            artifacts: BTreeMap::from([("model".to_owned(), path)]),
            good: Vec::new(),
            long: Value::Null,
            bad: Vec::new(),
            reads_tokens: true,
        };
        let played = fixture.play(&engine, &json!({ "messages": asked["messages"] })).await;
        let of = |event: &AttemptEvent| match event {
            AttemptEvent::Token { logprobs, .. } => logprobs.clone(),
            _ => Vec::new(),
        };
        let tokens: Vec<TokenLogprob> = played.events.iter().flat_map(of).collect();
        println!("{}", json!({ "tokens": tokens }));
    }
    Ok(())
}
