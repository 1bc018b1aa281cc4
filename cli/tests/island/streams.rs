//! Streams that break, are interrupted, or whose reader goes away.

use std::{
    io::{BufRead, BufReader, Read},
    process::{Child, Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{
    program::{Ran, command, run},
    server::Server,
};

const ENDLESS: &str = "0190f3f0-0000-7000-8000-000000000005";

fn at(server: &Server) -> [(&str, &str); 2] {
    [("SERVICE_API_URL", server.url.as_str()), ("SERVICE_API_KEY", "ak_one")]
}

#[tokio::test]
async fn a_broken_stream_is_taken_up_after_its_last_event() {
    let server = Server::start().await;
    let home = tempfile::tempdir().expect("temporary folder");
    let arguments = ["jobs", "submit", "--workload", "shaky", "--input", "{}", "--stream"];
    let ran = run(command(home.path(), &at(&server), &arguments), "").await;
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "Hel[31mlo, the world.\n"));
    let streams: Vec<_> =
        server.asked().into_iter().filter(|asked| asked.line.ends_with("/stream")).collect();
    assert_eq!(streams.len(), 2);
    assert_eq!(streams[1].last_event.as_deref(), Some("4"));
}

#[tokio::test]
async fn images_are_saved() {
    let server = Server::start().await;
    let home = tempfile::tempdir().expect("temporary folder");
    let folder = home.path().join("images");
    let show = folder.display().to_string();
    let arguments =
        ["jobs", "submit", "--workload", "painter", "--input", "{}", "--stream", "--output", &show];
    let ran = run(command(home.path(), &at(&server), &arguments), "").await;
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let saved = std::fs::read(folder.join("0190f3f0-0000-7000-8000-000000000003-2.png")).expect("saved");
    assert_eq!(saved, b"PNG");
    let arguments = ["jobs", "get", "0190f3f0-0000-7000-8000-000000000003", "--output", &show];
    let ran = run(command(home.path(), &at(&server), &arguments), "").await;
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(folder.join("0190f3f0-0000-7000-8000-000000000003-output-1.png").is_file());
}

/// Starts it and waits until the two tokens of the endless story are there.
fn start_endless(mut command: Command) -> Child {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("start");
    let mut text = [0; "Hel[31mlo, the ".len()];
    child.stdout.as_mut().expect("piped").read_exact(&mut text).expect("two tokens");
    assert_eq!(&text, b"Hel[31mlo, the ");
    child
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).expect("signal");
}

fn interrupt(child: &Child) {
    signal(child, Signal::INT);
}

