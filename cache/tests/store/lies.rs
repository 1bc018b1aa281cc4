//! Servers that send other bytes than announced, and files that do not fit.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{Router, response::Redirect, routing};
use island_cache::{Cache, CacheConfig, Destinations, GetError, Learning, Pinned, Progress, WebError};
use island_protocol::{artifact::Artifact, digest::Digest};
use reqwest::Url;
use tokio::{net::TcpListener, sync::Semaphore};
use tokio_util::sync::CancellationToken;

use crate::{
    raw::{END_OF_ENDLESS, Raw, Reply, Request},
    stories::bytes,
};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// The largest length that a header can contain.
const ABSURD: &str = "18446744073709551615";
/// Far more than socket buffers hold, far less than an endless body.
const LITTLE: u64 = END_OF_ENDLESS / 4;

fn config(dir: &Path, max_bytes: u64) -> CacheConfig {
    CacheConfig {
        dir: dir.to_owned(),
        max_bytes,
        min_free_bytes: 0,
        beside: Vec::new(),
        hub_endpoint: "http://127.0.0.1:9".to_owned(),
        hub_token: None,
        hub_files: None,
        offline: false,
        max_bytes_per_second: None,
    }
}

fn artifact(server: &Raw, size_bytes: Option<u64>) -> Artifact {
    Artifact { name: "model".into(), url: server.url.clone(), sha256: None, size_bytes }
}

async fn get(cache: &Cache, artifact: &Artifact) -> Result<Pinned, GetError> {
    cache.get(artifact, Arc::new(|_| {}), &CancellationToken::new()).await
}

/// Partial files, without locks.
fn left(dir: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(dir.join("partial")).expect("list").flatten().map(|entry| entry.path());
    paths.filter(|path| path.extension() != Some("lock".as_ref())).collect()
}

/// The error of a download from `server`. Nothing of it may remain.
async fn failure(server: &Raw, max_bytes: u64, stated: Option<u64>) -> GetError {
    let folder = tempfile::tempdir().expect("temporary folder");
    let cache = Cache::open(config(folder.path(), max_bytes)).expect("open");
    let error = get(&cache, &artifact(server, stated)).await.expect_err("the server is wrong");
    assert_eq!(left(folder.path()), Vec::<PathBuf>::new(), "{error:?}");
    assert!(cache.own_files().is_empty() && cache.list().is_empty());
    // A larger one is limited by the disk, to which others write meanwhile.
    assert!(max_bytes > GIB || cache.free_bytes() == max_bytes, "{} of {max_bytes}", cache.free_bytes());
    error
}

async fn answers(reply: impl Fn(Request) -> Reply + Send + Sync + 'static) -> Raw {
    Raw::start(reply).await
}

#[tokio::test]
async fn an_absurd_total_is_rejected_before_anything_is_allocated() {
    let server = answers(|_| {
        let reply = Reply::new("206 Partial Content").header("ETag", "\"v\"").header("Content-Length", 1);
        reply.header("Content-Range", format!("bytes 0-0/{ABSURD}")).plain(b"x")
    })
    .await;
    let error = failure(&server, u64::MAX, Some(MIB)).await;
    let GetError::Fetch { source: WebError::Size { stated, announced, .. }, .. } = error else {
        panic!("{error:?}")
    };
    assert_eq!((stated, announced), (MIB, u64::MAX));
    let error = failure(&server, u64::MAX, None).await;
    assert!(matches!(error, GetError::Fetch { source: WebError::TooLarge { .. }, .. }), "{error:?}");
    // An entry that states the same changes nothing.
    let error = failure(&server, u64::MAX, Some(u64::MAX)).await;
    assert!(matches!(error, GetError::Fetch { source: WebError::TooLarge { .. }, .. }), "{error:?}");
}

#[tokio::test]
async fn an_absurd_length_is_rejected_before_anything_is_written() {
    let server = answers(|_| Reply::new("200 OK").header("Content-Length", ABSURD).plain(&[7; 1000])).await;
    let error = failure(&server, u64::MAX, None).await;
    assert!(matches!(error, GetError::Fetch { .. }), "{error:?}");
    let error = failure(&server, u64::MAX, Some(MIB)).await;
    assert!(matches!(error, GetError::Fetch { .. }), "{error:?}");
}

