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
const PAYOUT: &str = "0190f3f0-0000-7000-8000-0000000000d2";
const PUBLICATION: &str = "0190f3f0-0000-7000-8000-0000000000e0";
const COMPLETED_BATCH: &str = "batch_0190f3f0-0000-7000-8000-000000000002";
const RUNNING_BATCH: &str = "batch_0190f3f0-0000-7000-8000-000000000005";
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

/// The bodies of all requests with this line.
fn bodies(server: &Server, line: &str) -> Vec<String> {
    server.asked().into_iter().filter(|asked| asked.line == line).map(|asked| asked.body).collect()
}

#[tokio::test]
async fn reading_for_people() {
    let server = Server::start().await;
    let commands: &[&[&str]] = &[
        &["account"],
        &["account", "ledger"],
        &["account", "ledger", "--limit", "1", "--offset", "1"],
        &["account", "ledger", "--all"],
        &["account", "statement"],
        &["account", "statement", "--month", "2026-12", "--csv"],
        &["account", "usage"],
        &["account", "usage", "--month", "2026-12", "--csv"],
        &["account", "quotas"],
        &["auth", "status"],
        &["auth", "logout"],
        &["jobs", "list"],
        &[
            "jobs",
            "list",
            "--status",
            "completed",
            "--cargo",
            "llm-chat",
            "--key",
            "ci",
            "--from",
            "2026-11-01T00:00:00Z",
        ],
        &["jobs", "list", "--status", "done"],
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
        &["hosts", "alerts"],
        &["hosts", "pause", HOST],
        &["hosts", "drain", HOST],
        &["hosts", "resume", HOST],
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
            "--quota",
            "day.requests=1000",
            "--quota",
            "month.credits=2.5",
        ],
        &["api-keys", "quotas", "ci"],
        &["api-keys", "quotas", KEY, "--quota", "month.tokens=1000000"],
        &["api-keys", "quotas", KEY, "--none"],
        &["api-keys", "delete", KEY],
        &["api-keys", "delete", "old"],
        &["network", "stats"],
        &["network", "notices"],
        &["market", "rates"],
        &["market", "rates", "llm-chat"],
        &["market", "history", "llm-chat"],
    ];
    insta::assert_snapshot!(transcript(&server, commands).await);
    let bodies = |line: &str| bodies(&server, line);
    assert_eq!(
        bodies("POST /api-keys"),
        [concat!(
            r#"{"name":"ci","scopes":["read","write"],"expires_at":"2027-01-01T00:00:00.000Z","spend_cap":5,"#,
            r#""quotas":{"day":{"requests":1000},"month":{"credits":2.5}}}"#
        )]
    );
    assert_eq!(
        bodies(&format!("POST /api-keys/{KEY}/quotas")),
        [r#"{"day":{},"month":{"tokens":1000000}}"#, r#"{"day":{},"month":{}}"#]
    );
    let month = "from=2026-12-01T00%3A00%3A00.000Z&until=2027-01-01T00%3A00%3A00.000Z";
    assert_eq!(bodies("GET /account/statement").len(), 1, "the coordinator knows which month it is");
    assert_eq!(bodies(&format!("GET /account/statement?{month}&format=csv")).len(), 1);
    assert_eq!(bodies(&format!("GET /account/usage?{month}&format=csv")).len(), 1);
    assert_eq!(bodies(&format!("POST /hosts/{HOST}/pause")).len(), 1);
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
        &["account", "statement"],
        &["account", "statement", "--csv"],
        &["account", "quotas"],
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
        &["hosts", "alerts"],
        &["api-keys", "list"],
        &["api-keys", "create", "ci"],
        &["api-keys", "quotas", KEY],
        &["api-keys", "delete", KEY],
        &["network", "stats"],
        &["network", "notices"],
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
async fn for_publishers() {
    let server = Server::start().await;
    let folder = tempfile::tempdir().expect("temporary folder");
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("write");
        path.display().to_string()
    };
    let good = file("my-model.toml", "slug = \"my-model\"\n");
    let taken = file("taken.toml", "slug = \"llm-chat\"\n");
    let bad = file("bad.toml", "slug = \"my-model\"\nprice_per_job = -1\n");
    let commands: &[&[&str]] = &[
        &["cargos", "publish", &good],
        &["cargos", "publish", &good, "--format", "json"],
        &["cargos", "publish", &taken],
        &["cargos", "publish", &bad],
        &["cargos", "publish", &bad, "--format", "json"],
        &["cargos", "publish", "no-such-file.toml"],
        &["cargos", "published"],
        &["cargos", "show", PUBLICATION],
        &["cargos", "withdraw", PUBLICATION],
        &["admin", "cargos", "published", "--state", "submitted"],
        &["admin", "cargos", "show", PUBLICATION],
        &["admin", "cargos", "approve", PUBLICATION, "--reason", "its licence allows it"],
        &["admin", "cargos", "reject", PUBLICATION, "--reason", "its licence does not allow it"],
    ];
    let all = transcript(&server, commands).await;
    insta::assert_snapshot!(all.replace(&folder.path().display().to_string(), "FOLDER"));
    let bodies = |line: &str| bodies(&server, line);
    assert_eq!(bodies("POST /publications")[0], r#"{"manifest":"slug = \"my-model\"\n"}"#);
    let rejection = bodies(&format!("POST /admin/publications/{PUBLICATION}/reject"));
    assert_eq!(rejection, [r#"{"reason":"its licence does not allow it"}"#]);
    let listed = "GET /admin/publications?state=submitted&limit=20&offset=0";
    assert_eq!(bodies(listed).len(), 1);
}

#[tokio::test]
async fn for_batches() {
    let server = Server::start().await;
    let folder = tempfile::tempdir().expect("folder");
    let file = |name: &str, url: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, format!("{{\"custom_id\": \"one\", \"url\": \"{url}\"}}\n")).expect("written");
        path.to_str().expect("text").to_owned()
    };
    let chats = file("chats.jsonl", "/v1/chat/completions");
    let failing = file("failing.jsonl", "/v1/embeddings");
    let invalid = file("invalid.jsonl", "/v1/messages");
    let unknown = file("unknown.jsonl", "/v1/audio/speech");
    let saved = folder.path().join("results.jsonl").to_str().expect("text").to_owned();
    let commands: &[&[&str]] = &[
        &["batches", "run", &chats, "--max-credits", "2"],
        &["batches", "run", &chats, "--output", &saved],
        &["batches", "run", &chats, "--detach", "--window", "7d"],
        &["batches", "run", &failing],
        &["batches", "run", &invalid],
        &["batches", "run", &unknown],
        &["batches", "run", &chats, "--window", "2y"],
        &["batches", "run", "no-such-file.jsonl"],
        &["batches", "list"],
        &["batches", "list", "--limit", "2", "--after", COMPLETED_BATCH, "--format", "json"],
        &["batches", "get", COMPLETED_BATCH],
        &["batches", "get", "0291aaaa"],
        &["batches", "results", COMPLETED_BATCH],
        &["batches", "results", COMPLETED_BATCH, "--errors"],
        &["batches", "results", RUNNING_BATCH],
        &["batches", "cancel", RUNNING_BATCH],
        &["batches", "cancel", COMPLETED_BATCH],
    ];
    let all = transcript(&server, commands).await;
    insta::assert_snapshot!(all.replace(&folder.path().display().to_string(), "FOLDER"));
    let written = std::fs::read_to_string(saved).expect("results were written");
    assert_eq!(written.lines().count(), 2);
    let bodies = |line: &str| bodies(&server, line);
    let upload = &bodies("POST /files")[0];
    assert!(upload.contains("name=\"purpose\"\r\n\r\nbatch\r\n"), "{upload}");
    assert!(upload.contains("name=\"file\"; filename=\"chats.jsonl\""), "{upload}");
    assert!(upload.contains(&std::fs::read_to_string(chats).expect("requests")), "{upload}");
    assert_eq!(
        bodies("POST /batches")[0],
        r#"{"input_file_id":"file-requests","endpoint":"/v1/chat/completions","completion_window":"24h","max_credits":2}"#
    );
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
        &["admin", "accounts", "quotas", "user@example.org"],
        &["admin", "accounts", "quotas", ACCOUNT, "--quota", "day.requests=1000", "--reason", "a trial"],
        &["admin", "accounts", "quotas", ACCOUNT, "--none", "--reason", "a contract"],
        &["admin", "accounts", "statement", ACCOUNT, "--month", "2026-11"],
        &["admin", "accounts", "statement", "user@example.org", "--csv"],
        &["admin", "accounts", "close", ACCOUNT, "--reason", "at its own request"],
        &["admin", "keys", "list", ACCOUNT],
        &["admin", "keys", "revoke", KEY, "--reason", "found in public"],
        &["admin", "keys", "revoke", "ci", "--reason", "found in public"],
        &["admin", "islands", "list"],
        &["admin", "islands", "suspend", HOST, "--reason", "wrong results"],
        &["admin", "islands", "resume", HOST, "--reason", "repaired"],
        &[
            "admin",
            "islands",
            "annotate",
            HOST,
            "--trust",
            "low",
            "--note",
            "slow disks",
            "--reason",
            "complaints",
        ],
        &["admin", "islands", "annotate", HOST, "--note", "", "--reason", "repaired"],
        &["admin", "queue"],
        &["admin", "queue", "--cargo", "llm-chat", "--reason", "no_slot", "--limit", "1", "--format", "json"],
        &["admin", "cancel", WAITING, "--reason", "it blocks the network"],
        &["admin", "refund", JOB, "--reason", "a wrong model"],
        &["admin", "log"],
        &["admin", "log", "--account", "user@example.org", "--format", "json"],
    ];
    insta::assert_snapshot!(transcript(&server, commands).await);
    let bodies = |line: &str| bodies(&server, line);
    assert_eq!(
        bodies(&format!("POST /admin/accounts/{ACCOUNT}/quotas")),
        [
            r#"{"quotas":{"day":{"requests":1000},"month":{}},"reason":"a trial"}"#,
            r#"{"quotas":{"day":{},"month":{}},"reason":"a contract"}"#,
        ]
    );
    assert_eq!(
        bodies(&format!("POST /admin/hosts/{HOST}/annotate")),
        [
            r#"{"trust":"low","note":"slow disks","reason":"complaints"}"#,
            r#"{"note":"","reason":"repaired"}"#,
        ]
    );
    assert_eq!(bodies("GET /admin/queue?workload=llm-chat&reason=no_slot&limit=1&offset=0").len(), 1);
    assert_eq!(
        bodies(&format!("POST /admin/accounts/{ACCOUNT}/close")),
        [r#"{"reason":"at its own request"}"#]
    );
    let cancelled = bodies(&format!("POST /admin/jobs/{WAITING}/cancel"));
    assert_eq!(cancelled, [r#"{"reason":"it blocks the network"}"#]);
}

#[tokio::test]
async fn for_operators_of_the_whole_network() {
    let server = Server::start().await;
    let commands: &[&[&str]] = &[
        &["admin", "cargos", "list"],
        &["admin", "cargos", "disable", "painter", "--reason", "a wrong license"],
        &["admin", "cargos", "enable", "llm-chat", "--reason", "repaired"],
        &["admin", "maintenance", "start", "--reason", "new disks"],
        &["admin", "maintenance", "end", "--reason", "done"],
        &["admin", "notices", "list"],
        &["admin", "notices", "create", "Prices change in December.", "--until", "2026-12-01T00:00:00Z"],
        &["admin", "notices", "remove", "0190f3f0"],
        &["admin", "invitations", "list"],
        &[
            "admin",
            "invitations",
            "create",
            "--credits",
            "0",
            "--uses",
            "10",
            "--expires",
            "2999-01-01T00:00:00Z",
            "--reason",
            "the workshop",
        ],
        &["admin", "invitations", "create", "--reason", "a friend"],
        &["admin", "invitations", "revoke", "0190f3f0", "--reason", "over"],
        &["admin", "payouts", "list"],
        &[
            "admin",
            "payouts",
            "create",
            "--until",
            "2026-11-01T00:00:00Z",
            "--minimum",
            "5",
            "--reason",
            "October",
        ],
        &["admin", "payouts", "show", "0190f3f0"],
        &["admin", "payouts", "show", PAYOUT, "--csv"],
        &["admin", "payouts", "confirm", PAYOUT, "--reason", "transfer 12"],
        &["admin", "payouts", "cancel", PAYOUT, "--reason", "transfer 12 failed"],
    ];
    insta::assert_snapshot!(transcript(&server, commands).await);
    let bodies = |line: &str| bodies(&server, line);
    assert_eq!(
        bodies("POST /admin/notices"),
        [r#"{"text":"Prices change in December.","until":"2026-12-01T00:00:00.000Z"}"#]
    );
    assert_eq!(
        bodies("POST /admin/invitations"),
        [
            r#"{"credits":0,"uses":10,"expires_at":"2999-01-01T00:00:00.000Z","reason":"the workshop"}"#,
            r#"{"uses":1,"reason":"a friend"}"#,
        ]
    );
    assert_eq!(
        bodies("POST /admin/payouts"),
        [r#"{"until":"2026-11-01T00:00:00.000Z","minimum":5,"reason":"October"}"#]
    );
    for (line, body) in [
        ("POST /admin/cargos/painter/disable".into(), r#"{"reason":"a wrong license"}"#),
        ("POST /admin/maintenance/start".into(), r#"{"reason":"new disks"}"#),
        ("DELETE /admin/notices/0190f3f0-0000-7000-8000-0000000000d0".into(), ""),
        (
            "POST /admin/invitations/0190f3f0-0000-7000-8000-0000000000d1/revoke".into(),
            r#"{"reason":"over"}"#,
        ),
        (format!("POST /admin/payouts/{PAYOUT}/confirm"), r#"{"reason":"transfer 12"}"#),
        (format!("POST /admin/payouts/{PAYOUT}/cancel"), r#"{"reason":"transfer 12 failed"}"#),
    ] {
        assert_eq!(bodies(&line), [body], "{line}");
    }
}