#[tokio::test(flavor = "multi_thread")]
async fn why_a_job_waits_is_said_without_a_terminal() {
    let server = Server::start().await;
    let home = tempfile::tempdir().expect("temporary folder");
    let submit = ["jobs", "submit", "--workload", "unreachable", "--input", "{}", "--stream"];
    let chat = ["chat", "hi", "-w", "unreachable"];
    for (arguments, ends) in [(&chat[..], "Ctrl-C cancels"), (&submit[..], "Ctrl-C stops following")] {
        let mut command = command(home.path(), &at(&server), arguments);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("start");
        let mut line = String::new();
        let mut err = BufReader::new(child.stderr.take().expect("piped"));
        err.read_line(&mut line).expect("a line");
        let reasons = "waiting: 1 Island cannot reach the model's hub, 2 Islands are busy";
        assert_eq!(line, format!("{reasons}; {ends}\n"));
        interrupt(&child);
        assert_eq!(child.wait().expect("wait").code(), Some(130));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_signal_that_ends_a_chat_cancels_its_job() {
    for (signal_sent, code) in [(Signal::TERM, 143), (Signal::HUP, 129)] {
        let server = Server::start().await;
        let home = tempfile::tempdir().expect("temporary folder");
        let child = start_endless(command(home.path(), &at(&server), &["chat", "hi", "-w", "endless"]));
        signal(&child, signal_sent);
        let result = child.wait_with_output().expect("wait");
        assert_eq!(result.status.code(), Some(code));
        assert!(server.asked().iter().any(|asked| asked.line == format!("DELETE /jobs/{ENDLESS}")));
    }
}

#[tokio::test]
async fn a_stream_that_is_refused_is_not_left_running_by_a_chat() {
    const JOB: &str = "0190f3f0-0000-7000-8000-000000000007";
    let server = Server::start().await;
    let home = tempfile::tempdir().expect("temporary folder");
    let ran = run(command(home.path(), &at(&server), &["chat", "hi", "-w", "crowded"]), "").await;
    assert_eq!(ran.code, Some(5), "{}", ran.err);
    let lines: Vec<String> = server.asked().into_iter().map(|asked| asked.line).collect();
    let wanted = ["POST /jobs".to_owned(), format!("GET /jobs/{JOB}/stream"), format!("DELETE /jobs/{JOB}")];
    assert_eq!(lines, wanted, "asked once, and cancelled");
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_says_how_to_follow_on() {
    let server = Server::start().await;
    let home = tempfile::tempdir().expect("temporary folder");
    let child = start_endless(command(home.path(), &at(&server), &["jobs", "stream", ENDLESS]));
    interrupt(&child);
    let result = child.wait_with_output().expect("wait");
    assert_eq!(result.status.code(), Some(130));
    let err = String::from_utf8(result.stderr).expect("text");
    assert!(err.contains(&format!("island jobs stream {ENDLESS} --after 4")), "{err}");
    assert!(!server.asked().iter().any(|asked| asked.line.starts_with("DELETE")));
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_cancels_a_chat() {
    let server = Server::start().await;
    let home = tempfile::tempdir().expect("temporary folder");
    let child = start_endless(command(home.path(), &at(&server), &["chat", "hi", "-w", "endless"]));
    interrupt(&child);
    let result = child.wait_with_output().expect("wait");
    assert_eq!(result.status.code(), Some(130));
    assert!(server.asked().iter().any(|asked| asked.line == format!("DELETE /jobs/{ENDLESS}")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_ctrl_c_does_not_wait_for_a_cancellation_that_is_not_answered() {
    let server = Server::start().await;
    let home = tempfile::tempdir().expect("temporary folder");
    let child = start_endless(command(home.path(), &at(&server), &["chat", "hi", "-w", "unanswered"]));
    interrupt(&child);
    while !server.asked().iter().any(|asked| asked.line.starts_with("DELETE /jobs/")) {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    interrupt(&child);
    let result = child.wait_with_output().expect("wait");
    let err = String::from_utf8(result.stderr).expect("text");
    assert_eq!(result.status.code(), Some(130), "{err}");
    assert!(err.contains("island jobs cancel 0190f3f0-0000-7000-8000-00000000000a"), "{err}");
}

#[test]
fn ctrl_c_ends_an_upload_and_there_is_no_batch() {
    // It takes the connection and never answers.
    let server = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
    let url = format!("http://{}", server.local_addr().expect("address"));
    let home = tempfile::tempdir().expect("temporary folder");
    let file = home.path().join("requests.jsonl");
    std::fs::write(&file, "{\"custom_id\": \"one\", \"url\": \"/v1/embeddings\"}\n").expect("written");
    let variables = [("SERVICE_API_URL", url.as_str()), ("SERVICE_API_KEY", "ak_one")];
    let nothing: &[&str] = &[];
    for more in [nothing, &["--detach"]] {
        let arguments = [&["batches", "run", file.to_str().expect("text")][..], more].concat();
        let mut command = command(home.path(), &variables, &arguments);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("start");
        let (mut connection, _) = server.accept().expect("a connection");
        connection.read_exact(&mut [0]).expect("a request");
        interrupt(&child);
        let result = child.wait_with_output().expect("wait");
        let err = String::from_utf8(result.stderr).expect("text");
        assert_eq!(result.status.code(), Some(130), "{err}");
        assert!(err.contains("there is no batch"), "{err}");
    }
}

/// Runs it with an output that nobody reads.
async fn unread(mut command: Command) -> Ran {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    command.stdin(Stdio::null()).stdout(writer);
    tokio::task::spawn_blocking(move || command.output()).await.expect("join").expect("run island").into()
}

#[tokio::test]
async fn a_reader_that_goes_away_is_no_error() {
    let server = Server::start().await;
    let home = tempfile::tempdir().expect("temporary folder");
    for arguments in
        [&["completion", "bash"][..], &["man"], &["jobs", "list"], &["account", "--format", "json"]]
    {
        let ran = unread(command(home.path(), &at(&server), arguments)).await;
        assert_eq!((ran.code, ran.err.as_str()), (Some(141), ""), "{arguments:?}");
    }
}

#[tokio::test]
async fn a_chat_that_nobody_reads_is_cancelled() {
    let server = Server::start().await;
    let home = tempfile::tempdir().expect("temporary folder");
    let ran = unread(command(home.path(), &at(&server), &["chat", "hi", "-w", "endless"])).await;
    assert_eq!((ran.code, ran.err.as_str()), (Some(141), ""));
    assert!(server.asked().iter().any(|asked| asked.line == format!("DELETE /jobs/{ENDLESS}")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_an_error() {
    let server = Server::start().await;
    let home = tempfile::tempdir().expect("temporary folder");
    let full = std::fs::File::options().write(true).open("/dev/full").expect("open /dev/full");
    let result = command(home.path(), &at(&server), &["jobs", "list"]).stdout(full).output().expect("run");
    assert_eq!(result.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&result.stderr).contains("No space left"));
}
