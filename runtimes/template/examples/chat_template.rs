//! Renders conversations for `tools/parity/templates.py`: each line of the input is `{"template", "bos", "eos", "now", "messages", "tools", "enable_thinking", "reasoning_effort"}`,
//! each line of the output `{"text"}` or `{"error"}`.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a tool prints its result and stops at the first error"
)]

use std::io::{BufRead, stdin};

use island_runtimes_template::{Message, Offer, Template, TemplateError, Thinking};
use serde_json::{Value, json};

fn main() {
    for line in stdin().lock().lines() {
        let case: Value = serde_json::from_str(&line.unwrap()).unwrap();
        println!(
            "{}",
            render(&case)
                .map_or_else(|error| json!({"error": error.to_string()}), |text| json!({"text": text}))
        );
    }
}

fn render(case: &Value) -> Result<String, TemplateError> {
    let text = |field: &str| case[field].as_str().unwrap_or_default().to_owned();
    let template = Template::compile(Some(text("template")), text("bos"), text("eos"))?;
    let messages: Vec<Message> = case["messages"].as_array().unwrap().iter().map(message).collect();
    let tools = case["tools"].as_array().cloned().unwrap_or_default();
    let offer = Offer { tools: &tools, instructions: String::new() };
    let mut conversation = template.conversation(&messages, Some(&offer).filter(|_| !tools.is_empty()));
    conversation.thinking = Thinking {
        enabled: case["enable_thinking"].as_bool(),
        effort: case["reasoning_effort"].as_str().map(str::to_owned),
    };
    template.render(&conversation, case["now"].as_i64().unwrap())
}

fn message(message: &Value) -> Message {
    let text = |field: &str| message[field].as_str().map(str::to_owned);
    Message {
        reasoning: text("reasoning_content"),
        calls: message["tool_calls"].as_array().cloned().unwrap_or_default(),
        call_id: text("tool_call_id"),
        name: text("name"),
        ..Message::new(text("role").unwrap(), text("content").unwrap_or_default())
    }
}
