//! A scripted model hub and the servers to which it redirects.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Path, RawQuery, State},
    http::{HeaderMap, HeaderValue, Response, StatusCode, Uri, header},
    routing::get,
};
use futures::stream;
use island_protocol::digest::Digest;
use sha2::{Digest as _, Sha256};
use tokio::{
    net::{TcpListener, TcpSocket},
    task::JoinHandle,
};

/// A port of this machine that is free.
const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// How the servers behave; correctly by default.
#[derive(Debug, Clone, Default)]
pub(crate) struct Behavior {
    /// Sends the whole file, whatever part is requested.
    pub(crate) ignores_ranges: bool,
    /// Aborts this number of answers in the middle.
    pub(crate) cuts: u32,
    /// Answers this number of requests with 503.
    pub(crate) refusals: u32,
    /// Flips a bit in the byte at this place.
    pub(crate) flips: Option<usize>,
    /// Number of redirects before the file.
    pub(crate) hops: u32,
    /// Time between chunks.
    pub(crate) pause: Option<Duration>,
    /// Sends the file's hash with the redirect, or as the validator without one.
    pub(crate) tells_hash: bool,
    /// Text that changes with the file.
    pub(crate) version: u32,
    /// Stops answering after this number of bytes in total.
    pub(crate) stops_after: Option<u64>,
    /// Answers this number of requests with 429, and asks to wait for a second.
    pub(crate) limits: u32,
    /// Sends another validator with each answer, as the servers of a network for files do.
    pub(crate) has_edges: bool,
    /// Requires this token.
    pub(crate) gate: Option<&'static str>,
    /// Number of requests for which a signed address, to which a redirect leads, is accepted.
    pub(crate) signature_lasts: Option<u32>,
}

/// What the servers received.
#[derive(Debug, Default)]
pub(crate) struct Received {
    pub(crate) requests: u32,
    pub(crate) bytes: u64,
    /// Answers that are being sent, and the most at one time.
    pub(crate) open: u32,
    pub(crate) most_open: u32,
    /// Hosts that received a secret.
    pub(crate) secrets: Vec<String>,
}

#[derive(Debug, Default)]
struct Inner {
    files: BTreeMap<String, Bytes>,
    mood: Behavior,
    seen: Received,
    elsewhere: String,
    /// Number of requests that each signature is still accepted for.
    signatures: Vec<u32>,
}

type Shared = Arc<Mutex<Inner>>;

/// A hub, and a second server to which it redirects.
pub(crate) struct Hub {
    pub(crate) url: String,
    inner: Shared,
    tasks: [JoinHandle<()>; 2],
}

impl Hub {
    pub(crate) async fn start() -> Self {
        let inner: Shared = Arc::default();
        let (url, hub) = serve(Arc::clone(&inner)).await;
        let (elsewhere, other) = serve(Arc::clone(&inner)).await;
        // Another name of this machine counts as another host.
        lock(&inner).elsewhere = elsewhere.replace("127.0.0.1", "localhost");
        Self { url, inner, tasks: [hub, other] }
    }

    /// A hub whose connections are refused for this time.
    pub(crate) async fn start_after(outage: Duration) -> Self {
        let inner: Shared = Arc::default();
        let (elsewhere, other) = serve(Arc::clone(&inner)).await;
        lock(&inner).elsewhere = elsewhere.replace("127.0.0.1", "localhost");
        // Its port is taken, and connections are refused until it listens.
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(LOOPBACK).expect("bind");
        let url = format!("http://{}", socket.local_addr().expect("address"));
        let router = router(Arc::clone(&inner));
        let hub = tokio::spawn(async move {
            tokio::time::sleep(outage).await;
            let listener = socket.listen(1024).expect("listen");
            axum::serve(listener, router).await.expect("serve");
        });
        Self { url, inner, tasks: [hub, other] }
    }

    /// Adds a file to the repository `o/r`.
    pub(crate) fn put(&self, name: &str, bytes: &[u8]) -> Digest {
        lock(&self.inner).files.insert(name.to_owned(), Bytes::copy_from_slice(bytes));
        Digest::from_bytes(Sha256::digest(bytes).into())
    }

    /// Address of a file without the hub.
    pub(crate) fn web(&self, name: &str) -> String {
        format!("{}/o/r/resolve/main/{name}", self.url)
    }

    pub(crate) fn set(&self, mood: Behavior) {
        lock(&self.inner).mood = mood;
    }

    pub(crate) fn requests(&self) -> u32 {
        lock(&self.inner).seen.requests
    }

    pub(crate) fn bytes(&self) -> u64 {
        lock(&self.inner).seen.bytes
    }

    pub(crate) fn most_open(&self) -> u32 {
        lock(&self.inner).seen.most_open
    }

    /// Number of signed addresses that were given out.
    pub(crate) fn signatures(&self) -> usize {
        lock(&self.inner).signatures.len()
    }

