//! Committed output of every command, for people and for programs.

use crate::{
    program::{command, run},
    server::Server,
};

const JOB: &str = "0190f3f0-0000-7000-8000-000000000001";
const PAINTED: &str = "0190f3f0-0000-7000-8000-000000000003";
const WAITING: &str = "0190f3f0-0000-7000-8000-000000000006";
const COMPLETED: &str = "0190f3f0-0000-7000-8000-000000000008";
const FAILED: &str = "0190f3f0-0000-7000-8000-000000000009";
const KEY: &str = "0190f3f0-0000-7000-8000-0000000000aa";
const ACCOUNT: &str = "0190f3f0-0000-7000-8000-0000000000cc";
const HOST: &str = "0190f3f0-0000-7000-8000-0000000000bb";

/// What a terminal's owner would paste after running `commands`.
pub(crate) async fn transcript(server: &Server, commands: &[&[&str]]) -> String {
    let home = tempfile::tempdir().expect("temporary folder");
    let variables = [("SERVICE_API_URL", server.url.as_str()), ("SERVICE_API_KEY", "ak_one")];
    let mut all = String::new();
    for arguments in commands {
        let ran = run(command(home.path(), &variables, arguments), "").await;
        all.push_str(&ran.transcript(arguments, &server.url));
        all.push('\n');
    }
    all.replace(&home.path().display().to_string(), "~")
}

#[tokio::test]
async fn reading_for_people() {
    let server = Server::start().await;
    let commands: &[&[&str]] = &[
        &["account"],
        &["account", "ledger"],
        &["account", "ledger", "--limit", "1", "--offset", "1"],
        &["account", "ledger", "--all"],
        &["auth", "status"],
        &["auth", "logout"],
        &["jobs", "list"],
        &["jobs", "get", JOB],
        &["jobs", "get", "0190f3f0-0000-7000-8000-000000000002"],
        &["jobs", "get", PAINTED],
        &["jobs", "get", WAITING],
        &["jobs", "get", "0291"],
        &["jobs", "output", JOB],
        &["jobs", "output", PAINTED],
        &["jobs", "cancel", JOB],
        &["workloads", "list"],
        &["workloads", "list", "--runnable"],
        &["workloads", "list", "--runtime", "onnx"],
        &["workloads", "list", "--category", "image"],
        &["workloads", "get", "llm-chat"],
        &["hosts", "list"],
        &["hosts", "get", HOST],
        &["hosts", "get", "0190f3"],
        &["api-keys", "list"],
        &[
            "api-keys",
            "create",
            "ci",
            "--scope",
            "read,write",
            "--expires",
            "2027-01-01T00:00:00Z",
            "--spend-cap",
            "5",
        ],
        &["api-keys", "delete", KEY],
        &["api-keys", "delete", "old"],
        &["market", "rates"],
        &["market", "rates", "llm-chat"],
        &["market", "history", "llm-chat"],
    ];
    insta::assert_snapshot!(transcript(&server, commands).await);
    let create = server.asked().into_iter().find(|asked| asked.line == "POST /api-keys").expect("asked");
    assert_eq!(
        create.body,
        r#"{"name":"ci","scopes":["read","write"],"expires_at":"2027-01-01T00:00:00.000Z","spend_cap":5}"#
    );
}

#[tokio::test]
async fn running_for_people() {
    let server = Server::start().await;
    let input = r#"{"prompt": "Hello"}"#;
    let commands: &[&[&str]] = &[
        &["chat", "Hello"],
        &["chat", "Hello", "--no-stream", "-s", "Be brief.", "-m", "5", "-t", "0.5", "-w", "llm-chat"],
        &["jobs", "submit", "--workload", "llm-chat", "--input", input],
        &["jobs", "submit", "--workload", "llm-chat", "--input", input, "--stream"],
        &["jobs", "submit", "--workload", "shaky", "--input", input, "--stream"],
        &["jobs", "submit", "--workload", "painter", "--input", input, "--stream"],
        &["jobs", "submit", "--workload", "clumsy", "--input", input, "--stream"],
        &["jobs", "stream", JOB, "--after", "4"],
        &["jobs", "stream", COMPLETED, "--after", "6"],
        &["jobs", "stream", FAILED, "--after", "6"],
        &["jobs", "submit", "--workload", "crowded", "--input", input, "--stream"],
        &["chat", "Hello", "-w", "crowded"],
    ];
    insta::assert_snapshot!(transcript(&server, commands).await);
}

#[tokio::test]
async fn for_programs() {
    let server = Server::start().await;
    let input = r#"{"prompt": "Hello"}"#;
    let commands: &[&[&str]] = &[
        &["account"],
        &["account", "ledger"],
        &["auth", "status"],
        &["auth", "logout"],
        &["chat", "Hello"],
        &["chat", "Hello", "--no-stream"],
        &["jobs", "submit", "--workload", "llm-chat", "--input", input],
        &["jobs", "submit", "--workload", "clumsy", "--input", input, "--stream"],
        &["jobs", "list"],
        &["jobs", "get", JOB],
        &["jobs", "stream", JOB],
        &["jobs", "cancel", JOB],
        &["workloads", "list", "--category", "audio"],
        &["workloads", "get", "llm-chat"],
        &["hosts", "list"],
        &["hosts", "get", HOST],
        &["api-keys", "list"],
        &["api-keys", "create", "ci"],
        &["api-keys", "delete", KEY],
        &["market", "rates"],
        &["market", "history", "llm-chat"],
        &["jobs", "get", "0190f3f0-0000-7000-8000-0000000000ff"],
        &["jobs", "submit", "--workload", "popular", "--input", input],
    ];
    let commands: Vec<Vec<&str>> =
        commands.iter().map(|arguments| [arguments, &["--format", "json"][..]].concat()).collect();
    let commands: Vec<&[&str]> = commands.iter().map(Vec::as_slice).collect();
    insta::assert_snapshot!(transcript(&server, &commands).await);
}

#[tokio::test]
async fn for_operators() {
    let server = Server::start().await;
    let commands: &[&[&str]] = &[
        &["admin", "accounts", "list"],
        &["admin", "accounts", "create", "user@example.org", "--credits", "12.5"],
        &["admin", "accounts", "grant", "user@example.org", "25", "--reason", "invoice 7"],
        &["admin", "accounts", "deduct", ACCOUNT, "2", "--reason", "a mistake"],
        &["admin", "accounts", "suspend", ACCOUNT, "--reason", "unpaid invoice 7"],
        &["admin", "accounts", "resume", ACCOUNT, "--reason", "paid"],
        &["admin", "keys", "list", ACCOUNT],
        &["admin", "keys", "revoke", KEY, "--reason", "found in public"],
        &["admin", "keys", "revoke", "ci", "--reason", "found in public"],
        &["admin", "islands", "list"],
        &["admin", "islands", "suspend", HOST, "--reason", "wrong results"],
        &["admin", "islands", "resume", HOST, "--reason", "repaired"],
        &["admin", "refund", JOB, "--reason", "a wrong model"],
        &["admin", "log"],
        &["admin", "log", "--account", "user@example.org", "--format", "json"],
    ];
    insta::assert_snapshot!(transcript(&server, commands).await);
}
