//! From a request for a response to one of the chat API.

use island_protocol_api::{
    chat::{ChatMessage, ChatRequest, FunctionCall, ToolCall},
    problem::Code,
    responses::{ResponseRequest, TextOptions},
};
use serde_json::{Map, Value, json};

use crate::{ApiError, openai::chat::request::Names};

/// Settings with other names than in the chat API.
pub(super) const NAMES: Names =
    &[("max_tokens", "max_output_tokens"), ("response_format", "text.format"), ("logprobs", "include")];
/// Calls of tools that clients run, and the field with what the model wrote for them.
const CALLS: [(&str, &str); 4] = [
    ("custom_tool_call", "input"),
    ("local_shell_call", "action"),
    ("shell_call", "action"),
    ("apply_patch_call", "operation"),
];
/// Items about tools that other servers ran. What they found is in the text of the reply.
const LEFT_OUT: [&str; 8] = [
    "web_search_call",
    "file_search_call",
    "code_interpreter_call",
    "image_generation_call",
    "mcp_call",
    "mcp_list_tools",
    "mcp_approval_request",
    "mcp_approval_response",
];
/// Entry of `include` that requests probabilities.
const LOGPROBS: &str = "message.output_text.logprobs";

fn invalid(param: &str, message: impl Into<String>) -> ApiError {
    ApiError::field(Code::ValidationError, param, message)
}

/// The chat request that means the same, after the messages of an `earlier` conversation.
pub(super) fn chat(request: ResponseRequest, earlier: Vec<ChatMessage>) -> Result<ChatRequest, ApiError> {
    let instructions = request.instructions.map(|text| message("system", text.into()));
    let mut messages: Vec<ChatMessage> = instructions.into_iter().chain(earlier).collect();
    messages.extend(input(request.input)?);
    let wants_logprobs = request.include.unwrap_or_default().iter().any(|entry| entry == LOGPROBS);
    let tools = request.tools.map(|tools| {
        tools.iter().enumerate().filter_map(|(index, tool)| function(index, tool)).collect::<Result<_, _>>()
    });
    Ok(ChatRequest {
        model: request.model,
        messages,
        max_tokens: request.max_output_tokens,
        temperature: request.temperature,
        top_p: request.top_p,
        stream: request.stream,
        response_format: request.text.and_then(format),
        tools: tools.transpose()?,
        tool_choice: request.tool_choice.map(choice),
        parallel_tool_calls: request.parallel_tool_calls,
        logprobs: wants_logprobs.then_some(true),
        top_logprobs: request.top_logprobs.filter(|_| wants_logprobs),
        reasoning: request.reasoning,
        preferences: request.preferences,
        ..ChatRequest::default()
    })
}

pub(super) fn message(role: &str, content: Value) -> ChatMessage {
    ChatMessage { role: role.to_owned(), content, ..ChatMessage::default() }
}

/// The messages that an input means.
fn input(input: Value) -> Result<Vec<ChatMessage>, ApiError> {
    match input {
        Value::String(text) => Ok(vec![message("user", text.into())]),
        Value::Array(items) if !items.is_empty() => {
            let mut messages = Vec::new();
            for (index, item) in items.iter().enumerate() {
                add(&mut messages, item).ok_or_else(|| {
                    let kinds = "a message, a call, the output of a call, a reasoning or an item_reference, with its fields";
                    invalid(&format!("input.{index}"), format!("an item must be {kinds}"))
                })?;
            }
            Ok(messages)
        }
        _ => Err(invalid("input", "input must be a text, or a list of at least one item")),
    }
}

/// Adds an item. What the assistant reasoned, wrote and called in one turn becomes one message. Returns `None` if the item is invalid.
fn add(messages: &mut Vec<ChatMessage>, item: &Value) -> Option<()> {
    match item.get("type").map_or(Some("message"), Value::as_str)? {
        "message" => {
            let role = item["role"].as_str()?;
            let content = content(&item["content"])?;
            if role == "assistant" {
                let turn = turn(messages, |turn| turn.tool_calls.is_none() && turn.content.is_null());
                turn.content = content;
            } else {
                messages.push(message(role, content));
            }
        }
        "reasoning" => {
            let of = |list: &str| {
                let parts = item.get(list).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
                parts.iter().filter_map(|part| part["text"].as_str()).collect::<String>()
            };
            let text = Some(of("content")).filter(|text| !text.is_empty()).unwrap_or_else(|| of("summary"));
            if !text.is_empty() {
                turn(messages, |_| false).reasoning_content = Some(text);
            }
        }
        "function_call" => {
            let arguments = item["arguments"].as_str()?.to_owned();
            let call = called(item["call_id"].as_str()?, item["name"].as_str()?, arguments);
            turn(messages, |_| true).tool_calls.get_or_insert_default().push(call);
        }
        "function_call_output" => messages.push(output(item, content(&item["output"])?)?),
        kind if LEFT_OUT.contains(&kind) => {}
        kind => match kind.strip_suffix("_output") {
            Some(call) if CALLS.iter().any(|(name, _)| *name == call) => {
                let result = content(&item["output"]).unwrap_or_else(|| item["output"].to_string().into());
                messages.push(output(item, result)?);
            }
            _ => {
                let (_, field) = CALLS.iter().find(|(name, _)| *name == kind)?;
                let name = item["name"].as_str().unwrap_or(kind);
                let arguments = json!({*field: item.get(field)?}).to_string();
                let call = called(item["call_id"].as_str()?, name, arguments);
                turn(messages, |_| true).tool_calls.get_or_insert_default().push(call);
            }
        },
    }
    Some(())
}

