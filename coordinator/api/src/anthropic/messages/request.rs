//! From a request of Anthropic's API to one of the chat API.

use island_protocol_api::{
    chat::{ChatMessage, ChatRequest, FunctionCall, ReasoningOptions, ToolCall},
    messages::{InputMessage, MessagesRequest, OutputConfig, ThinkingOptions, Tool, ToolChoice},
    problem::Code,
};
use serde_json::{Value, json};

use crate::{ApiError, openai::chat::request::Names};

/// Settings with other names than in the chat API.
pub(super) const NAMES: Names = &[
    ("stop", "stop_sequences"),
    ("response_format", "output_config.format"),
    ("parallel_tool_calls", "tool_choice.disable_parallel_tool_use"),
];

/// The chat request that means the same.
pub(super) fn chat(request: MessagesRequest) -> Result<ChatRequest, ApiError> {
    let mut messages = Vec::new();
    if let Some(system) = request.system {
        let content =
            joined(&system).ok_or_else(|| invalid("system", "a string or blocks of the type text"))?;
        messages.push(message("system", content.into()));
    }
    for (index, input) in request.messages.into_iter().enumerate() {
        let must = "of blocks that its role may have, each with its fields";
        messages.extend(converted(input).ok_or_else(|| invalid(&format!("messages.{index}.content"), must))?);
    }
    let OutputConfig { effort, format } = request.output_config.unwrap_or_default();
    let (reasoning_effort, reasoning) = thinking(request.thinking, effort);
    let tools = request.tools.map(|tools| {
        tools
            .into_iter()
            .enumerate()
            .filter_map(|(index, tool)| function(index, tool))
            .collect::<Result<_, _>>()
    });
    let at_most_one_call = request.tool_choice.as_ref().and_then(|choice| choice.disable_parallel_tool_use);
    Ok(ChatRequest {
        model: request.model,
        messages,
        max_tokens: Some(request.max_tokens),
        temperature: request.temperature,
        top_p: request.top_p,
        top_k: request.top_k,
        stop: request.stop_sequences.map(|stops| json!(stops)),
        stream: request.stream,
        tools: tools.transpose()?,
        tool_choice: request.tool_choice.map(choice),
        parallel_tool_calls: at_most_one_call.map(|at_most_one| !at_most_one),
        response_format: format.as_ref().map(form),
        reasoning_effort,
        reasoning,
        preferences: request.preferences,
        ..ChatRequest::default()
    })
}

fn invalid(param: &str, must: &str) -> ApiError {
    ApiError::field(Code::ValidationError, param, format!("{param} must be {must}"))
}

fn message(role: &str, content: Value) -> ChatMessage {
    ChatMessage { role: role.to_owned(), content, ..ChatMessage::default() }
}

/// The texts of a string or of blocks; `None` if a block is not text.
fn joined(content: &Value) -> Option<String> {
    match content {
        Value::String(text) => Some(text.clone()),
        Value::Array(blocks) => blocks.iter().map(|block| block["text"].as_str()).collect(),
        _ => None,
    }
}

/// The messages that one message means: results of functions are messages of their own.
fn converted(InputMessage { role, content }: InputMessage) -> Option<Vec<ChatMessage>> {
    let Value::Array(blocks) = content else { return Some(vec![message(&role, content)]) };
    match role.as_str() {
        "assistant" => assistant(&blocks).map(|one| vec![one]),
        "system" => Some(vec![message("system", instructions(&blocks).into())]),
        _ => user(&blocks),
    }
}

/// The texts of instructions between messages. Other blocks, such as changes of the tools on offer, mean nothing to a model.
fn instructions(blocks: &[Value]) -> String {
    blocks.iter().filter_map(|block| block["text"].as_str()).collect()
}