#[tokio::test]
async fn an_absurd_wait_is_a_day_and_ends_the_download() {
    let date = "Fri, 31 Dec 9999 23:59:59 GMT";
    for (status, name, value) in [
        ("429 Too Many Requests", "Retry-After", ABSURD.to_owned()),
        ("429 Too Many Requests", "Retry-After", date.to_owned()),
        ("429 Too Many Requests", "RateLimit", format!("\"resolvers\";r=0;t={ABSURD}")),
        ("503 Service Unavailable", "Retry-After", ABSURD.to_owned()),
    ] {
        let server =
            answers(move |_| Reply::new(status).header(name, &value).header("Content-Length", 0)).await;
        let error = failure(&server, GIB, Some(MIB)).await;
        let GetError::Fetch { source: WebError::Busy { time, .. }, .. } = error else { panic!("{error:?}") };
        assert_eq!(time, Duration::from_hours(24), "{status} {name}");
        assert_eq!(server.requests(), 1, "no request follows");
    }
}

#[tokio::test]
async fn a_length_other_than_the_entrys_is_rejected_at_once() {
    let content = bytes(2 << 20, 1);
    let ranged = answers(move |request| Reply::part(&content, request)).await;
    let whole =
        answers(|_| Reply::new("200 OK").header("Content-Length", 2 << 20).plain(&bytes(2 << 20, 1))).await;
    for (server, stated) in [(&ranged, MIB), (&ranged, 3 * MIB), (&whole, MIB), (&whole, 3 * MIB)] {
        let before = server.requests();
        let error = failure(server, GIB, Some(stated)).await;
        let text = error_text(&error);
        assert!(text.contains("127.0.0.1 announced 2097152 bytes for a file of"), "{text}");
        assert_eq!(server.requests(), before + 1, "a second request would not help");
    }
}

fn error_text(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        text = format!("{text}: {error}");
        next = error.source();
    }
    text
}

#[tokio::test]
async fn a_body_longer_than_its_range_is_aborted() {
    let total = 20 * MIB;
    for (endless_from, stated) in [(0, None), (0, Some(total)), (8 * MIB, Some(total))] {
        let content = bytes(total as usize, 2);
        let server = answers(move |request| {
            let reply = Reply::part(&content, request);
            if request.start < endless_from {
                return reply;
            }
            let last = request.last.min(total - 1);
            Reply::new("206 Partial Content")
                .header("ETag", "\"v\"")
                .header("Content-Range", format!("bytes {}-{last}/{total}", request.start))
                .endless()
        })
        .await;
        let error = failure(&server, GIB, stated).await;
        let GetError::Fetch { source: WebError::Excess { expected, got, .. }, .. } = error else {
            panic!("{error:?}")
        };
        assert!(expected <= 8 * MIB && got > expected, "{got} of {expected}");
        // Six concurrent connections download one piece each.
        assert!(server.sent() < LITTLE + total, "{} bytes were sent", server.sent());
    }
}

#[tokio::test]
async fn an_endless_body_is_aborted_at_the_entrys_size() {
    let server = answers(|_| Reply::new("200 OK").endless()).await;
    let error = failure(&server, GIB, Some(MIB)).await;
    let GetError::Fetch { source: WebError::Excess { expected, got, .. }, .. } = error else {
        panic!("{error:?}")
    };
    assert!(expected == MIB && got > expected, "{got} of {expected}");
    assert!(server.sent() < LITTLE, "{} bytes were sent", server.sent());
}

#[tokio::test]
async fn an_endless_body_without_a_size_is_aborted_at_the_caches_limit() {
    let server = answers(|_| Reply::new("200 OK").endless()).await;
    let error = failure(&server, 20 * MIB, None).await;
    assert!(error.is_disk_full(), "{error:?}");
    assert!(server.sent() < LITTLE, "{} bytes were sent", server.sent());
}

#[tokio::test]
async fn a_body_of_unknown_length_is_accepted_if_it_fits() {
    for length in [0, 1000, 10 << 20] {
        let content = bytes(length, 3);
        let sent = content.clone();
        let server = answers(move |_| Reply::new("200 OK").chunked(&sent)).await;
        for stated in [None, Some(length as u64)] {
            let folder = tempfile::tempdir().expect("temporary folder");
            let cache = Cache::open(config(folder.path(), 20 * MIB)).expect("open");
            let pinned = get(&cache, &artifact(&server, stated)).await.expect("get");
            assert!(fs::read(pinned.path()).expect("read") == content, "the bytes are the right ones");
            assert_eq!(left(folder.path()), Vec::<PathBuf>::new());
        }
    }
}