fn called(id: &str, name: &str, arguments: String) -> ToolCall {
    let function = FunctionCall { name: name.to_owned(), arguments };
    ToolCall { id: id.to_owned(), kind: "function".to_owned(), function }
}

/// The message with the output of a call.
fn output(item: &Value, content: Value) -> Option<ChatMessage> {
    let id = item["call_id"].as_str()?.to_owned();
    Some(ChatMessage { tool_call_id: Some(id), ..message("tool", content) })
}

/// The assistant's message at the end if it `continues`, otherwise a new one.
fn turn(messages: &mut Vec<ChatMessage>, continues: impl Fn(&ChatMessage) -> bool) -> &mut ChatMessage {
    let is_same = messages.last().is_some_and(|last| last.role == "assistant" && continues(last));
    if !is_same {
        messages.push(message("assistant", Value::Null));
    }
    let last = messages.len() - 1;
    &mut messages[last]
}

/// A content in the form of the chat API; `None` if a part is of no known type.
fn content(content: &Value) -> Option<Value> {
    let Value::Array(parts) = content else { return content.is_string().then(|| content.clone()) };
    let part = |part: &Value| match part["type"].as_str()? {
        "input_text" | "output_text" | "text" => {
            Some(json!({"type": "text", "text": part["text"].as_str()?}))
        }
        "refusal" => Some(json!({"type": "text", "text": part["refusal"].as_str()?})),
        "input_image" => {
            Some(json!({"type": "image_url", "image_url": {"url": part["image_url"].as_str()?}}))
        }
        _ => None,
    };
    parts.iter().map(part).collect::<Option<Vec<Value>>>().map(Value::Array)
}

/// A function in the form of the chat API; `None` for a tool of another type. A field that is absent stays so: templates write `null` as a
/// text.
fn function(index: usize, tool: &Value) -> Option<Result<Value, ApiError>> {
    if !tool["type"].is_string() || tool["type"] == "function" && !tool["name"].is_string() {
        let rule = "a tool must have a type, and a function a name";
        return Some(Err(invalid(&format!("tools.{index}"), rule)));
    }
    if tool["type"] != "function" {
        return None;
    }
    let given = |field: &str| tool.get(field).filter(|value| !value.is_null()).cloned();
    let fields = ["name", "description", "parameters"].into_iter();
    let function: Map<String, Value> =
        fields.filter_map(|field| Some((field.to_owned(), given(field)?))).collect();
    Some(Ok(json!({"type": "function", "function": function})))
}

fn choice(choice: Value) -> Value {
    let named = |choice: &Value| json!({"type": "function", "function": {"name": choice["name"]}});
    match choice["type"].as_str() {
        Some("function") if choice.get("name").is_some() => named(&choice),
        Some("allowed_tools") => {
            let listed = choice["tools"].as_array().map(Vec::as_slice).unwrap_or_default();
            let tools: Vec<Value> =
                listed.iter().filter(|tool| tool["type"] == "function").map(named).collect();
            json!({"type": "allowed_tools", "allowed_tools": {"mode": choice["mode"], "tools": tools}})
        }
        _ => choice,
    }
}

