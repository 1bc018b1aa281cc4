//! Error messages contain a remedy, and exit codes are stable for scripts.

use std::process::Stdio;

use serde_json::Value;

use crate::{
    outputs::transcript,
    program::{Ran, alone, command, run},
    server::Server,
};

const NOBODY: &str = "0190f3f0-0000-7000-8000-0000000000ff";

#[tokio::test]
async fn answers_that_are_errors() {
    let server = Server::start().await;
    let submit = |workload| vec!["jobs", "submit", "--workload", workload, "--input", "{}"];
    let commands: &[&[&str]] = &[
        &["--api-key", "ak_wrong", "account"],
        &["jobs", "get", NOBODY],
        &["jobs", "stream", NOBODY],
        &["jobs", "cancel", "0190f3f0-0000-7000-8000-000000000002"],
        &["workloads", "get", "nothing"],
        &["hosts", "get", NOBODY],
        &["api-keys", "delete", NOBODY],
        &submit("no-such-cargo"),
        &submit("expensive"),
        &submit("picky"),
        &["chat", "hi", "-w", "whisper-tiny"],
        &["chat", "hi", "-w", "picky"],
        &["jobs", "get", "0190"],
        &["jobs", "get", "abcd"],
        &["hosts", "get", "cellar"],
        &["api-keys", "delete", "no such key"],
        &submit("popular"),
        &submit("frequent"),
        &submit("closed"),
        &submit("disabled"),
        &["signup", "one@example.org", "USED-UP"],
        &["admin", "accounts", "close", "0190f3f0-0000-7000-8000-0000000000ce", "--reason", "left"],
        &["admin", "payouts", "confirm", "0190f3f0-0000-7000-8000-0000000000ac", "--reason", "paid"],
        &["admin", "payouts", "show", "abcd"],
        &submit("broken"),
    ];
    insta::assert_snapshot!(transcript(&server, commands).await);
}

#[test]
fn usage_is_refused_before_anything_is_sent() {
    for (arguments, wanted) in [
        (vec!["chat", "hi", "--temperature", "2.5"], "0.0 to 2.0"),
        (vec!["chat", "hi", "--max-tokens", "0"], "0 is not in 1"),
        (vec!["chat", "hi", "--workload", "No Slug"], "slug must be"),
        (vec!["jobs", "list", "--limit", "101"], "101 is not in 1..=100"),
        (vec!["jobs", "get", "seven"], "must be a UUID, or the beginning of one"),
        (vec!["chat", ""], "the prompt is empty"),
        (vec!["chat", " \n"], "the prompt is empty"),
        (vec!["sail", "subscribe", "bogus..x"], "must be parts between dots"),
        (vec!["workloads", "list", "--runtime", "steam"], "[possible values: container, wasm"),
        (vec!["workloads", "list", "--category", "music"], "[possible values: llm, image"),
        (
            vec!["jobs", "submit", "--workload", "x", "--input", "{}", "--priority", "101"],
            "101 is not in 0..=100",
        ),
        (vec!["jobs", "submit", "--workload", "x", "--input", "{"], "--input is not JSON"),
        (vec!["jobs", "submit", "--workload", "x", "--input", "[1]"], "must be a JSON object"),
        (vec!["jobs", "submit", "--workload", "x"], "--input <JSON>"),
        (vec!["api-keys", "create", "x", "--scope", "all"], "[possible values: read, write]"),
        (vec!["api-keys", "create", "x", "--expires", "soon"], "a span such as 30d"),
        (vec!["api-keys", "create", "x", "--spend-cap=-1"], "above 0"),
        (vec!["api-keys", "create", "x", "--quota", "day.jobs=1"], "such as day.requests=1000"),
        (
            vec!["api-keys", "create", "x", "--quota", "day.tokens=1", "--quota", "day.tokens=2"],
            "more than once",
        ),
        (vec!["api-keys", "quotas", "x", "--quota", "day.tokens=1", "--none"], "cannot be used with"),
        (vec!["admin", "accounts", "quotas", NOBODY, "--none"], "require --reason"),
        (vec!["admin", "accounts", "quotas", NOBODY, "--reason", "why"], "requires --quota or --none"),
        (vec!["admin", "islands", "annotate", NOBODY, "--reason", "why"], "--trust <TRUST>"),
        (vec!["admin", "invitations", "create", "--reason", "why", "--uses", "0"], "0 is not in 1..=1000000"),
        (vec!["admin", "payouts", "create", "--reason", "why", "--until", "30d"], "must be a moment"),
        (vec!["admin", "payouts", "confirm", "seven", "--reason", "why"], "must be a UUID"),
        (vec!["account", "statement", "--month", "2026-13"], "a year and a month"),
        (vec!["completion", "powershell"], "[possible values: bash, zsh, fish]"),
        (vec!["--api-url", "nats://x", "account"], "not an http:// or https:// address"),
        (vec!["dev", "--islands", "2", "--no-island"], "cannot be used with"),
    ] {
        let ran = alone(&arguments);
        assert_eq!(ran.code, Some(2), "{arguments:?}: {}", ran.err);
        assert!(ran.err.contains(wanted), "{arguments:?}: {}", ran.err);
        assert_eq!(ran.out, "");
    }
}

