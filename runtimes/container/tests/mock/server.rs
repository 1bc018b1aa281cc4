//! As much HTTP as a scripted daemon needs.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::Mutex;
use serde_json::Value;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixListener, UnixStream},
};
use tokio_util::task::AbortOnDropHandle;

#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// Without the version of the API.
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) body: Vec<u8>,
}

#[derive(Debug, Clone)]
pub(crate) enum MockResponse {
    Json(u16, Value),
    /// These bytes and the end.
    Raw(Vec<u8>),
    /// The connection becomes a stream of these bytes, and ends.
    Upgrade(Vec<u8>),
    Close,
    /// The connection stays open without an answer.
    Never,
}

pub(crate) struct Server {
    socket: PathBuf,
    requests: Arc<Mutex<Vec<Request>>>,
    _folder: TempDir,
    _task: AbortOnDropHandle<()>,
}

impl Server {
    pub(crate) fn start(answer: impl Fn(&Request) -> MockResponse + Send + Sync + 'static) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("s");
        let listener = UnixListener::bind(&socket).expect("a socket");
        let requests = Arc::<Mutex<Vec<Request>>>::default();
        let (seen, answer) = (Arc::clone(&requests), Arc::new(answer));
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (seen, answer) = (Arc::clone(&seen), Arc::clone(&answer));
                connections.spawn(async move {
                    let _ = serve(stream, &seen, &*answer).await;
                });
            }
        });
        Self { socket, requests, _folder: folder, _task: AbortOnDropHandle::new(task) }
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().clone()
    }
}

async fn serve(
    mut stream: UnixStream,
    seen: &Mutex<Vec<Request>>,
    answer: &(impl Fn(&Request) -> MockResponse + Send + Sync),
) -> std::io::Result<()> {
    let request = read(&mut stream).await?;
    seen.lock().push(request.clone());
    match answer(&request) {
        MockResponse::Json(status, body) => {
            let body = if body.is_null() { String::new() } else { body.to_string() };
            let head = format!(
                "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
                body.len()
            );
            stream.write_all(format!("{head}{body}").as_bytes()).await?;
        }
        MockResponse::Raw(bytes) => stream.write_all(&bytes).await?,
        MockResponse::Upgrade(bytes) => {
            stream.write_all(b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n").await?;
            stream.write_all(&bytes).await?;
        }
        MockResponse::Close => {}
        MockResponse::Never => std::future::pending().await,
    }
    stream.shutdown().await
}

async fn read(stream: &mut UnixStream) -> std::io::Result<Request> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let mut words = head.split_whitespace();
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let path =
        path.strip_prefix("/v1.").and_then(|rest| rest.find('/').map(|at| &rest[at..])).unwrap_or(path);
    let length = head
        .lines()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).await?;
    Ok(Request { method: method.to_owned(), path: path.to_owned(), query: query.to_owned(), body })
}
