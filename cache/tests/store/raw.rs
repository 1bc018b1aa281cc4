//! A file server on loopback that can answer with any bytes, which frameworks would not allow.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinHandle,
};

/// Bytes after which an endless body ends, so that a client that accepts all of it fails its test and not the machine.
pub(crate) const END_OF_ENDLESS: u64 = 256 << 20;

/// A request for a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    /// First requested byte.
    pub(crate) start: u64,
    /// Last requested byte.
    pub(crate) last: u64,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    status: &'static str,
    headers: Vec<String>,
    body: Body,
    gate: Option<Arc<Semaphore>>,
}

#[derive(Debug)]
enum Body {
    /// Without framing; the end of the connection is their end.
    Plain(Vec<u8>),
    /// In chunks, with the final one.
    Chunked(Vec<u8>),
    /// In chunks without end.
    Endless,
}

impl Reply {
    pub(crate) fn new(status: &'static str) -> Self {
        Self { status, headers: Vec::new(), body: Body::Plain(Vec::new()), gate: None }
    }

    /// The correct answer for the requested part of `content`.
    pub(crate) fn part(content: &[u8], request: Request) -> Self {
        let total = content.len() as u64;
        let last = request.last.min(total - 1);
        let part = &content[request.start as usize..=last as usize];
        Self::new("206 Partial Content")
            .header("ETag", "\"v\"")
            .header("Content-Length", part.len())
            .header("Content-Range", format!("bytes {}-{last}/{total}", request.start))
            .plain(part)
    }

    pub(crate) fn header(mut self, name: &str, value: impl std::fmt::Display) -> Self {
        self.headers.push(format!("{name}: {value}\r\n"));
        self
    }

    pub(crate) fn plain(self, bytes: &[u8]) -> Self {
        Self { body: Body::Plain(bytes.to_vec()), ..self }
    }

    pub(crate) fn chunked(self, bytes: &[u8]) -> Self {
        let body = Body::Chunked(bytes.to_vec());
        Self { body, ..self }.header("Transfer-Encoding", "chunked")
    }

    pub(crate) fn endless(self) -> Self {
        Self { body: Body::Endless, ..self }.header("Transfer-Encoding", "chunked")
    }

    /// Sends the body once `gate` has a permit.
    pub(crate) fn behind(self, gate: &Arc<Semaphore>) -> Self {
        Self { gate: Some(Arc::clone(gate)), ..self }
    }
}

#[derive(Debug, Default)]
struct Received {
    requests: AtomicU32,
    sent: AtomicU64,
}

/// The server.
pub(crate) struct Raw {
    pub(crate) url: String,
    seen: Arc<Received>,
    task: JoinHandle<()>,
}

impl Raw {
    /// Starts one that answers every request with `reply`, each on a new connection.
    pub(crate) async fn start(reply: impl Fn(Request) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let url = format!("http://{}/file", listener.local_addr().expect("address"));
        let (seen, reply) = (Arc::<Received>::default(), Arc::new(reply));
        let shared = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.expect("accept");
                let (seen, reply) = (Arc::clone(&shared), Arc::clone(&reply));
                connections.spawn(async move {
                    // A client that needs no more closes the connection.
                    let _ = answer(stream, &seen, &*reply).await;
                });
            }
        });
        Self { url, seen, task }
    }

    /// Bytes of bodies that were written to the socket.
    pub(crate) fn sent(&self) -> u64 {
        self.seen.sent.load(Ordering::Relaxed)
    }

    pub(crate) fn requests(&self) -> u32 {
        self.seen.requests.load(Ordering::Relaxed)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(
    mut stream: TcpStream,
    seen: &Received,
    reply: &(dyn Fn(Request) -> Reply + Sync),
) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
    let range = head.split("range: bytes=").nth(1).and_then(|rest| rest.split("\r\n").next());
    let (start, last) = range.and_then(|range| range.split_once('-')).expect("a range");
    seen.requests.fetch_add(1, Ordering::Relaxed);
    let (start, last) = (start.parse().expect("a number"), last.parse().expect("a number"));
    let Reply { status, headers, body, gate } = reply(Request { start, last });
    let head = format!("HTTP/1.1 {status}\r\nConnection: close\r\n{}\r\n", headers.concat());
    stream.write_all(head.as_bytes()).await?;
    if let Some(gate) = gate {
        let _open = gate.acquire().await.expect("the gate is not closed");
    }
    match body {
        Body::Plain(bytes) => send(&mut stream, seen, &bytes).await?,
        Body::Chunked(bytes) => {
            for chunk in bytes.chunks(64 << 10) {
                send_chunk(&mut stream, seen, chunk).await?;
            }
            stream.write_all(b"0\r\n\r\n").await?;
        }
        Body::Endless => {
            let chunk = vec![7; 64 << 10];
            for _ in 0..END_OF_ENDLESS / chunk.len() as u64 {
                send_chunk(&mut stream, seen, &chunk).await?;
            }
        }
    }
    stream.shutdown().await?;
    // Until the client has read it all: closing with unread bytes would truncate the body.
    let _ = tokio::time::timeout(Duration::from_secs(30), stream.read_u8()).await;
    Ok(())
}

async fn send_chunk(stream: &mut TcpStream, seen: &Received, chunk: &[u8]) -> std::io::Result<()> {
    stream.write_all(format!("{:x}\r\n", chunk.len()).as_bytes()).await?;
    send(stream, seen, chunk).await?;
    stream.write_all(b"\r\n").await
}

async fn send(stream: &mut TcpStream, seen: &Received, bytes: &[u8]) -> std::io::Result<()> {
    for part in bytes.chunks(64 << 10) {
        stream.write_all(part).await?;
        seen.sent.fetch_add(part.len() as u64, Ordering::Relaxed);
    }
    Ok(())
}