#[test]
fn numbers_below_zero_and_misspelt_flags_get_no_misleading_tip() {
    for arguments in [
        &["chat", "hi", "-m", "-5"][..],
        &["chat", "hi", "-t", "-0.5"],
        &["jobs", "list", "--limit", "-1"],
        &["jobs", "list", "--offset", "-1"],
        &["jobs", "submit", "--workload", "x", "--input", "{}", "--priority", "-1"],
        &["jobs", "stream", NOBODY, "--after", "-1"],
        &["api-keys", "create", "x", "--spend-cap", "-1"],
        &["admin", "invitations", "create", "--reason", "why", "--uses", "-1"],
        &["admin", "payouts", "create", "--reason", "why", "--minimum", "-1"],
        &["api-keys", "create", "--name", "x"],
        &["sail", "subscribe", "host.>", "--max", "-1"],
        &["dev", "--islands", "-1"],
        &["dev", "--api-port", "-1"],
    ] {
        let ran = alone(arguments);
        assert_eq!(ran.code, Some(2), "{arguments:?}: {}", ran.err);
        assert!(!ran.err.contains("-- -"), "{arguments:?}: {}", ran.err);
    }
    let ran = alone(&["jobs", "list", "--limt", "5"]);
    assert!(ran.err.contains("'--limit'"), "a similar flag is still suggested: {}", ran.err);
}

#[test]
fn nothing_needs_a_terminal() {
    let home = tempfile::tempdir().expect("temporary folder");
    for arguments in [&["chat", "hi"][..], &["auth", "login"], &["jobs", "list"], &["sail", "subscribe", ">"]]
    {
        let wanted = command(home.path(), &[], &[&["--api-url", "http://127.0.0.1:9"], arguments].concat());
        // A session of its own has no terminal, not even /dev/tty.
        let mut command = std::process::Command::new("setsid");
        command.arg("--wait").arg(wanted.get_program()).args(wanted.get_args());
        command.env_clear().env("HOME", home.path()).env("PATH", "/usr/bin:/bin").env("TERM", "xterm");
        let ran: Ran = command.stdin(Stdio::null()).output().expect("run setsid").into();
        assert!(matches!(ran.code, Some(2 | 6)), "{arguments:?}: {ran:?}");
        assert!(!ran.err.contains("panicked"), "{}", ran.err);
    }
}

#[test]
fn a_coordinator_that_is_not_there_is_explained() {
    let ran = alone(&["--api-url", "http://127.0.0.1:9", "account"]);
    assert_eq!(ran.code, Some(6));
    assert!(ran.err.contains("island dev") && ran.err.contains("http://127.0.0.1:9"), "{}", ran.err);
    let ran = alone(&["--api-url", "http://127.0.0.1:9", "--format", "json", "account"]);
    let error: Value = serde_json::from_str(&ran.err).expect("JSON");
    assert!(
        error["error"]["message"].as_str().is_some_and(|message| message.starts_with("read the account"))
    );
}

#[tokio::test]
async fn input_comes_from_files_and_standard_input() {
    let server = Server::start().await;
    let home = tempfile::tempdir().expect("temporary folder");
    let file = |name: &str, bytes: &[u8]| {
        let path = home.path().join(name);
        std::fs::write(&path, bytes).expect("write");
        path.display().to_string()
    };
    let (json, image) = (file("input.json", br#"{"threshold": 0.5}"#), file("photo.png", b"PNG"));
    let at = [("SERVICE_API_URL", server.url.as_str()), ("SERVICE_API_KEY", "ak_one")];
    let submit =
        |more: &[&str]| command(home.path(), &at, &[&["jobs", "submit", "--workload", "x"], more].concat());
    let from_file = format!("@{json}");
    let (sound, mask) = (format!("audio={image}"), format!("mask={image}"));
    for (more, input, wanted) in [
        (vec!["--input", &from_file], "", r#"{"threshold":0.5}"#),
        (vec!["--input", "-"], r#"{"text": "piped"}"#, r#"{"text":"piped"}"#),
        (vec!["--image", &image], "", r#"{"image":"UE5H"}"#),
        (vec!["--input", &from_file, "--image", &image], "", r#"{"threshold":0.5,"image":"UE5H"}"#),
        (vec!["--file", &sound, "--file", &mask], "", r#"{"audio":"UE5H","mask":"UE5H"}"#),
    ] {
        let ran = run(submit(&more), input).await;
        assert_eq!(ran.code, Some(0), "{more:?}: {}", ran.err);
        let body: Value = serde_json::from_str(&server.asked().last().expect("asked").body).expect("JSON");
        assert_eq!(body["input"].to_string(), wanted);
    }
    let ran = run(submit(&["--input", "@nowhere.json"]), "").await;
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("read nowhere.json"), "{}", ran.err);
    for twice in
        [&["--input", r#"{"image": "x"}"#, "--image", &image][..], &["--file", &mask, "--file", &mask]]
    {
        let ran = run(submit(twice), "").await;
        assert_eq!(ran.code, Some(2), "{}", ran.err);
    }
    let ran = run(command(home.path(), &at, &["chat", "-"]), "piped prompt").await;
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(server.asked().iter().any(|asked| asked.body.contains(r#""prompt":"piped prompt""#)));
}
