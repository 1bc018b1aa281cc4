//! A server on loopback that answers by a script, one step for each connection, and records every request.

use std::{fmt::Write as _, sync::Arc, time::Duration};

use island_coordinator_client::{Client, RetryPolicy};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Mutex,
    task::JoinHandle,
};

/// Time between the head and the body of a slow answer.
const PAUSE: Duration = Duration::from_millis(300);

/// How one connection is answered.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// An answer: status, extra header lines, body.
    Answer(u16, &'static str, String),
    /// An answer whose body follows after [`PAUSE`].
    Slow(String),
    /// An answer whose body is cut in the middle.
    Cut(String),
    /// Frames of an event stream, then the connection is closed inside the body.
    Stream(String),
    /// Frames of an event stream, then silence until the client disconnects.
    Silent(String),
    /// This text, then silence until the client disconnects.
    Mute(&'static str),
    /// The connection is closed without an answer.
    Hangup,
}

/// One request as the server received it.
#[derive(Debug, Clone)]
pub(crate) struct ReceivedRequest {
    pub(crate) line: String,
    headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl ReceivedRequest {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }
}

/// The server, stopped on drop.
pub(crate) struct Script {
    pub(crate) url: String,
    asked: Arc<Mutex<Vec<ReceivedRequest>>>,
    task: JoinHandle<()>,
}

impl Script {
    /// Plays `steps`, one for each connection; further connections are refused.
    pub(crate) async fn play(steps: Vec<Step>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let url = format!("http://{}", listener.local_addr().expect("address"));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&asked);
        let task = tokio::spawn(async move {
            for step in steps {
                let (socket, _) = listener.accept().await.expect("accept");
                meet(socket, step, &kept).await;
            }
        });
        Self { url, asked, task }
    }

    /// A client that does not wait long.
    pub(crate) fn client(&self) -> Client {
        let quick = RetryPolicy {
            tries: 3,
            first: Duration::from_millis(1),
            most: Duration::from_millis(2),
            patience: Duration::from_secs(1),
        };
        let builder =
            Client::builder(&self.url).key("ak_test").retry(quick).resume(RetryPolicy { tries: 5, ..quick });
        builder.idle_timeout(Duration::from_millis(300)).build().expect("client")
    }

    pub(crate) async fn asked(&self) -> Vec<ReceivedRequest> {
        self.asked.lock().await.clone()
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn meet(mut socket: TcpStream, step: Step, kept: &Mutex<Vec<ReceivedRequest>>) {
    let Some(asked) = read(&mut socket).await else { return };
    kept.lock().await.push(asked);
    let sent = match &step {
        Step::Answer(status, headers, body) => {
            let length = body.len();
            format!(
                "HTTP/1.1 {status} x\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
            )
        }
        Step::Slow(body) => {
            let length = body.len();
            format!("HTTP/1.1 200 x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n")
        }
        Step::Cut(body) => {
            let length = body.len() + 10;
            format!("HTTP/1.1 200 x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}")
        }
        Step::Stream(frames) | Step::Silent(frames) => {
            let head =
                "HTTP/1.1 200 x\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
            let length = frames.len();
            if length == 0 { head.to_owned() } else { format!("{head}{length:x}\r\n{frames}\r\n") }
        }
        Step::Mute(text) => (*text).to_owned(),
        Step::Hangup => return,
    };
    socket.write_all(sent.as_bytes()).await.expect("answer");
    if let Step::Slow(body) = &step {
        tokio::time::sleep(PAUSE).await;
        socket.write_all(body.as_bytes()).await.expect("the body");
    }
    if matches!(step, Step::Silent(_) | Step::Mute(_)) {
        // Ends when the client disconnects.
        let _ = socket.read(&mut [0; 1]).await;
    }
}

async fn read(socket: &mut TcpStream) -> Option<ReceivedRequest> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        if socket.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..head_end].to_vec()).expect("text");
    let mut lines = head.lines();
    let line = lines.next().expect("a request line").to_owned();
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let mut asked = ReceivedRequest { line, headers, body: String::new() };
    let length: usize = asked.header("content-length").map_or(0, |length| length.parse().expect("a length"));
    while bytes.len() < head_end + length {
        socket.read_buf(&mut bytes).await.ok()?;
    }
    asked.body = String::from_utf8(bytes[head_end..].to_vec()).expect("text");
    Some(asked)
}

/// An error body.
pub(crate) fn problem(code: &str) -> String {
    format!(r#"{{"error":{{"message":"not now","code":"{code}"}}}}"#)
}

/// Frames of events `from..=to` of a job that has `total`.
pub(crate) fn frames(from: u64, to: u64, total: u64) -> String {
    let mut text = String::from(": keep-alive\n\n");
    for n in from..=to {
        let data = if n == total {
            r#"{"type":"done","usage":{"prompt_tokens":1,"completion_tokens":9,"total_tokens":10}}"#
                .to_owned()
        } else {
            format!(r#"{{"type":"token","content":"t{n}"}}"#)
        };
        let _ = write!(text, "id: {n}\nevent: x\ndata: {data}\n\n");
    }
    text
}