#[tokio::test]
async fn a_body_a_little_longer_or_shorter_than_the_entry_is_not_kept() {
    let server = answers(|_| Reply::new("200 OK").chunked(&bytes(1 << 20, 4))).await;
    let error = failure(&server, GIB, Some(MIB - 1)).await;
    let GetError::Fetch { source: WebError::Excess { expected, got, .. }, .. } = error else {
        panic!("{error:?}")
    };
    assert_eq!((expected, got), (MIB - 1, MIB));
    let error = failure(&server, GIB, Some(MIB + 1)).await;
    let GetError::Fetch { source: WebError::Length { expected, got, .. }, .. } = error else {
        panic!("{error:?}")
    };
    assert_eq!((expected, got), (MIB + 1, MIB));
}

#[tokio::test]
async fn refused_ranges_end_the_download() {
    let refuse = |range: &'static str| {
        answers(move |_| Reply::new("416 Range Not Satisfiable").header("Content-Range", range))
    };
    let (empty, some) = (refuse("bytes */0").await, refuse("bytes */5000").await);
    let error = failure(&empty, GIB, Some(MIB)).await;
    assert!(matches!(error, GetError::Fetch { source: WebError::Size { .. }, .. }), "{error:?}");
    let error = failure(&some, GIB, Some(5000)).await;
    assert!(matches!(error, GetError::Fetch { source: WebError::Ranges { .. }, .. }), "{error:?}");
    let text = error_text(&error);
    assert!(text.contains("the request for bytes 0 to 8388607 with 416 \"bytes */5000\""), "{text}");
    let unnamed = answers(|_| Reply::new("416 Range Not Satisfiable")).await;
    let error = failure(&unnamed, GIB, None).await;
    assert!(matches!(error, GetError::Fetch { source: WebError::Ranges { .. }, .. }), "{error:?}");
}

/// A file of three pieces whose second is answered with `second`.
async fn second_piece(second: impl Fn(Request, &[u8]) -> Reply + Send + Sync + 'static) -> Raw {
    let content = bytes(20 << 20, 5);
    answers(
        move |request| {
            if request.start == 8 * MIB { second(request, &content) } else { Reply::part(&content, request) }
        },
    )
    .await
}

#[tokio::test]
async fn a_file_that_keeps_changing_fails() {
    let total = Some(20 * MIB);
    let grown = second_piece(|request, content| {
        let reply = Reply::new("206 Partial Content").header("ETag", "\"v\"");
        let range = format!("bytes {}-{}/{}", request.start, request.last, content.len() + 1);
        reply.header("Content-Range", range).chunked(&content[8 << 20..16 << 20])
    });
    let shrunk =
        second_piece(|_, _| Reply::new("416 Range Not Satisfiable").header("Content-Range", "bytes */1000"));
    let whole = second_piece(|_, content| Reply::new("200 OK").header("ETag", "\"v\"").chunked(content));
    for server in [grown.await, shrunk.await, whole.await] {
        let error = failure(&server, GIB, total).await;
        assert!(matches!(error, GetError::Fetch { source: WebError::Changed { .. }, .. }), "{error:?}");
        assert!(server.requests() < 40, "the number of tries is limited: {}", server.requests());
    }
}

#[tokio::test]
async fn a_part_that_was_not_requested_is_rejected() {
    let other = second_piece(|request, content| {
        // As requested, but one byte longer.
        Reply::part(content, Request { last: request.last + 1, ..request })
    });
    let error = failure(&other.await, GIB, None).await;
    assert!(matches!(error, GetError::Fetch { source: WebError::Ranges { .. }, .. }), "{error:?}");
}

#[tokio::test]
async fn a_download_that_cannot_be_resumed_leaves_nothing() {
    let server = answers(|_| Reply::new("200 OK").header("Content-Length", MIB).plain(&[7; 1000])).await;
    let error = failure(&server, GIB, None).await;
    assert!(matches!(error, GetError::Fetch { source: WebError::Transport { .. }, .. }), "{error:?}");
}

/// A server of a file of 12 MiB whose second piece waits for the gate, and the gate.
async fn gated(seed: u64) -> (Raw, Arc<Semaphore>) {
    let (content, gate) = (bytes(12 << 20, seed), Arc::new(Semaphore::new(0)));
    let shared = Arc::clone(&gate);
    let server = answers(move |request| {
        let reply = Reply::part(&content, request);
        if request.start == 0 { reply } else { reply.behind(&shared) }
    });
    (server.await, gate)
}

