//! The first two turns of coding agents: requests in the form in which the programs send them.

use island_protocol::{reply::CallDelta, event::AttemptEvent, job::{FinishReason, Outcome, Usage}};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::{
    island::{Island, completed, token},
    network::{Event, Events, Network, add_input},
};

/// A network whose model takes functions.
async fn network() -> Network {
    let inputs = "tools = { type = \"array\" }\ntool_choice = {}\nparallel_tool_calls = { type = \"boolean\" }";
    Network::start_with(|config| add_input(config, inputs)).await
}

/// Answers a streamed request with a call of this function. Returns the input of the job and the events of the stream.
async fn calling(
    network: &Network,
    island: &mut Island,
    path: &str,
    body: &Value,
    name: &str,
    arguments: &str,
) -> (Value, Vec<Value>) {
    let (answer, input) = tokio::join!(network.call(Method::POST, path).json(body).send(), async {
        let run = island.take().await;
        let part = CallDelta {
            index: 0,
            id: Some("call_1".to_owned()),
            name: Some(name.to_owned()),
            arguments: arguments.to_owned(),
            text: String::new(),
        };
        let event = AttemptEvent::Token {
            content: String::new(),
            count: 1,
            reasoning: false,
            logprobs: Vec::new(),
            call: Some(Box::new(part)),
        };
        island.send(run.key, run.first_event, vec![event]).await;
        island.end(run.key, run.first_event + 1, called(name, arguments)).await;
        run.input
    });
    (input, events(answer.expect("answer")).await)
}

fn called(name: &str, arguments: &str) -> Outcome {
    let call = json!({"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}});
    Outcome::Completed {
        usage: Usage::tokens(1, 1),
        output: Some(json!({"content": null, "tool_calls": [call]})),
        finish_reason: Some(FinishReason::ToolCalls),
        stop_text: None,
    }
}

/// Answers a streamed request with a text. Returns the input of the job and the events of the stream.
async fn answering(network: &Network, island: &mut Island, path: &str, body: &Value) -> (Value, Vec<Value>) {
    let (answer, input) = tokio::join!(network.call(Method::POST, path).json(body).send(), async {
        let run = island.take().await;
        island.send(run.key, run.first_event, vec![token("Done.")]).await;
        island.end(run.key, run.first_event + 1, completed(5, 1)).await;
        run.input
    });
    (input, events(answer.expect("answer")).await)
}

async fn events(answer: reqwest::Response) -> Vec<Value> {
    assert_eq!(answer.status(), StatusCode::OK);
    Events::of(answer).rest().await.iter().map(Event::json).collect()
}

fn names(tools: &Value) -> Vec<&str> {
    let tools = tools.as_array().expect("functions").iter();
    tools.map(|tool| tool["function"]["name"].as_str().expect("a name")).collect()
}

fn roles(messages: &Value) -> Vec<&str> {
    let messages = messages.as_array().expect("messages").iter();
    messages.map(|message| message["role"].as_str().expect("a role")).collect()
}

#[tokio::test]
async fn claude_code_calls_a_function_and_goes_on() {
    let network = network().await;
    let mut island = Island::start(&network).await;
    let cached = |text: &str| json!({"type": "text", "text": text, "cache_control": {"type": "ephemeral"}});
    let schema = json!({"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]});
    let mut body = json!({
        "model": "echo", "max_tokens": 32_000, "stream": true,
        "system": [{"type": "text", "text": "Billing."}, cached("You are an agent."), cached("Rules.")],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "<system-reminder/>"}, {"type": "text", "text": "List files."}]},
            {"role": "system", "content": [cached("The folder is /work.")]},
        ],
        "tools": [
            {"name": "Bash", "description": "Runs a command.", "input_schema": schema},
            {"name": "Later", "description": "Loaded later.", "input_schema": schema, "defer_loading": true},
            {"type": "web_search_20250305", "name": "web_search", "max_uses": 8},
        ],
        "thinking": {"type": "adaptive", "display": "omitted"}, "output_config": {"effort": "high"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "metadata": {"user_id": "{}"},
    });
    let path = "/messages?beta=true";
    let (input, events) = calling(&network, &mut island, path, &body, "Bash", "{\"command\":\"ls\"}").await;
    assert_eq!(names(&input["tools"]), ["Bash", "Later"]);
    assert_eq!(roles(&input["messages"]), ["system", "user", "system"]);
    let block = events.iter().find(|event| event["type"] == "content_block_start").expect("a block");
    assert_eq!((&block["content_block"]["type"], &block["content_block"]["name"]), (&json!("tool_use"), &json!("Bash")));
    let end = events.iter().find(|event| event["type"] == "message_delta").expect("an end");
    assert_eq!(end["delta"]["stop_reason"], "tool_use");

    let more = [
        json!({"role": "assistant", "content": [
            {"type": "tool_use", "id": "call_1", "name": "Bash", "input": {"command": "ls"}, "caller": {"type": "direct"}},
        ]}),
        json!({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "call_1", "content": "a.txt", "is_error": false, "cache_control": {"type": "ephemeral"}},
        ]}),
    ];
    body["messages"].as_array_mut().expect("messages").extend(more);
    let (input, events) = answering(&network, &mut island, path, &body).await;
    assert_eq!(roles(&input["messages"]), ["system", "user", "system", "assistant", "tool"]);
    assert_eq!(events.last().expect("an end")["type"], "message_stop");
}

