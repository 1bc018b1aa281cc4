//! The script of a simulated job.

use island_protocol::job::{Failure, FailureCode, Fault, Usage};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::job::RunRequest;

/// Misbehavior of the engine other than crashing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lie {
    /// Reports ten times the tokens in its usage.
    Usage,
    /// Reports ten tokens for each.
    Count,
    /// Sends each token 32 MiB long.
    Giant,
    /// Never stops sending.
    Flood,
}

/// The script of one job.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default)]
pub struct Script {
    /// The text that is replied to.
    pub prompt: String,
    /// Tokens to write.
    pub max_tokens: u64,
    /// Milliseconds before each token.
    pub delay_ms: u64,
    /// Milliseconds that reading the prompt takes, in one step that cancellation does not interrupt.
    pub read_ms: u64,
    /// Stalls after this number of tokens.
    pub hang_after: Option<u64>,
    /// Crashes after this number of tokens.
    pub crash_after: Option<u64>,
    /// Fails after this number of tokens.
    pub fail_after: Option<u64>,
    /// The code of that failure.
    pub fail_code: FailureCode,
    /// The fault of that failure.
    pub fail_fault: Fault,
    /// Misbehavior.
    pub lie: Option<Lie>,
    /// Milliseconds that loading takes; read by the worker.
    pub load_ms: u64,
    /// Loading fails with this code; read by the worker.
    pub load_fails: Option<FailureCode>,
    /// Loading refuses a file that begins with a zero byte, as an engine does one without its header; read by the worker.
    pub reads_header: bool,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            prompt: String::new(),
            max_tokens: 16,
            delay_ms: 0,
            read_ms: 0,
            hang_after: None,
            crash_after: None,
            fail_after: None,
            fail_code: FailureCode::InternalError,
            fail_fault: Fault::Job,
            lie: None,
            load_ms: 0,
            load_fails: None,
            reads_header: false,
        }
    }
}

/// Input that is not a script.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// It has another form.
    #[error("read the script: {0}")]
    Shape(String),
    /// No token is requested.
    #[error("max_tokens must be at least 1")]
    NoTokens,
    /// The prompt is longer than the Cargo's context.
    #[error("the prompt has {prompt} tokens, the context has {context}")]
    ContextExceeded {
        /// Tokens in the prompt.
        prompt: u64,
        /// Tokens that fit into the context.
        context: u64,
    },
}

impl From<ScriptError> for Failure {
    fn from(error: ScriptError) -> Self {
        let code = match error {
            ScriptError::Shape(_) | ScriptError::NoTokens => FailureCode::InvalidInput,
            ScriptError::ContextExceeded { .. } => FailureCode::ContextLengthExceeded,
        };
        Self::of_job(code, error.to_string())
    }
}

impl Script {
    /// Returns the script of a request: the Cargo's engine table, overridden by the input.
    pub fn of(request: &RunRequest) -> Result<Self, ScriptError> {
        let input = request
            .input
            .as_object()
            .ok_or_else(|| ScriptError::Shape("the input is not an object".to_owned()))?;
        let mut merged = request.cargo.engine.as_object().cloned().unwrap_or_default();
        merged.extend(input.iter().map(|(key, value)| (key.clone(), value.clone())));
        prompt_from_messages(&mut merged);
        if !merged.get("prompt").is_some_and(Value::is_string) {
            return Err(ScriptError::Shape("prompt must be a text".to_owned()));
        }
        let mut script: Self = serde_json::from_value(Value::Object(merged))
            .map_err(|error| ScriptError::Shape(error.to_string()))?;
        if script.max_tokens == 0 {
            return Err(ScriptError::NoTokens);
        }
        let limits = &request.cargo.limits;
        if limits.max_tokens > 0 {
            script.max_tokens = script.max_tokens.min(limits.max_tokens);
        }
        let prompt = script.prompt_tokens();
        if limits.context_tokens > 0 && prompt > limits.context_tokens {
            return Err(ScriptError::ContextExceeded { prompt, context: limits.context_tokens });
        }
        Ok(script)
    }

    /// Number of words in the prompt.
    pub fn prompt_tokens(&self) -> u64 {
        self.prompt.split_whitespace().count() as u64
    }

    /// The usage that the engine reports.
    pub(super) fn claimed(&self, usage: Usage) -> Usage {
        match self.lie {
            Some(Lie::Usage) => Usage::tokens(usage.prompt_tokens * 10, usage.completion_tokens * 10),
            _ => usage,
        }
    }

    /// The number of tokens that the engine reports for one.
    pub(super) fn claimed_count(&self) -> u32 {
        if self.lie == Some(Lie::Count) { 10 } else { 1 }
    }
}

/// A chat's prompt is its last message.
fn prompt_from_messages(input: &mut Map<String, Value>) {
    let last = input.get("messages").and_then(Value::as_array).and_then(|messages| messages.last());
    let Some(content) = last.and_then(|message| message.get("content")).filter(|content| content.is_string())
    else {
        return;
    };
    let content = content.clone();
    input.entry("prompt").or_insert(content);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn request(engine: &Value, input: Value) -> RunRequest {
        let cargo = json!({"slug": "sim-chat", "runtime_type": "llmcpp", "engine": engine});
        RunRequest {
            cargo: serde_json::from_value(cargo).expect("a Cargo"),
            input,
            artifacts: std::collections::BTreeMap::new(),
            continues: None,
            continues_reasoning: None,
            scope: String::new(),
        }
    }

    #[test]
    fn the_input_overrides_the_cargo() {
        let engine = json!({"simulated": true, "delay_ms": 5, "max_tokens": 9});
        let script =
            Script::of(&request(&engine, json!({"prompt": "a b", "max_tokens": 3}))).expect("a script");
        assert_eq!((script.delay_ms, script.max_tokens, script.prompt_tokens()), (5, 3, 2));
    }

    #[test]
    fn a_chat_is_its_last_message() {
        let input =
            json!({"messages": [{"role": "system", "content": "x"}, {"role": "user", "content": "hello"}]});
        assert_eq!(Script::of(&request(&Value::Null, input)).expect("a script").prompt, "hello");
    }

    #[test]
    fn invalid_scripts_are_rejected() {
        for bad in [
            json!(7),
            json!({}),
            json!({"prompt": 7}),
            json!({"prompt": "x", "max_tokens": -1}),
            json!({"prompt": "x", "max_tokens": 0}),
        ] {
            assert!(Script::of(&request(&Value::Null, bad.clone())).is_err(), "{bad}");
        }
    }
}