fn assistant(blocks: &[Value]) -> Option<ChatMessage> {
    let (mut text, mut reasoning, mut calls) = (String::new(), String::new(), Vec::new());
    for block in blocks {
        match block["type"].as_str()? {
            "text" => text.push_str(block["text"].as_str()?),
            "thinking" => reasoning.push_str(block["thinking"].as_str()?),
            // Encrypted for another server, or run by it: what it found is in the text.
            "redacted_thinking" | "server_tool_use" | "mcp_tool_use" => {}
            kind if kind.ends_with("_tool_result") => {}
            "tool_use" => calls.push(ToolCall {
                id: block["id"].as_str()?.to_owned(),
                kind: "function".to_owned(),
                function: FunctionCall {
                    name: block["name"].as_str()?.to_owned(),
                    arguments: block.get("input")?.to_string(),
                },
            }),
            _ => return None,
        }
    }
    Some(ChatMessage {
        reasoning_content: Some(reasoning).filter(|reasoning| !reasoning.is_empty()),
        tool_calls: Some(calls).filter(|calls| !calls.is_empty()),
        ..message("assistant", text.into())
    })
}

fn user(blocks: &[Value]) -> Option<Vec<ChatMessage>> {
    let (mut messages, mut parts) = (Vec::new(), Vec::new());
    for block in blocks {
        if block["type"] == "tool_result" {
            let id = block["tool_use_id"].as_str()?.to_owned();
            messages.push(ChatMessage { tool_call_id: Some(id), ..message("tool", result(block)?) });
        } else {
            parts.push(part(block)?);
        }
    }
    if !parts.is_empty() || messages.is_empty() {
        messages.push(message("user", parts.into()));
    }
    Some(messages)
}

/// The content of a function's result: a text, or parts if a picture is among them.
fn result(block: &Value) -> Option<Value> {
    match &block["content"] {
        Value::Null => Some("".into()),
        Value::Array(blocks) if blocks.iter().any(|block| block["type"] == "image") => {
            blocks.iter().map(part).collect()
        }
        Value::Array(blocks) => blocks.iter().map(text).collect::<Option<String>>().map(Value::from),
        content => content.as_str().map(Value::from),
    }
}

/// A text or a picture as a part of a message.
fn part(block: &Value) -> Option<Value> {
    if block["type"] == "image" {
        return Some(json!({"type": "image_url", "image_url": {"url": address(&block["source"])?}}));
    }
    Some(json!({"type": "text", "text": text(block)?}))
}

/// The text that a block means to a model; `None` if it is not a text, such as a PDF.
fn text(block: &Value) -> Option<String> {
    match block["type"].as_str()? {
        "text" => block["text"].as_str().map(str::to_owned),
        "document" => {
            let source = &block["source"];
            let text = match source["type"].as_str()? {
                "text" => source["data"].as_str().map(str::to_owned),
                "content" => joined(&source["content"]),
                _ => None,
            };
            Some(lines([block["title"].as_str(), block["context"].as_str(), Some(&text?)]))
        }
        "search_result" => {
            let text = joined(&block["content"])?;
            Some(lines([block["title"].as_str(), block["source"].as_str(), Some(&text)]))
        }
        // The tool is on offer in any case.
        "tool_reference" => block["tool_name"].as_str().map(str::to_owned),
        _ => None,
    }
}

fn lines<const N: usize>(texts: [Option<&str>; N]) -> String {
    texts.into_iter().flatten().collect::<Vec<_>>().join("\n")
}

/// The address of a picture: a `data:` address of one that was sent.
fn address(source: &Value) -> Option<String> {
    match source["type"].as_str()? {
        "base64" => {
            let (media, data) = (source["media_type"].as_str()?, source["data"].as_str()?);
            Some(format!("data:{media};base64,{data}"))
        }
        "url" => source["url"].as_str().map(str::to_owned),
        _ => None,
    }
}

/// A function in the form of the chat API; `None` for a tool that another server or another model defines, which a model can do without.
/// A description that is absent stays so: templates write `null` as a text.
fn function(index: usize, tool: Tool) -> Option<Result<Value, ApiError>> {
    let Tool { kind, name, description, input_schema } = tool;
    let is_function = input_schema.is_object();
    if !is_function && kind.is_some_and(|kind| kind != "custom") {
        return None;
    }
    let Some(name) = name.filter(|_| is_function) else {
        return Some(Err(invalid(&format!("tools.{index}"), "a function with its name and input_schema")));
    };
    let mut function = json!({"name": name});
    if let Some(description) = description {
        function["description"] = description.into();
    }
    function["parameters"] = input_schema;
    Some(Ok(json!({"type": "function", "function": function})))
}

