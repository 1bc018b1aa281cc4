//! An outside with a few names, and a gate to it.

use std::{future::Future, net::SocketAddr, sync::Arc, time::Duration};

use island_runtimes_api::JobLog;
use island_runtimes_egress::{Bounds, Gate, testing::Town};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, UnixStream},
    task::JoinHandle,
};

/// Maximum time to wait for anything; reached only if something is broken.
const PATIENCE: Duration = Duration::from_secs(30);

/// A gate that is served, until it is dropped.
pub(crate) struct World {
    pub(crate) town: Arc<Town>,
    pub(crate) log: JobLog,
    folder: TempDir,
    task: JoinHandle<()>,
}

impl World {
    /// One whose Cargo declares `good.test` at this port, which resolves to a server there, and `bad.test`, whose addresses are given.
    pub(crate) fn new(server: &TcpListener, bad: &[&[SocketAddr]], bounds: Bounds) -> Self {
        let address = server.local_addr().expect("an address");
        let town = Arc::new(Town::default());
        town.name("good.test", &[&[address]]);
        town.name("bad.test", bad);
        town.publish(address);
        let folder = tempfile::tempdir().expect("a folder");
        let forwarder = folder.path().join("forwarder");
        std::fs::write(&forwarder, "a program").expect("a file");
        let places = ["good.test", "bad.test", "lost.test"];
        let places = places.map(|host| format!("{host}:{}", address.port()).parse().expect("a place"));
        let log = JobLog::default();
        let outside = Arc::<Town>::clone(&town);
        let gate =
            Gate::open(folder.path().join("g"), &forwarder, places.to_vec(), outside, bounds, log.clone());
        let mut gate = gate.expect("a gate");
        let task = tokio::spawn(async move { match gate.serve().await {} });
        Self { town, log, folder, task }
    }

    pub(crate) async fn connect(&self) -> UnixStream {
        UnixStream::connect(self.folder.path().join("g/s")).await.expect("somebody listens")
    }

    pub(crate) async fn is_open(&self) -> bool {
        UnixStream::connect(self.folder.path().join("g/s")).await.is_ok()
    }

    /// The complete answer to these bytes, beginning with the status line.
    pub(crate) async fn send(&self, request: &str) -> String {
        let mut stream = self.connect().await;
        // The proxy may answer and close before everything is written.
        let _ = stream.write_all(request.as_bytes()).await;
        rest(&mut stream).await
    }

    /// The status of the answer to these bytes; 0 for no answer.
    pub(crate) async fn status(&self, request: &str) -> u16 {
        let answer = self.send(request).await;
        answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
    }

    /// A tunnel to an address, without bytes yet.
    pub(crate) async fn tunnel(&self, place: &str) -> UnixStream {
        let mut stream = self.connect().await;
        stream.write_all(format!("CONNECT {place} HTTP/1.1\r\n\r\n").as_bytes()).await.expect("written");
        let head = head(&mut stream).await;
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        stream
    }

    /// Waits for a line of the log.
    pub(crate) async fn logged(&self, part: &str) {
        let seen = async {
            while !self.log.text().contains(part) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let seen = tokio::time::timeout(PATIENCE, seen).await;
        assert!(seen.is_ok(), "{part:?} is not in:\n{}", self.log.text());
    }

    /// Ends it like the end of a job; returns the path of its folder.
    pub(crate) async fn end(self) -> (TempDir, JobLog) {
        self.task.abort();
        let _ = self.task.await;
        (self.folder, self.log)
    }
}

pub(crate) async fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.expect("a port")
}

pub(crate) fn place(server: &TcpListener) -> String {
    format!("good.test:{}", server.local_addr().expect("an address").port())
}

pub(crate) async fn accept(server: &TcpListener) -> TcpStream {
    within(server.accept()).await.expect("a connection").0
}

/// Asserts that there was no connection.
pub(crate) fn untouched(server: &TcpListener) {
    use futures::FutureExt;
    assert!(server.accept().now_or_never().is_none(), "there was a connection");
}

/// Up to the empty line.
pub(crate) async fn head(stream: &mut (impl AsyncReadExt + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(within(stream.read_u8()).await.expect("a head"));
    }
    String::from_utf8(head).expect("text")
}

/// Reads to the end, or until the connection is closed.
pub(crate) async fn rest(stream: &mut (impl AsyncReadExt + Unpin)) -> String {
    let mut all = Vec::new();
    let _ = within(stream.read_to_end(&mut all)).await;
    String::from_utf8_lossy(&all).into_owned()
}

pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it ends in time")
}