/// Starts a download in the background; returns when the first piece is on disk.
async fn begin(cache: &Cache, artifact: Artifact) -> tokio::task::JoinHandle<Result<Pinned, GetError>> {
    let landed = Arc::new(Semaphore::new(0));
    let (cache, signal) = (cache.clone(), Arc::clone(&landed));
    let progress: Arc<Progress> = Arc::new(move |_| signal.add_permits(1));
    let task = tokio::spawn(async move { cache.get(&artifact, progress, &CancellationToken::new()).await });
    let _landed = landed.acquire().await.expect("open");
    task
}

#[tokio::test]
async fn two_downloads_do_not_claim_the_same_space() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let cache = Cache::open(config(folder.path(), 20 * MIB)).expect("open");
    let other = Cache::open(config(folder.path(), 20 * MIB)).expect("as another process would");
    let ((first, gate), (second, open)) = (gated(6).await, gated(7).await);
    open.add_permits(1);
    let running = begin(&cache, artifact(&first, Some(12 * MIB))).await;
    assert_eq!(cache.free_bytes(), 8 * MIB, "the missing part is claimed");
    for cache in [&cache, &other] {
        let full =
            get(cache, &artifact(&second, Some(12 * MIB))).await.expect_err("together they do not fit");
        assert!(full.is_disk_full(), "{full:?}");
        assert_eq!(other.free_bytes(), 8 * MIB, "a failed download claims nothing");
    }
    gate.add_permits(1);
    drop(running.await.expect("no panic").expect("the first is not disturbed"));
    get(&other, &artifact(&second, Some(12 * MIB))).await.expect("the first is done and can go");
    assert_eq!((cache.own_files().len(), cache.free_bytes()), (1, 8 * MIB));
}

#[tokio::test]
async fn two_downloads_do_not_claim_the_same_disk() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let stat = rustix::fs::statvfs(folder.path()).expect("statvfs");
    // Space for one and a half of them on the disk, apart from what others write to it meanwhile.
    let size = stat.f_bavail * stat.f_frsize / 3 * 2;
    let cache = Cache::open(config(folder.path(), u64::MAX)).expect("open");
    let announce = move |request: Request| {
        let last = request.last;
        Reply::new("206 Partial Content")
            .header("ETag", "\"v\"")
            .header("Content-Range", format!("bytes {}-{last}/{size}", request.start))
            .chunked(&vec![7; (last - request.start + 1) as usize])
    };
    let gate = Arc::new(Semaphore::new(0));
    let shared = Arc::clone(&gate);
    let first =
        Raw::start(
            move |request| {
                if request.start == 0 { announce(request) } else { announce(request).behind(&shared) }
            },
        )
        .await;
    let second = Raw::start(announce).await;
    let running = begin(&cache, artifact(&first, Some(size))).await;
    let stopped = CancellationToken::new();
    // A download that starts would be cancelled by its first bytes.
    let stop = stopped.clone();
    let progress: Arc<Progress> = Arc::new(move |_| stop.cancel());
    let full = cache.get(&artifact(&second, Some(size)), progress, &stopped).await.expect_err("no space");
    running.abort();
    assert!(full.is_disk_full(), "{full:?}");
}

#[tokio::test]
async fn partial_files_of_an_earlier_run_count_and_are_evicted() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let cache = Cache::open(config(folder.path(), 20 * MIB)).expect("open");
    let (first, _closed) = gated(8).await;
    let running = begin(&cache, artifact(&first, Some(12 * MIB))).await;
    running.abort();
    assert!(running.await.is_err_and(|error| error.is_cancelled()));
    drop(cache);
    let cache = Cache::open(config(folder.path(), 18 * MIB)).expect("open");
    assert_eq!(left(folder.path()).len(), 2, "it can be resumed");
    let free = cache.free_bytes();
    assert!((6 * MIB..=10 * MIB).contains(&free), "a piece of 8 MiB is on the disk: {free}");
    let (second, open) = gated(9).await;
    open.add_permits(1);
    get(&cache, &artifact(&second, Some(12 * MIB)))
        .await
        .expect("a partial file that is not being downloaded is evicted");
    assert_eq!(left(folder.path()), Vec::<PathBuf>::new());
    assert_eq!(cache.free_bytes(), 6 * MIB);
}