    pub(crate) fn secrets(&self) -> Vec<String> {
        lock(&self.inner).seen.secrets.clone()
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

fn lock(inner: &Shared) -> MutexGuard<'_, Inner> {
    inner.lock().expect("no panic under this lock")
}

async fn serve(inner: Shared) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind(LOOPBACK).await.expect("bind");
    let url = format!("http://{}", listener.local_addr().expect("address"));
    let router = router(inner);
    (url, tokio::spawn(async move { axum::serve(listener, router).await.expect("serve") }))
}

fn router(inner: Shared) -> Router {
    Router::new()
        .route("/api/whoami-v2", get(account))
        .route("/api/models/o/r", get(info))
        .route("/api/models/o/r/revision/{revision}", get(info))
        .route("/o/r/resolve/{revision}/{*file}", get(file))
        // The former name of the repository.
        .route("/api/models/o/old", get(renamed))
        .route("/o/old/resolve/{revision}/{*file}", get(renamed))
        .route("/bytes/{hop}/{*file}", get(hop))
        .with_state(inner)
}

/// The account of a token.
async fn account(State(inner): State<Shared>, headers: HeaderMap) -> Response<Body> {
    let refused = lock(&inner).refused(&headers);
    refused.unwrap_or_else(|| Response::new(Body::from(r#"{"name": "owner"}"#)))
}

async fn info(State(inner): State<Shared>, headers: HeaderMap) -> Response<Body> {
    let mut inner = lock(&inner);
    if let Some(refused) = inner.refused(&headers) {
        return refused;
    }
    let siblings: Vec<_> = inner.files.keys().map(|name| serde_json::json!({ "rfilename": name })).collect();
    let list = serde_json::json!({ "id": "o/r", "sha": "c0ffee", "siblings": siblings });
    Response::new(Body::from(list.to_string()))
}

async fn file(
    State(inner): State<Shared>,
    Path((_, name)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response<Body> {
    if let Some(refused) = lock(&inner).refused(&headers) {
        return refused;
    }
    let hops = lock(&inner).mood.hops;
    if hops == 0 { send(&inner, &name, &headers) } else { redirect(&inner, &name, &headers, hops - 1) }
}

/// Leads to the present name, by an address without a host.
async fn renamed(State(inner): State<Shared>, uri: Uri, headers: HeaderMap) -> Response<Body> {
    lock(&inner).note(&headers);
    let target = uri.path().replacen("/o/old", "/o/r", 1);
    let answer = Response::builder().status(StatusCode::TEMPORARY_REDIRECT);
    answer.header(header::LOCATION, target).body(Body::empty()).expect("an answer")
}

async fn hop(
    State(inner): State<Shared>,
    Path((left, name)): Path<(u32, String)>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response<Body> {
    if left == 0 && lock(&inner).has_expired(query.as_deref()) {
        let answer = Response::builder().status(StatusCode::FORBIDDEN);
        return answer.body(Body::from("Request has expired")).expect("an answer");
    }
    if left == 0 { send(&inner, &name, &headers) } else { redirect(&inner, &name, &headers, left - 1) }
}

fn redirect(inner: &Shared, name: &str, headers: &HeaderMap, left: u32) -> Response<Body> {
    let mut inner = lock(inner);
    inner.note(headers);
    let mut target = format!("{}/bytes/{left}/{name}", inner.elsewhere);
    if let Some(requests) = inner.mood.signature_lasts {
        target = format!("{target}?signature={}", inner.signatures.len());
        inner.signatures.push(requests);
    }
    let mut answer = Response::builder().status(StatusCode::FOUND).header(header::LOCATION, target);
    answer = answer.header("x-repo-commit", "c0ffee");
    if let Some(bytes) = inner.files.get(name) {
        answer = answer.header("x-linked-size", bytes.len());
    }
    if inner.mood.tells_hash
        && let Some(bytes) = inner.files.get(name)
    {
        let digest = Digest::from_bytes(Sha256::digest(bytes).into());
        answer = answer.header("x-linked-etag", format!("\"{}\"", digest.hex()));
    }
    answer.body(Body::empty()).expect("an answer")
}

fn send(shared: &Shared, name: &str, headers: &HeaderMap) -> Response<Body> {
    let mut inner = lock(shared);
    inner.note(headers);
    let status =
        |status: StatusCode| Response::builder().status(status).body(Body::empty()).expect("an answer");
    if inner.mood.refusals > 0 {
        inner.mood.refusals -= 1;
        return status(StatusCode::SERVICE_UNAVAILABLE);
    }
    if inner.mood.stops_after.is_some_and(|limit| inner.seen.bytes >= limit) {
        return status(StatusCode::SERVICE_UNAVAILABLE);
    }
    let Some(bytes) = inner.files.get(name).cloned() else { return status(StatusCode::NOT_FOUND) };
    let total = bytes.len();
    let mut bytes = bytes.to_vec();
    if let Some(place) = inner.mood.flips {
        bytes[place] ^= 1;
    }
    let range = headers.get(header::RANGE).filter(|_| !inner.mood.ignores_ranges).and_then(parse_range);
    let edge = if inner.mood.has_edges { inner.seen.requests } else { 0 };
    let mut validator = format!("\"v{}-{edge}\"", inner.mood.version);
    if inner.mood.tells_hash && inner.mood.hops == 0 {
        validator = format!("\"{}\"", Digest::from_bytes(Sha256::digest(&bytes).into()).hex());
    }
    let mut answer = Response::builder().header(header::ETAG, validator);
    let part = match range {
        Some((start, _)) if start >= total => {
            let answer = answer.status(StatusCode::RANGE_NOT_SATISFIABLE);
            let answer = answer.header(header::CONTENT_RANGE, format!("bytes */{total}"));
            return answer.body(Body::empty()).expect("an answer");
        }
        Some((start, end)) => {
            let end = end.min(total - 1);
            answer = answer.status(StatusCode::PARTIAL_CONTENT);
            answer = answer.header(header::CONTENT_RANGE, format!("bytes {start}-{end}/{total}"));
            bytes[start..=end].to_vec()
        }
        None => bytes,
    };
    answer = answer.header(header::CONTENT_LENGTH, HeaderValue::from(part.len()));
    inner.seen.bytes += part.len() as u64;
    let cut = inner.mood.cuts > 0;
    inner.mood.cuts = inner.mood.cuts.saturating_sub(1);
    inner.seen.open += 1;
    inner.seen.most_open = inner.seen.most_open.max(inner.seen.open);
    answer.body(body(&part, cut, inner.mood.pause, Open(Arc::clone(shared)))).expect("an answer")
}

/// An answer that is being sent.
struct Open(Shared);

impl Drop for Open {
    fn drop(&mut self) {
        lock(&self.0).seen.open -= 1;
    }
}

/// The bytes in chunks; aborted in the middle, the connection ends with an error.
fn body(bytes: &[u8], cut: bool, pause: Option<Duration>, open: Open) -> Body {
    let keep = if cut { bytes.len() / 2 } else { bytes.len() };
    let mut chunks: Vec<Result<Bytes, std::io::Error>> =
        bytes[..keep].chunks(64 << 10).map(|chunk| Ok(Bytes::copy_from_slice(chunk))).collect();
    if cut {
        chunks.push(Err(std::io::Error::other("cut")));
    }
    Body::from_stream(stream::unfold((chunks.into_iter(), open), move |(mut chunks, open)| async move {
        let chunk = chunks.next()?;
        if let Some(pause) = pause {
            tokio::time::sleep(pause).await;
        }
        Some((chunk, (chunks, open)))
    }))
}

fn parse_range(value: &HeaderValue) -> Option<(usize, usize)> {
    let (start, end) = value.to_str().ok()?.strip_prefix("bytes=")?.split_once('-')?;
    Some((start.parse().ok()?, end.parse().ok()?))
}

impl Inner {
    /// The answer of a hub that refuses a request.
    fn refused(&mut self, headers: &HeaderMap) -> Option<Response<Body>> {
        let answer = |status| Response::builder().status(status);
        if self.mood.limits > 0 {
            self.mood.limits -= 1;
            self.seen.requests += 1;
            let answer = answer(StatusCode::TOO_MANY_REQUESTS).header(header::RETRY_AFTER, "1");
            return Some(answer.body(Body::empty()).expect("an answer"));
        }
        let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let status = match (self.mood.gate, given) {
            (None, _) => return None,
            (Some(gate), Some(given)) if given == format!("Bearer {gate}") => return None,
            (Some(_), Some(_)) => StatusCode::FORBIDDEN,
            (Some(_), None) => StatusCode::UNAUTHORIZED,
        };
        Some(answer(status).header("x-error-code", "GatedRepo").body(Body::empty()).expect("an answer"))
    }

    /// Whether a signed address is not accepted any more. Counts the request.
    fn has_expired(&mut self, query: Option<&str>) -> bool {
        if self.mood.signature_lasts.is_none() {
            return false;
        }
        let number = query.and_then(|query| query.strip_prefix("signature=")?.parse::<usize>().ok());
        let left = number.and_then(|number| self.signatures.get_mut(number));
        let Some(left) = left.filter(|left| **left > 0) else { return true };
        *left -= 1;
        false
    }

    fn note(&mut self, headers: &HeaderMap) {
        self.seen.requests += 1;
        if headers.contains_key(header::AUTHORIZATION) {
            let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
            self.seen.secrets.push(host.to_owned());
        }
    }
}