fn format(TextOptions { format }: TextOptions) -> Option<Value> {
    let format = format?;
    if format["type"] != "json_schema" {
        return Some(format);
    }
    Some(json!({"type": "json_schema", "json_schema": {"name": format["name"], "schema": format["schema"]}}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn convert(body: Value) -> Result<Value, String> {
        let request = serde_json::from_value(body).expect("a request");
        chat(request, Vec::new()).map(|chat| json!(chat)).map_err(|error| error.json().to_string())
    }

    #[test]
    fn items_become_messages() {
        let converted = convert(json!({
            "model": "m", "instructions": "Be kind.", "max_output_tokens": 5,
            "input": [
                {"role": "user", "content": [
                    {"type": "input_text", "text": "What?"},
                    {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "auto"},
                ]},
                {"type": "reasoning", "id": "rs", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Look."}]},
                {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{\"at\":1}"},
                {"type": "function_call", "call_id": "c2", "name": "look", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c1", "output": "A dog"},
                {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "A cat"}]},
                {"type": "message", "role": "assistant", "content": "Two."},
            ],
        }))
        .expect("valid");
        let call = |id: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": "look", "arguments": arguments}});
        let text = |text: &str| json!({"type": "text", "text": text});
        assert_eq!(
            converted["messages"],
            json!([
                {"role": "system", "content": "Be kind."},
                {"role": "user", "content": [
                    text("What?"), {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
                ]},
                {"role": "assistant", "content": [text("Look.")], "reasoning_content": "Hm.",
                 "tool_calls": [call("c1", "{\"at\":1}"), call("c2", "{}")]},
                {"role": "tool", "content": "A dog", "tool_call_id": "c1"},
                {"role": "tool", "content": [text("A cat")], "tool_call_id": "c2"},
                {"role": "assistant", "content": "Two."},
            ])
        );
    }

    #[test]
    fn settings_and_tools_are_mapped() {
        let converted = convert(json!({
            "model": "m", "input": "Hi", "include": [LOGPROBS], "top_logprobs": 2,
            "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": true}},
            "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": true}],
            "tool_choice": {"type": "function", "name": "f"}, "parallel_tool_calls": false,
        }))
        .expect("valid");
        assert_eq!(
            converted["response_format"],
            json!({"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}})
        );
        let function = json!({"name": "f", "parameters": {"type": "object"}});
        assert_eq!(converted["tools"][0]["function"], function, "without a description");
        assert_eq!(converted["tool_choice"], json!({"type": "function", "function": {"name": "f"}}));
        assert_eq!((&converted["logprobs"], &converted["top_logprobs"]), (&json!(true), &json!(2)));
        assert_eq!(converted["parallel_tool_calls"], json!(false));
    }

    #[test]
    fn unknown_items_and_tools_without_a_type_are_refused() {
        for (body, param) in [
            (json!({"input": []}), "input"),
            (json!({"input": 5}), "input"),
            (json!({"input": [{"type": "item_reference", "id": "x"}]}), "input.0"),
            (
                json!({"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "x"}]}]}),
                "input.0",
            ),
            (json!({"input": [{"type": "compaction", "encrypted_content": "x"}]}), "input.0"),
            (json!({"input": [{"type": "local_shell_call", "action": {}}]}), "input.0"),
            (json!({"input": "x", "tools": [{"name": "f"}]}), "tools.0"),
            (json!({"input": "x", "tools": [{"type": "function"}]}), "tools.0"),
        ] {
            let refusal = convert(body.clone()).expect_err("refused");
            assert!(refusal.contains(&format!("\"{param}\"")), "{body}: {refusal}");
        }
    }

    #[test]
    fn tools_that_are_not_functions_are_not_offered() {
        let (other, f) = (json!({"type": "web_search"}), json!({"type": "function", "name": "f"}));
        let nested = json!({"type": "namespace", "name": "agents", "tools": [f]});
        let converted = convert(json!({"model": "m", "input": "x", "tools": [other, f, nested]}));
        assert_eq!(
            converted.expect("valid")["tools"],
            json!([{"type": "function", "function": {"name": "f"}}])
        );
        let converted = convert(json!({"model": "m", "input": "x", "tools": [{"type": "local_shell"}]}));
        assert_eq!(converted.expect("valid")["tools"], json!([]));
    }

    #[test]
    fn items_about_other_tools_become_calls_or_nothing() {
        let converted = convert(json!({"model": "m", "input": [
            {"role": "user", "content": "Fix it."},
            {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "x"}},
            {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch", "input": "*** Begin"},
            {"type": "local_shell_call", "call_id": "c2", "action": {"type": "exec", "command": ["ls"]}},
            {"type": "custom_tool_call_output", "call_id": "c1", "output": "done"},
            {"type": "local_shell_call_output", "call_id": "c2", "output": {"stdout": "a"}},
            {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        ]}));
        let call = |id: &str, name: &str, arguments: Value| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments.to_string()}});
        let action = json!({"action": {"type": "exec", "command": ["ls"]}});
        assert_eq!(
            converted.expect("valid")["messages"],
            json!([
                {"role": "user", "content": "Fix it."},
                {"role": "assistant", "content": null, "tool_calls": [
                    call("c1", "apply_patch", json!({"input": "*** Begin"})), call("c2", "local_shell_call", action),
                ]},
                {"role": "tool", "content": "done", "tool_call_id": "c1"},
                {"role": "tool", "content": "{\"stdout\":\"a\"}", "tool_call_id": "c2"},
                {"role": "assistant", "content": [{"type": "text", "text": "No."}]},
            ])
        );
    }

    #[test]
    fn allowed_tools_have_the_form_of_the_chat_api() {
        let converted = convert(json!({
            "model": "m", "input": "x", "tools": [{"type": "function", "name": "f"}],
            "tool_choice": {"type": "allowed_tools", "mode": "required", "tools": [
                {"type": "function", "name": "f"}, {"type": "web_search"},
            ]},
        }));
        let allowed = json!({"mode": "required", "tools": [{"type": "function", "function": {"name": "f"}}]});
        assert_eq!(
            converted.expect("valid")["tool_choice"],
            json!({"type": "allowed_tools", "allowed_tools": allowed})
        );
    }
}