#[tokio::test]
async fn codex_calls_a_function_and_goes_on() {
    let network = network().await;
    let mut island = Island::start(&network).await;
    let text = |role: &str, text: &str| json!({"type": "message", "id": "msg_x", "role": role, "content": [{"type": "input_text", "text": text}]});
    let function = |name: &str| {
        let schema = json!({"type": "object", "properties": {"cmd": {"type": "string"}}, "additionalProperties": false});
        json!({"type": "function", "name": name, "description": "Runs.", "strict": false, "parameters": schema})
    };
    let mut body = json!({
        "model": "echo", "stream": true, "store": false, "instructions": "You are an agent.",
        "input": [text("developer", "Permissions."), text("developer", "Skills."), text("user", "<environment/>"), text("user", "List files.")],
        "tools": [
            function("exec_command"),
            {"type": "namespace", "name": "multi_agent_v1", "description": "Agents.", "tools": [function("close_agent")]},
            {"type": "custom", "name": "apply_patch", "description": "Patches.", "format": {"type": "grammar", "syntax": "lark", "definition": "start: \"a\""}},
            function("write_stdin"),
            {"type": "web_search", "external_web_access": false},
            {"type": "local_shell"},
            {"type": "image_generation"},
        ],
        "tool_choice": "auto", "parallel_tool_calls": true, "reasoning": {"summary": "auto"},
        "include": ["reasoning.encrypted_content"], "prompt_cache_key": "k", "client_metadata": {"thread_id": "t"},
    });
    let (input, events) =
        calling(&network, &mut island, "/responses", &body, "exec_command", "{\"cmd\":\"ls\"}").await;
    assert_eq!(names(&input["tools"]), ["exec_command", "write_stdin"]);
    let done = events.iter().find(|event| event["type"] == "response.output_item.done").expect("an item");
    assert_eq!((&done["item"]["type"], &done["item"]["name"]), (&json!("function_call"), &json!("exec_command")));
    let whole = &events.last().expect("an end")["response"];
    assert_eq!(whole["tools"].as_array().map(Vec::len), Some(7), "as requested");

    let more = [
        json!({"type": "function_call", "id": "fc_x", "name": "exec_command", "arguments": "{\"cmd\":\"ls\"}", "call_id": "call_1"}),
        json!({"type": "function_call_output", "call_id": "call_1", "output": "a.txt"}),
        json!({"type": "custom_tool_call", "name": "apply_patch", "input": "*** Begin", "call_id": "call_2"}),
        json!({"type": "custom_tool_call_output", "call_id": "call_2", "output": "done"}),
        json!({"type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "x"}}),
    ];
    body["input"].as_array_mut().expect("items").extend(more);
    let (input, events) = answering(&network, &mut island, "/responses", &body).await;
    assert_eq!(
        roles(&input["messages"]),
        ["system", "developer", "developer", "user", "user", "assistant", "tool", "assistant", "tool"]
    );
    assert_eq!(events.last().expect("an end")["type"], "response.completed");
}

#[tokio::test]
async fn a_choice_of_a_tool_that_is_skipped_is_refused() {
    let network = network().await;
    let message = json!([{"role": "user", "content": "hi"}]);
    for (path, body) in [
        (
            "/messages",
            json!({"model": "echo", "max_tokens": 5, "messages": message, "tools": [{"type": "bash_20250124", "name": "bash"}],
                "tool_choice": {"type": "tool", "name": "bash"}}),
        ),
        ("/responses", json!({"input": "hi", "tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search"}})),
        (
            "/chat/completions",
            json!({"messages": message, "tools": [{"type": "custom", "custom": {"name": "patch"}}],
                "tool_choice": {"type": "custom", "custom": {"name": "patch"}}}),
        ),
    ] {
        let (status, problem) = crate::support::problem(network.call(Method::POST, path).json(&body)).await;
        assert_eq!((status, &problem["param"]), (422, &json!("tool_choice")), "{path}: {problem}");
    }
}
