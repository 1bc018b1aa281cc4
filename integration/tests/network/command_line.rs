//! `island` against a real network.

use std::{
    io::Read,
    process::{Child, Command, Output, Stdio},
};

use island_integration::{Network, network::program};
use serde_json::Value;

fn island(network: &Network, key: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program("island"));
    command.args(arguments).env_clear().env("HOME", network.folder());
    command.env("SERVICE_API_URL", network.info("api_url")).env("SERVICE_API_KEY", key);
    command.stdin(Stdio::null());
    command
}

fn run(network: &Network, arguments: &[&str]) -> Output {
    island(network, network.info("api_key"), arguments).output().expect("run island")
}

/// What it printed; it must have succeeded.
fn printed(network: &Network, arguments: &[&str]) -> String {
    let result = run(network, arguments);
    let err = String::from_utf8_lossy(&result.stderr);
    assert!(result.status.success(), "{arguments:?}: {err}");
    String::from_utf8(result.stdout).expect("text")
}

#[test]
fn every_command_works_for_people_and_for_programs() {
    let network = Network::start();
    let host = network.info("host_id").to_owned();
    let job =
        printed(&network, &["jobs", "submit", "--workload", "sim-chat", "--input", r#"{"prompt": "a"}"#]);
    let job = job.trim();
    printed(&network, &["jobs", "stream", job]);
    for arguments in [
        &["account"][..],
        &["account", "ledger"],
        &["auth", "status"],
        &["chat", "Good morning!", "--max-tokens", "4", "--no-stream"],
        &["jobs", "list"],
        &["jobs", "get", job],
        &["workloads", "list"],
        &["workloads", "get", "llm-chat"],
        &["hosts", "list"],
        &["hosts", "get", &host],
        &["hosts", "karma", &host],
        &["api-keys", "list"],
        &["market", "rates"],
        &["market", "rates", "llm-chat"],
        &["market", "history", "sim-chat"],
    ] {
        assert!(!printed(&network, arguments).trim().is_empty(), "{arguments:?}");
        let json = printed(&network, &[arguments, &["--format", "json"]].concat());
        let json: Value = serde_json::from_str(&json).expect("one JSON text");
        let is_answer = json.get("data").is_some();
        assert!(is_answer || arguments[0] == "chat", "{arguments:?}: {json}");
    }
}

#[test]
fn a_key_works_until_it_is_deleted() {
    let network = Network::start();
    let key = printed(&network, &["api-keys", "create", "ci", "--scope", "read", "--expires", "1d"]);
    let with_key =
        |arguments: &[&str]| island(&network, key.trim(), arguments).output().expect("run").status.code();
    assert_eq!(with_key(&["account"]), Some(0));
    assert_eq!(with_key(&["chat", "hi"]), Some(3), "it may only read");
    let keys = printed(&network, &["api-keys", "list", "--format", "json"]);
    let keys: Value = serde_json::from_str(&keys).expect("JSON");
    let listed = keys["data"].as_array().expect("a list");
    let id = listed.iter().find(|listed| listed["name"] == "ci").expect("listed")["id"].clone();
    printed(&network, &["api-keys", "delete", id.as_str().expect("an id")]);
    assert_eq!(with_key(&["account"]), Some(3));
}

#[test]
fn the_fabric_is_printed_as_json() {
    let network = Network::start();
    let lines = printed(&network, &["sail", "subscribe", "host.*.heartbeat", "--max", "2"]);
    let messages: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(messages.len(), 2);
    for message in messages {
        assert_eq!(message["subject"], format!("host.{}.heartbeat", network.info("host_id")));
        assert_eq!(message["message"]["host_id"], network.info("host_id"));
    }
    let refused = run(&network, &["sail", "subscribe", "$SYS.>", "--max", "1"]);
    let error = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(6), "{error}");
    assert!(error.contains("this key may read host.*.heartbeat"), "{error}");
}

/// Waits until some of the reply is there.
fn begun(child: &mut Child) -> Vec<u8> {
    let mut text = vec![0; 20];
    child.stdout.as_mut().expect("piped").read_exact(&mut text).expect("the beginning of the reply");
    text
}

#[test]
fn a_stream_survives_the_coordinator() {
    let network = Network::start();
    let input = r#"{"prompt": "one two three", "max_tokens": 150, "delay_ms": 20}"#;
    let arguments = ["jobs", "submit", "--workload", "sim-chat", "--input", input, "--stream"];
    let mut child = island(&network, network.info("api_key"), &arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start");
    let mut shown = begun(&mut child);
    network.kill("coordinator");
    let rest = child.wait_with_output().expect("wait");
    assert_eq!(rest.status.code(), Some(0), "{}", String::from_utf8_lossy(&rest.stderr));
    shown.extend(rest.stdout);
    let jobs: Value =
        serde_json::from_str(&printed(&network, &["jobs", "list", "--format", "json"])).expect("JSON");
    let id = jobs["data"][0]["id"].as_str().expect("an id");
    let job: Value =
        serde_json::from_str(&printed(&network, &["jobs", "get", id, "--format", "json"])).expect("JSON");
    let shown = String::from_utf8(shown).expect("text");
    assert_eq!(Some(shown.trim_end()), job["data"]["output"].as_str().map(str::trim_end));
}