fn choice(ToolChoice { kind, name, .. }: ToolChoice) -> Value {
    match kind.as_str() {
        "any" => json!("required"),
        "tool" => json!({"type": "function", "function": {"name": name}}),
        _ => json!(kind),
    }
}

/// A form in that of the chat API, which has a name.
fn form(format: &Value) -> Value {
    json!({"type": "json_schema", "json_schema": {"name": "reply", "schema": format["schema"]}})
}

/// Effort and options. Without `thinking` a model of this API does not reason, whatever the `effort`.
fn thinking(
    options: Option<ThinkingOptions>,
    effort: Option<String>,
) -> (Option<String>, Option<ReasoningOptions>) {
    match options.filter(|options| options.kind != "disabled") {
        None => (Some("none".to_owned()), None),
        Some(ThinkingOptions { budget_tokens, .. }) => {
            let options =
                ReasoningOptions { enabled: Some(true), max_tokens: budget_tokens, ..Default::default() };
            (effort, Some(options))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn convert(body: Value) -> Value {
        let request = serde_json::from_value(body).expect("a request");
        json!(chat(request).expect("a chat"))
    }

    #[test]
    fn blocks_become_messages_and_parts() {
        let converted = convert(json!({
            "model": "m", "max_tokens": 5, "system": [{"type": "text", "text": "Be "}, {"type": "text", "text": "kind."}],
            "stop_sequences": ["x"], "top_k": 3,
            "messages": [
                {"role": "user", "content": [
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
                    {"type": "text", "text": "What?", "cache_control": {"type": "ephemeral"}},
                ]},
                {"role": "assistant", "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": ""},
                    {"type": "text", "text": "Look."},
                    {"type": "tool_use", "id": "c1", "name": "look", "input": {"at": 1}},
                ]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "A dog"}]},
                    {"type": "text", "text": "And?"},
                ]},
            ],
        }));
        let call =
            json!({"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{\"at\":1}"}});
        assert_eq!(
            converted["messages"],
            json!([
                {"role": "system", "content": "Be kind."},
                {"role": "user", "content": [
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
                    {"type": "text", "text": "What?"},
                ]},
                {"role": "assistant", "content": "Look.", "reasoning_content": "Hm.", "tool_calls": [call]},
                {"role": "tool", "content": "A dog", "tool_call_id": "c1"},
                {"role": "user", "content": [{"type": "text", "text": "And?"}]},
            ])
        );
        assert_eq!((&converted["stop"], &converted["reasoning_effort"]), (&json!(["x"]), &json!("none")));
    }

    #[test]
    fn results_of_functions_may_have_pictures_or_nothing() {
        let source = json!({"type": "base64", "media_type": "image/png", "data": "AAAA"});
        let blocks = json!([{"type": "text", "text": "The page:"}, {"type": "image", "source": source}]);
        let results = [json!({"content": blocks}), json!({"content": null}), json!({})].map(|mut result| {
            result["type"] = json!("tool_result");
            result["tool_use_id"] = json!("c1");
            result
        });
        let converted = convert(json!({
            "model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": results}],
        }));
        let picture = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}});
        let contents: Vec<&Value> = converted["messages"]
            .as_array()
            .expect("messages")
            .iter()
            .map(|message| &message["content"])
            .collect();
        let parts = json!([{"type": "text", "text": "The page:"}, picture]);
        assert_eq!(contents, [&parts, &json!(""), &json!("")]);
        let unknown = json!([{"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "image"}]}]);
        let request = MessagesRequest {
            messages: vec![InputMessage { role: "user".to_owned(), content: unknown }],
            ..MessagesRequest::default()
        };
        assert!(chat(request).is_err(), "a picture without its source");
    }

    #[test]
    fn tools_choices_and_thinking_are_mapped() {
        let with = |extra: Value| {
            let mut body =
                json!({"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]});
            body.as_object_mut().expect("an object").extend(extra.as_object().expect("an object").clone());
            convert(body)
        };
        let tools = json!([{"name": "look", "description": "Looks.", "input_schema": {"type": "object"}}]);
        let function = json!({"name": "look", "description": "Looks.", "parameters": {"type": "object"}});
        let converted = with(json!({"tools": tools, "tool_choice": {"type": "tool", "name": "look"}}));
        assert_eq!(converted["tools"], json!([{"type": "function", "function": function}]));
        assert_eq!(converted["tool_choice"], json!({"type": "function", "function": {"name": "look"}}));
        assert_eq!(with(json!({"tool_choice": {"type": "any"}}))["tool_choice"], "required");
        assert_eq!(with(json!({"tool_choice": {"type": "auto"}}))["tool_choice"], "auto");
        for (disabled, several) in
            [(json!(true), json!(false)), (json!(false), json!(true)), (json!(null), json!(null))]
        {
            let choice = json!({"type": "auto", "disable_parallel_tool_use": disabled});
            assert_eq!(with(json!({"tool_choice": choice}))["parallel_tool_calls"], several);
        }
        let thinking = with(json!({"thinking": {"type": "enabled", "budget_tokens": 1024}}));
        assert_eq!(
            (&thinking["reasoning"]["enabled"], &thinking["reasoning"]["max_tokens"]),
            (&json!(true), &json!(1024))
        );
        assert_eq!(with(json!({"thinking": {"type": "disabled"}}))["reasoning_effort"], "none");
    }

    #[test]
    fn a_function_needs_a_schema_and_other_tools_are_left_out() {
        let of = |tool: Value| {
            let body = json!({
                "model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}], "tools": [tool],
            });
            let converted = chat(serde_json::from_value(body).expect("a request"));
            converted.map(|chat| json!(chat.tools)).map_err(|error| error.body().error.param)
        };
        let schema = json!({"type": "object"});
        let offered = Ok(json!([{"type": "function", "function": {"name": "look", "parameters": schema}}]));
        assert_eq!(of(json!({"name": "look", "input_schema": schema})), offered);
        assert_eq!(of(json!({"type": "custom", "name": "look", "input_schema": schema})), offered);
        for other in [
            json!({"type": "web_search_20260318", "name": "web_search", "max_uses": 2}),
            json!({"type": "bash_20250124", "name": "bash"}),
            json!({"type": "mcp_toolset", "mcp_server_name": "files"}),
        ] {
            assert_eq!(of(other.clone()), Ok(json!([])), "{other}");
        }
        for incomplete in [json!({"name": "look"}), json!({"type": "custom", "input_schema": schema})] {
            assert_eq!(of(incomplete), Err(Some("tools.0".to_owned())));
        }
    }

    #[test]
    fn instructions_may_stand_between_messages() {
        let blocks = json!([
            {"type": "text", "text": "Be ", "cache_control": {"type": "ephemeral"}},
            {"type": "tool_addition", "tools": []},
            {"type": "text", "text": "brief."},
        ]);
        let converted = convert(json!({"model": "m", "max_tokens": 5, "messages": [
            {"role": "user", "content": "hi"}, {"role": "system", "content": blocks},
            {"role": "system", "content": "Now."},
        ]}));
        assert_eq!(
            converted["messages"],
            json!([
                {"role": "user", "content": "hi"},
                {"role": "system", "content": "Be brief."},
                {"role": "system", "content": "Now."},
            ])
        );
    }

    #[test]
    fn documents_and_results_of_searches_become_texts() {
        let document = |source: Value| json!({"type": "document", "title": "Log", "source": source});
        let plain = document(json!({"type": "text", "media_type": "text/plain", "data": "It rains."}));
        let found = json!({
            "type": "search_result", "source": "https://example.org", "title": "Weather",
            "content": [{"type": "text", "text": "Rain."}],
        });
        let reference = json!({"type": "tool_reference", "tool_name": "look"});
        let results = json!({"type": "tool_result", "tool_use_id": "c1", "content": [plain, reference]});
        let converted = convert(json!({"model": "m", "max_tokens": 5, "messages": [
            {"role": "assistant", "content": [
                {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}},
                {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []},
                {"type": "text", "text": "Hi"},
            ]},
            {"role": "user", "content": [results, document(json!({"type": "content", "content": "Dry."})), found]},
        ]}));
        let text = |text: &str| json!({"type": "text", "text": text});
        assert_eq!(
            converted["messages"],
            json!([
                {"role": "assistant", "content": "Hi"},
                {"role": "tool", "content": "Log\nIt rains.look", "tool_call_id": "c1"},
                {"role": "user", "content": [text("Log\nDry."), text("Weather\nhttps://example.org\nRain.")]},
            ])
        );
    }

    #[test]
    fn the_form_and_the_effort_of_a_reply_are_mapped() {
        let with = |thinking: Value, output: Value| {
            convert(json!({
                "model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}],
                "thinking": thinking, "output_config": output,
            }))
        };
        let schema = json!({"type": "object", "properties": {"place": {"type": "string"}}});
        let formed = with(Value::Null, json!({"format": {"type": "json_schema", "schema": schema}}));
        assert_eq!(
            formed["response_format"],
            json!({"type": "json_schema", "json_schema": {"name": "reply", "schema": schema}})
        );
        for effort in ["low", "xhigh", "max"] {
            let output = json!({"effort": effort, "format": null});
            let thought = with(json!({"type": "adaptive"}), output.clone());
            assert_eq!(thought["reasoning_effort"], effort);
            assert_eq!(thought["reasoning"]["enabled"], true);
            assert_eq!(thought["response_format"], Value::Null);
            assert_eq!(with(Value::Null, output)["reasoning_effort"], "none", "it does not reason");
        }
    }

    #[test]
    fn a_reply_with_a_form_may_be_a_call() {
        let converted = convert(json!({
            "model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}],
            "tools": [{"name": "look", "input_schema": {"type": "object"}}],
            "output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}},
        }));
        assert_eq!(converted["response_format"]["type"], "json_schema");
        assert_eq!(converted["tools"][0]["function"]["name"], "look");
    }

    #[test]
    fn a_form_without_a_schema_and_an_unknown_effort_are_refused() {
        let parse = |output: Value| {
            let messages = json!([{"role": "user", "content": "hi"}]);
            let body = json!({"model": "m", "max_tokens": 5, "messages": messages, "output_config": output});
            crate::http::body::fields(body).parse::<MessagesRequest>()
        };
        assert!(parse(json!({"effort": "high", "format": {"type": "json_schema", "schema": {}}})).is_ok());
        assert!(parse(json!(null)).is_ok() && parse(json!({"effort": null, "format": null})).is_ok());
        assert!(parse(json!({"effort": "most"})).is_err());
        assert!(parse(json!({"format": {"type": "json_schema"}})).is_err());
        assert!(parse(json!({"format": {"type": "text"}})).is_err());
    }

    #[test]
    fn long_names_of_tools_and_many_stop_texts_are_accepted() {
        let parse = |length: usize, stops: usize| {
            let body = json!({
                "model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}],
                "tools": [{"name": "n".repeat(length), "input_schema": {"type": "object"}}],
                "stop_sequences": vec!["x"; stops],
            });
            crate::http::body::fields(body).parse::<MessagesRequest>()
        };
        assert!(parse(128, 16).is_ok());
        assert!(parse(129, 1).is_err() && parse(1, 17).is_err());
    }

    #[test]
    fn blocks_of_the_wrong_role_or_without_their_fields_are_refused() {
        for (role, block) in [
            ("assistant", json!({"type": "image"})),
            ("user", json!({"type": "tool_use", "id": "c", "name": "f", "input": {}})),
            ("user", json!({"type": "image", "source": {"type": "file", "file_id": "f"}})),
            ("user", json!({"type": "text"})),
            ("user", json!({"type": "document", "source": {"type": "base64", "data": "JVBERg=="}})),
        ] {
            let request = MessagesRequest {
                messages: vec![InputMessage { role: role.to_owned(), content: json!([block]) }],
                ..MessagesRequest::default()
            };
            let error = chat(request).expect_err("refused").body().error;
            assert_eq!(error.param.as_deref(), Some("messages.0.content"));
        }
    }
}
