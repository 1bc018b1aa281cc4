//! Functions that a chat request offers, and calls in its conversation.

use island_protocol::chat::ToolCall;
use serde_json::{Value, json};

use super::invalid;
use crate::api::{ApiError, body::Fields};

/// Most functions in one request.
const MAX_TOOLS: usize = 128;

/// Takes `tools` and `tool_choice`; none if nothing is offered.
pub(super) fn taken(fields: &mut Fields) -> Result<Option<(Value, Value)>, ApiError> {
    let (tools, choice) = (fields.take("tools"), fields.take("tool_choice"));
    let Some(tools) = tools else {
        return match choice {
            None | Some(Value::Null) => Ok(None),
            Some(choice) if choice == "none" || choice == "auto" => Ok(None),
            Some(_) => Err(invalid("tool_choice", "tool_choice needs tools to choose from")),
        };
    };
    let Value::Array(list) = &tools else { return Err(invalid("tools", "tools must be a list")) };
    if list.len() > MAX_TOOLS {
        return Err(invalid("tools", format!("at most {MAX_TOOLS} tools are taken")));
    }
    let names = list.iter().enumerate().map(name).collect::<Result<Vec<_>, _>>()?;
    let choice = choice.unwrap_or_else(|| json!("auto"));
    match &choice {
        Value::String(choice) if matches!(choice.as_str(), "auto" | "required") => {}
        Value::String(choice) if choice == "none" => return Ok(None),
        one => {
            let wanted =
                one.get("function").and_then(|function| function.get("name")).and_then(Value::as_str);
            if !wanted.is_some_and(|wanted| names.contains(&wanted)) {
                return Err(invalid(
                    "tool_choice",
                    "tool_choice must be none, auto, required or one of the tools",
                ));
            }
        }
    }
    Ok((!list.is_empty()).then(|| (tools.clone(), choice)))
}

fn name((index, tool): (usize, &Value)) -> Result<&str, ApiError> {
    if tool.get("type").and_then(Value::as_str) != Some("function") {
        return Err(invalid(&format!("tools.{index}.type"), "only tools of type function are taken"));
    }
    let name = tool.get("function").and_then(|function| function.get("name")).and_then(Value::as_str);
    let fine = |name: &&str| {
        (1..=64).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
    };
    name.filter(fine).ok_or_else(|| {
        let must = "name must be 1 to 64 letters, digits, underscores or hyphens";
        invalid(&format!("tools.{index}.function.name"), must)
    })
}

/// Copies the calls of an assistant, and the call that a tool answers.
pub(super) fn keep_calls(index: usize, message: &Value, checked: &mut Value) -> Result<(), ApiError> {
    if let Some(calls) = message.get("tool_calls").filter(|calls| !calls.is_null()) {
        let calls: Vec<ToolCall> = serde_json::from_value(calls.clone()).map_err(|_| {
            let must = "tool_calls must be a list of calls, each with id, type and function";
            invalid(&format!("messages.{index}.tool_calls"), must)
        })?;
        checked["tool_calls"] = json!(calls);
    }
    for field in ["tool_call_id", "name"] {
        match message.get(field) {
            None | Some(Value::Null) => {}
            Some(Value::String(text)) => checked[field] = json!(text),
            Some(_) => {
                return Err(invalid(
                    &format!("messages.{index}.{field}"),
                    format!("{field} must be a string"),
                ));
            }
        }
    }
    Ok(())
}