#[tokio::test]
async fn what_cannot_be_resumed_is_removed_at_open() {
    let folder = tempfile::tempdir().expect("temporary folder");
    drop(Cache::open(config(folder.path(), 20 * MIB)).expect("open"));
    let stem = folder.path().join("partial").join("ab".repeat(32));
    for extension in ["part", "pieces", "lock"] {
        fs::write(stem.with_extension(extension), vec![0; 3 << 20]).expect("write");
    }
    let cache = Cache::open(config(folder.path(), 20 * MIB)).expect("open");
    assert_eq!(left(folder.path()), Vec::<PathBuf>::new());
    assert_eq!(cache.free_bytes(), 20 * MIB);
}

/// Set in the process that this test starts: a folder on a disk of 24 MiB.
const SMALL_DISK: &str = "ISLAND_CACHE_TEST_SMALL_DISK";

/// Runs this test in a mount namespace, in which it may mount a small disk.
#[test]
fn a_disk_that_fills_up_meanwhile_fails_the_download_and_is_cleaned() {
    if let Some(disk) = std::env::var_os(SMALL_DISK) {
        let runtime = tokio::runtime::Runtime::new().expect("runtime");
        return runtime.block_on(fill_up(Path::new(&disk)));
    }
    let folder = tempfile::tempdir().expect("temporary folder");
    let name = "lies::a_disk_that_fills_up_meanwhile_fails_the_download_and_is_cleaned";
    let namespaces = if rustix::process::geteuid().is_root() { "-m" } else { "-Urm" };
    let run = Command::new("unshare")
        .args([namespaces, "sh", "-c"])
        .arg(format!("mount -t tmpfs -o size=24m none \"${SMALL_DISK}\" && exec \"$0\" \"$@\""))
        .arg(std::env::current_exe().expect("this test's path"))
        .args(["--exact", name, "--nocapture"])
        .env(SMALL_DISK, folder.path())
        .output()
        .expect("run `unshare` of util-linux");
    let (out, err) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success() && out.contains("1 passed"), "{}\n{out}\n{err}", run.status);
}

async fn fill_up(disk: &Path) {
    let cache = Cache::open(config(&disk.join("cache"), 1 << 40)).expect("open");
    let (content, filler) = (bytes(12 << 20, 10), disk.join("filler"));
    let digest: Digest = island_cache::digest_of(&content);
    let others = filler.clone();
    let server = answers(move |request| {
        if request.start > 0 {
            // Another program uses what was free when the download started.
            let mut file = fs::File::create(&others).expect("create");
            while std::io::Write::write_all(&mut file, &[7; 4096]).is_ok() {}
        }
        Reply::part(&content, request)
    })
    .await;
    let wanted = Artifact { sha256: Some(digest), ..artifact(&server, Some(12 * MIB)) };
    let error = get(&cache, &wanted).await.expect_err("the disk is full");
    assert!(matches!(error, GetError::Write { .. }) && error.is_disk_full(), "{error:?}");
    assert_eq!(left(&disk.join("cache")), Vec::<PathBuf>::new());
    assert!(cache.free_bytes() < 12 * MIB, "the filler is still there");
    let full = get(&cache, &wanted).await.expect_err("nothing can go");
    assert!(matches!(full, GetError::DiskFull { .. }), "{full:?}");
}

/// An owner's network: all addresses are in it, and one origin is trusted.
#[derive(Debug, Default)]
struct Only {
    origin: String,
    has_learned: AtomicBool,
}

impl Destinations for Only {
    fn is_trusted(&self, url: &Url) -> bool {
        url.origin().ascii_serialization() == self.origin
    }

    fn learn(&self) -> Learning<'_> {
        Box::pin(async { self.has_learned.store(true, Ordering::Relaxed) })
    }

    fn check_address(&self, address: SocketAddr) -> Result<(), String> {
        let known =
            if address.is_ipv6() && !self.has_learned.load(Ordering::Relaxed) { "unknown" } else { "" };
        Err(format!("{} is in the owner's network {known}", address.ip()))
    }
}

/// The error of a download from `url`, with its causes.
async fn refusal(url: &str, trusted: &str) -> (GetError, String) {
    let folder = tempfile::tempdir().expect("temporary folder");
    let only = Only { origin: trusted.to_owned(), ..Only::default() };
    let cache = Cache::open_for(config(folder.path(), GIB), Arc::new(only)).expect("open");
    let artifact = Artifact { name: "model".into(), url: url.to_owned(), sha256: None, size_bytes: None };
    let error = get(&cache, &artifact).await.expect_err("the owner's network");
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    (error, text)
}

#[tokio::test]
async fn files_are_not_requested_from_the_owners_network() {
    let server = answers(|_| Reply::new("200 OK").header("Content-Length", 1).plain(b"x")).await;
    let (error, text) = refusal(&server.url, "elsewhere").await;
    assert!(matches!(error, GetError::Fetch { source: WebError::Forbidden { .. }, .. }), "{text}");
    // An address as a number, with encryption.
    let (error, text) = refusal(&server.url.replace("http:", "https:"), "elsewhere").await;
    assert!(matches!(error, GetError::Fetch { source: WebError::Forbidden { .. }, .. }), "{text}");
    assert!(text.contains("127.0.0.1 is in the owner's network"), "{text}");
    assert_eq!(server.requests(), 0);
}

#[tokio::test]
async fn names_and_redirects_do_not_lead_into_the_owners_network() {
    let target = answers(|_| Reply::new("200 OK").header("Content-Length", 1).plain(b"x")).await;
    // What the name means is asked only for the connection.
    let name = target.url.replace("http://127.0.0.1", "https://localhost");
    let (_, text) = refusal(&name, "elsewhere").await;
    assert!(text.contains("is in the owner's network"), "{text}");
    let location = target.url.clone();
    let outside =
        answers(move |_| Reply::new("302 Found").header("Location", &location).header("Content-Length", 0))
            .await;
    let origin = outside.url.parse::<Url>().expect("an address").origin().ascii_serialization();
    let (error, text) = refusal(&outside.url, &origin).await;
    assert!(matches!(error, GetError::Fetch { source: WebError::Forbidden { .. }, .. }), "{text}");
    assert_eq!((outside.requests(), target.requests()), (1, 0));
    // Another port of a trusted host is another origin.
    let (error, text) = refusal(&target.url, &origin).await;
    assert!(matches!(error, GetError::Fetch { source: WebError::Forbidden { .. }, .. }), "{text}");
    assert_eq!(target.requests(), 0);
}

#[tokio::test]
async fn the_network_is_known_before_an_address_of_it_is_checked() {
    let (_, text) = refusal("https://[2001:db8::1]/model", "elsewhere").await;
    assert!(text.contains("is in the owner's network") && !text.contains("unknown"), "{text}");
}

#[tokio::test]
async fn a_request_for_a_list_follows_redirects_only_within_the_hub() {
    let elsewhere = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
    elsewhere.set_nonblocking(true).expect("a socket");
    let away = format!("http://{}/api", elsewhere.local_addr().expect("address"));
    let moved = || async { Redirect::temporary("/api/models/o/new") };
    let hub = Router::new()
        .route("/api/models/o/away", routing::get(move || async move { Redirect::temporary(&away) }))
        .route("/api/models/o/old", routing::get(moved))
        .route("/api/models/o/new", routing::get(|| async { r#"{"siblings": []}"# }));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let hub_endpoint = format!("http://{}", listener.local_addr().expect("address"));
    let serving = tokio::spawn(async move { axum::serve(listener, hub).await });
    let folder = tempfile::tempdir().expect("temporary folder");
    let cache = Cache::open(CacheConfig { hub_endpoint, ..config(folder.path(), GIB) }).expect("open");
    let list = async |repository: &str| {
        let url = format!("hf://o/{repository}");
        let artifact = Artifact { name: "model".into(), url, sha256: None, size_bytes: None };
        get(&cache, &artifact).await.expect_err("no file")
    };
    let error = list("away").await;
    assert!(error_text(&error).contains("307"), "{error:?}");
    let none = elsewhere.accept().expect_err("nothing connects to the other one");
    assert_eq!(none.kind(), std::io::ErrorKind::WouldBlock);
    let error = list("old").await;
    assert!(matches!(error, GetError::NothingToPick { .. }), "{error:?}");
    serving.abort();
}

#[tokio::test]
async fn redirects_are_limited() {
    let again =
        answers(|_| Reply::new("302 Found").header("Location", "/again").header("Content-Length", 0)).await;
    let origin = again.url.parse::<Url>().expect("an address").origin().ascii_serialization();
    let (error, text) = refusal(&again.url, &origin).await;
    assert!(matches!(error, GetError::Fetch { source: WebError::Redirects, .. }), "{text}");
    assert_eq!(again.requests(), 6);
}
