//! Downloads, pins and evictions.

use std::{
    fs,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use island_cache::{
    Beside, Cache, CacheConfig, GetError, Pinned, Progress, TokenStanding, Transfer, WebError, check_hub,
};
use island_protocol::{artifact::Artifact, digest::Digest};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::hub::{Behavior, Hub};

/// Several pieces and some bytes.
const BIG: usize = (35 << 20) + 12_345;

pub(crate) fn bytes(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

fn artifact(url: String, sha256: Option<Digest>) -> Artifact {
    Artifact { name: "model".into(), url, sha256, size_bytes: None }
}

fn config(dir: &Path, hub: &Hub) -> CacheConfig {
    CacheConfig {
        dir: dir.to_owned(),
        max_bytes: 1 << 40,
        min_free_bytes: 0,
        beside: Vec::new(),
        hub_endpoint: hub.url.clone(),
        hub_token: None,
        hub_files: None,
        offline: false,
        max_bytes_per_second: None,
    }
}

fn quiet() -> Arc<Progress> {
    Arc::new(|_| {})
}

async fn get(cache: &Cache, artifact: &Artifact) -> Result<Pinned, GetError> {
    cache.get(artifact, quiet(), &CancellationToken::new()).await
}

/// A hub with one file, a cache, and the artifact.
struct World {
    hub: Hub,
    cache: Cache,
    folder: tempfile::TempDir,
    content: Vec<u8>,
    artifact: Artifact,
}

impl World {
    async fn new(length: usize) -> Self {
        let hub = Hub::start().await;
        let content = bytes(length, 42);
        let digest = hub.put("m.gguf", &content);
        let folder = tempfile::tempdir().expect("temporary folder");
        let cache = Cache::open(config(folder.path(), &hub)).expect("open");
        let artifact = artifact(hub.web("m.gguf"), Some(digest));
        Self { hub, cache, folder, content, artifact }
    }

    async fn assert_had(&self) {
        let pinned = get(&self.cache, &self.artifact).await.expect("get");
        assert!(fs::read(pinned.path()).expect("read") == self.content, "the bytes are the right ones");
        assert_eq!(Some(pinned.digest()), self.artifact.sha256);
        assert_eq!(pinned.size(), self.content.len() as u64);
        assert!(self.left().is_empty(), "{:?}", self.left());
    }

    /// Partial files, without locks.
    fn left(&self) -> Vec<String> {
        let names = fs::read_dir(self.folder.path().join("partial")).expect("list").flatten();
        let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| Path::new(name).extension() != Some("lock".as_ref())).collect()
    }
}

#[tokio::test]
async fn downloads_in_pieces_with_progress_and_once() {
    let world = World::new(BIG).await;
    let reported = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&reported);
    let progress: Arc<Progress> = Arc::new(move |transfer| {
        let Transfer::Bytes { done, total } = transfer else { return };
        assert_eq!(total, Some(BIG as u64));
        seen.fetch_max(done, Ordering::Relaxed);
    });
    world.cache.get(&world.artifact, progress, &CancellationToken::new()).await.expect("get");
    assert_eq!(reported.load(Ordering::Relaxed), BIG as u64);
    assert_eq!((world.hub.requests(), world.hub.bytes()), (5, BIG as u64));
    world.assert_had().await;
    assert_eq!(world.hub.requests(), 5, "the second time nothing is requested");
    assert_eq!(world.cache.list().len(), 1);
    assert_eq!(world.cache.lookup(&world.artifact).expect("here").size, BIG as u64);
}

#[tokio::test]
async fn files_of_every_odd_size() {
    for length in [0, 1, 8 << 20, (8 << 20) + 1, (16 << 20) - 1] {
        World::new(length).await.assert_had().await;
    }
}

#[tokio::test]
async fn concurrent_requests_cause_one_download() {
    let world = World::new(BIG).await;
    let other = Cache::open(config(world.folder.path(), &world.hub)).expect("as another process would");
    let asks = (0..8).map(|number| get(if number % 2 == 0 { &world.cache } else { &other }, &world.artifact));
    for pinned in futures::future::join_all(asks).await {
        assert_eq!(pinned.expect("get").size(), BIG as u64);
    }
    assert_eq!(world.hub.bytes(), BIG as u64);
}

#[tokio::test]
async fn a_server_without_ranges_suffices() {
    let world = World::new(BIG).await;
    world.hub.set(Behavior { ignores_ranges: true, cuts: 1, ..Behavior::default() });
    world.assert_had().await;
}

#[tokio::test]
async fn aborted_connections_and_refusals_are_retried() {
    let world = World::new(BIG).await;
    world.hub.set(Behavior { cuts: 3, refusals: 2, ..Behavior::default() });
    world.assert_had().await;
}

#[tokio::test(start_paused = true)]
async fn a_download_continues_after_a_minute_without_network() {
    for named in [false, true] {
        let hub = Hub::start_after(Duration::from_mins(1)).await;
        let content = bytes(1000, 3);
        let digest = hub.put("m.gguf", &content);
        // An address without a file: the list of files is requested first.
        let url = if named { hub.web("m.gguf") } else { "hf://o/r".to_owned() };
        let folder = tempfile::tempdir().expect("temporary folder");
        let cache = Cache::open(config(folder.path(), &hub)).expect("open");
        let pinned = get(&cache, &artifact(url, Some(digest))).await.expect("the network is back");
        assert!(fs::read(pinned.path()).expect("read") == content, "the bytes are the right ones");
    }
}

#[tokio::test(start_paused = true)]
async fn the_wait_for_the_network_is_limited_and_ends_when_it_is_cancelled() {
    let hub = Hub::start_after(Duration::from_hours(9)).await;
    let folder = tempfile::tempdir().expect("temporary folder");
    let cache = Cache::open(config(folder.path(), &hub)).expect("open");
    let wanted = artifact(hub.web("m.gguf"), None);
    let begin = Instant::now();
    let error = get(&cache, &wanted).await.expect_err("no network");
    assert!(matches!(error, GetError::Fetch { source: WebError::Transport { .. }, .. }), "{error:?}");
    let waited = begin.elapsed();
    assert!((Duration::from_mins(2)..Duration::from_mins(20)).contains(&waited), "{waited:?}");

    let cancel = CancellationToken::new();
    let begin = Instant::now();
    let pause = async {
        tokio::time::sleep(Duration::from_mins(1)).await;
        cancel.cancel();
    };
    let (stopped, ()) = tokio::join!(cache.get(&wanted, quiet(), &cancel), pause);
    assert!(matches!(stopped, Err(GetError::Cancelled)), "{stopped:?}");
    assert!(begin.elapsed() < Duration::from_mins(2), "{:?}", begin.elapsed());
}

#[tokio::test]
async fn a_flipped_bit_is_detected_and_the_file_removed() {
    let world = World::new(BIG).await;
    world.hub.set(Behavior { flips: Some(20 << 20), ..Behavior::default() });
    let error = get(&world.cache, &world.artifact).await.expect_err("bad bytes");
    assert!(matches!(error, GetError::Changed { .. }), "{error}");
    assert!(world.left().is_empty() && world.cache.list().is_empty());
}

#[tokio::test]
async fn a_file_with_another_hash_is_downloaded_once() {
    let world = World::new(1 << 20).await;
    let other = artifact(world.artifact.url.clone(), Some(island_cache::digest_of(b"another file")));
    let first = get(&world.cache, &other).await.expect_err("it is not what is stated").to_string();
    assert!(first.contains("/o/r/") || first.contains("hf://o/r"), "{first}");
    for digest in [world.artifact.sha256, other.sha256] {
        assert!(first.contains(&digest.expect("stated").to_string()), "{first}");
    }
    let (requests, bytes) = (world.hub.requests(), world.hub.bytes());
    for cache in [world.cache.clone(), Cache::open(config(world.folder.path(), &world.hub)).expect("open")] {
        let again = get(&cache, &other).await.expect_err("it is refused").to_string();
        assert_eq!((again, world.hub.requests(), world.hub.bytes()), (first.clone(), requests, bytes));
        assert_eq!(cache.mismatches().len(), 1);
    }
    world.assert_had().await;
}

#[tokio::test]
async fn a_hash_that_the_hub_states_is_compared_first() {
    let other =
        |world: &World| artifact(world.artifact.url.clone(), Some(island_cache::digest_of(b"another file")));
    let world = World::new(BIG).await;
    world.hub.set(Behavior { tells_hash: true, ..Behavior::default() });
    let error = get(&world.cache, &other(&world)).await.expect_err("its validator is another one");
    assert!(
        matches!(&error, GetError::Changed { found, .. } if Some(*found) == world.artifact.sha256),
        "{error}"
    );
    assert_eq!(world.hub.requests(), 1, "no further part is requested");

    let world = World::new(BIG).await;
    world.hub.set(Behavior { hops: 1, tells_hash: true, ..Behavior::default() });
    let error = get(&world.cache, &other(&world)).await.expect_err("the hub states another one");
    assert!(
        matches!(&error, GetError::Changed { found, .. } if Some(*found) == world.artifact.sha256),
        "{error}"
    );
    assert_eq!((world.hub.requests(), world.hub.bytes()), (1, 0), "its redirect is not followed");
    assert!(world.left().is_empty());
}

#[tokio::test]
async fn the_hubs_own_hash_counts_where_the_artifact_names_none() {
    let world = World::new(1 << 20).await;
    let unnamed = artifact(world.artifact.url.clone(), None);
    world.hub.set(Behavior { hops: 1, tells_hash: true, flips: Some(5), ..Behavior::default() });
    let error = get(&world.cache, &unnamed).await.expect_err("bad bytes");
    assert!(matches!(error, GetError::HashMismatch { .. }), "{error}");
    world.hub.set(Behavior { hops: 1, tells_hash: true, ..Behavior::default() });
    get(&world.cache, &unnamed).await.expect("good bytes");
}

#[tokio::test]
async fn pieces_on_disk_are_not_downloaded_again_after_an_interruption() {
    let world = World::new(BIG).await;
    world.hub.set(Behavior { stops_after: Some(20 << 20), ..Behavior::default() });
    let error = get(&world.cache, &world.artifact).await.expect_err("the server stops");
    assert!(matches!(error, GetError::Fetch { .. }), "{error}");
    assert!(!world.left().is_empty());
    let before = world.hub.bytes();
    world.hub.set(Behavior::default());
    world.assert_had().await;
    let second = world.hub.bytes() - before;
    assert!(second <= (BIG as u64) - (16 << 20), "{second} bytes were fetched the second time");
}

#[tokio::test]
async fn pieces_of_another_version_are_not_mixed() {
    let mut world = World::new(BIG).await;
    world.hub.set(Behavior { stops_after: Some(20 << 20), ..Behavior::default() });
    get(&world.cache, &world.artifact).await.expect_err("the server stops");
    world.content = bytes(BIG, 43);
    let digest = world.hub.put("m.gguf", &world.content);
    world.artifact.sha256 = Some(digest);
    world.hub.set(Behavior { version: 2, ..Behavior::default() });
    world.assert_had().await;
}

#[tokio::test]
async fn a_cancelled_download_is_continued_later() {
    let world = World::new(BIG).await;
    world.hub.set(Behavior { pause: Some(Duration::from_millis(5)), ..Behavior::default() });
    let cancel = CancellationToken::new();
    let trigger = cancel.clone();
    let progress: Arc<Progress> = Arc::new(move |_| trigger.cancel());
    let stopped = world.cache.get(&world.artifact, progress, &cancel).await;
    assert!(matches!(stopped, Err(GetError::Cancelled)));
    let before = world.hub.bytes();
    world.hub.set(Behavior::default());
    world.assert_had().await;
    assert!(world.hub.bytes() - before < BIG as u64);
}

#[tokio::test]
async fn a_hub_that_limits_requests_is_not_waited_for_after_a_cancellation() {
    let world = World::new(1000).await;
    world.hub.set(Behavior { limits: 3, ..Behavior::default() });
    let cancel = CancellationToken::new();
    let trigger = cancel.clone();
    let waits = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&waits);
    let progress: Arc<Progress> = Arc::new(move |_| {
        counter.fetch_add(1, Ordering::Relaxed);
        trigger.cancel();
    });
    // An address without a file: the list of files is requested first.
    let stopped = world.cache.get(&artifact("hf://o/r".into(), None), progress, &cancel).await;
    assert!(matches!(stopped, Err(GetError::Cancelled)), "{stopped:?}");
    assert_eq!(waits.load(Ordering::Relaxed), 1, "it waited again");
}

#[tokio::test]
async fn redirects_are_limited_and_secrets_are_not_sent_to_other_hosts() {
    let world = World::new(1000).await;
    let secret =
        CacheConfig { hub_token: Some("hf_secret".into()), ..config(world.folder.path(), &world.hub) };
    let cache = Cache::open(secret).expect("open");
    world.hub.set(Behavior { hops: 5, ..Behavior::default() });
    get(&cache, &world.artifact).await.expect("five redirects");
    let home = world.hub.url.trim_start_matches("http://").to_owned();
    let secrets = world.hub.secrets();
    assert!(!secrets.is_empty() && secrets.iter().all(|host| *host == home), "{secrets:?}");

    world.hub.put("other", b"other");
    world.hub.set(Behavior { hops: 6, ..Behavior::default() });
    let error = get(&cache, &artifact(world.hub.web("other"), None)).await.expect_err("six redirects");
    assert!(matches!(error, GetError::Fetch { source: WebError::Redirects, .. }), "{error}");
}

#[tokio::test]
async fn a_hub_that_limits_requests_is_waited_for_and_the_wait_is_reported() {
    let world = World::new(BIG).await;
    // More than the tries of a request that fails.
    world.hub.set(Behavior { limits: 7, ..Behavior::default() });
    let waits = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&waits);
    let progress: Arc<Progress> = Arc::new(move |transfer| {
        if let Transfer::Waiting { host, time } = transfer {
            seen.lock().expect("lock").push((host, time));
        }
    });
    let pinned =
        world.cache.get(&world.artifact, progress, &CancellationToken::new()).await.expect("downloaded");
    assert_eq!(pinned.digest(), world.artifact.sha256.expect("a digest"));
    let waits = waits.lock().expect("lock").clone();
    assert!(waits.len() >= 7, "{waits:?}");
    assert!(
        waits.iter().all(|(host, time)| host == "127.0.0.1" && *time <= Duration::from_secs(1)),
        "{waits:?}"
    );

    world.hub.set(Behavior { limits: 1, ..Behavior::default() });
    get(&world.cache, &artifact("hf://o/r".into(), None))
        .await
        .expect("the list of files is waited for as well");
}

#[tokio::test]
async fn a_gated_repository_is_refused_with_what_the_owner_can_do() {
    let world = World::new(1000).await;
    world.hub.set(Behavior { gate: Some("hf_right"), ..Behavior::default() });
    let refusal = async |token: Option<&str>, url: &str| {
        let folder = tempfile::tempdir().expect("temporary folder");
        let hub_token = token.map(str::to_owned);
        let cache =
            Cache::open(CacheConfig { hub_token, ..config(folder.path(), &world.hub) }).expect("open");
        let result = get(&cache, &artifact(url.into(), None)).await;
        result
            .map(|_| ())
            .map_err(|error| format!("{}", std::error::Error::source(&error).expect("a source")))
    };
    let page = format!("{}/o/r", world.hub.url);
    for url in ["hf://o/r:m.gguf", "hf://o/r"] {
        let before = world.hub.requests();
        let without = refusal(None, url).await.expect_err("no token");
        assert!(without.contains(&page) && without.contains("HF_TOKEN"), "{without}");
        let wrong = refusal(Some("hf_wrong"), url).await.expect_err("the wrong token");
        assert!(wrong.contains("has not accepted the terms"), "{wrong}");
        assert_eq!(world.hub.requests(), before, "no request is repeated in vain");
        refusal(Some("hf_right"), url).await.expect("the right token");
    }
}

#[tokio::test]
async fn a_hub_and_its_token_are_checked() {
    let hub = Hub::start().await;
    let check = async |place: &str, token: Option<&str>| {
        check_hub(&format!("{}{place}", hub.url), token.map(str::to_owned)).await
    };
    assert_eq!(check("", None).await.expect("it answers"), TokenStanding::Absent);
    hub.set(Behavior { gate: Some("hf_right"), ..Behavior::default() });
    for (place, token, expected) in [
        ("", "hf_right", TokenStanding::Accepted),
        ("", "hf_wrong", TokenStanding::Refused),
        ("/mirror", "hf_right", TokenStanding::Unknown),
    ] {
        assert_eq!(check(place, Some(token)).await.expect("it answers"), expected, "{place} {token}");
    }
    hub.set(Behavior { limits: 1, ..Behavior::default() });
    let busy = check("", Some("hf_right")).await.expect_err("too many requests");
    assert_eq!(busy.to_string(), "127.0.0.1 accepts no more requests for 1 s");
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a free port");
    let away = check_hub(&format!("http://{free}"), None).await.expect_err("nobody listens");
    assert_eq!(away.to_string(), "connect to 127.0.0.1");
    check_hub("no address", None).await.expect_err("not an address");
}

#[tokio::test]
async fn servers_with_other_validators_continue_a_file_whose_hash_is_known() {
    let mut world = World::new(BIG).await;
    // Nothing but the hub names the hash.
    world.artifact.sha256 = None;
    let mood = Behavior { has_edges: true, tells_hash: true, hops: 1, ..Behavior::default() };
    world.hub.set(Behavior { stops_after: Some(BIG as u64 / 2), ..mood.clone() });
    get(&world.cache, &world.artifact).await.expect_err("the server stops");
    let before = world.hub.bytes();
    world.hub.set(mood);
    get(&world.cache, &world.artifact).await.expect("continued");
    let again = world.hub.bytes() - before;
    assert!(again < BIG as u64 * 3 / 4, "{again} of {BIG} bytes are sent again");
}

#[tokio::test]
async fn signed_addresses_that_expire_are_requested_again() {
    let world = World::new(BIG).await;
    let mood = Behavior { hops: 1, tells_hash: true, signature_lasts: Some(2), ..Behavior::default() };
    world.hub.set(mood);
    world.assert_had().await;
    let signatures = world.hub.signatures();
    assert!(signatures > 1, "the pieces of the file need more requests than one address is good for");
    // One that is never accepted is given up.
    world.hub.put("other", b"other");
    world.hub.set(Behavior { hops: 1, signature_lasts: Some(0), ..Behavior::default() });
    let error = get(&world.cache, &artifact(world.hub.web("other"), None)).await.expect_err("always expired");
    let GetError::Fetch { source: WebError::Status { status, .. }, .. } = error else { panic!("{error}") };
    assert_eq!(status, 403);
}

#[tokio::test]
async fn a_repository_that_was_renamed_is_found_by_its_former_name() {
    let world = World::new(1000).await;
    let secret =
        CacheConfig { hub_token: Some("hf_secret".into()), ..config(world.folder.path(), &world.hub) };
    let cache = Cache::open(secret).expect("open");
    for (hops, url) in [(0, "hf://o/old:m.gguf"), (1, "hf://o/old")] {
        world.hub.set(Behavior { hops, ..Behavior::default() });
        let found = get(&cache, &artifact(url.into(), None)).await.expect(url);
        assert_eq!(Some(found.digest()), world.artifact.sha256, "{url}");
    }
    let home = world.hub.url.trim_start_matches("http://").to_owned();
    let secrets = world.hub.secrets();
    assert!(secrets.len() > 1 && secrets.iter().all(|host| *host == home), "{secrets:?}");
}

#[tokio::test]
async fn connections_to_one_host_are_limited_for_all_files_together() {
    let world = World::new(BIG).await;
    let names = ["a", "b", "c", "d"];
    let content: Vec<Vec<u8>> = (0..4).map(|seed| bytes(BIG, seed)).collect();
    for (name, content) in names.iter().zip(&content) {
        world.hub.put(name, content);
    }
    world.hub.set(Behavior { pause: Some(Duration::from_millis(1)), ..Behavior::default() });
    let files = names.map(|name| artifact(format!("hf://o/r:{name}"), None));
    let all = files.iter().map(|artifact| get(&world.cache, artifact));
    for pinned in futures::future::join_all(all).await {
        pinned.expect("downloaded");
    }
    let most = world.hub.most_open();
    assert!((7..=12).contains(&most), "{most} connections, of four files with up to six each");
}

#[tokio::test]
async fn an_address_without_a_file_means_the_best_model() {
    let hub = Hub::start().await;
    hub.put("README.md", b"read me");
    hub.put("m.Q8_0.gguf", b"large");
    let digest = hub.put("m.Q4_K_M.gguf", b"small");
    let folder = tempfile::tempdir().expect("temporary folder");
    let cache = Cache::open(config(folder.path(), &hub)).expect("open");
    for url in ["hf://o/r", "hf://o/r@v1", "hf://o/r:m.Q4_K_M.gguf"] {
        assert_eq!(get(&cache, &artifact(url.into(), None)).await.expect(url).digest(), digest, "{url}");
    }
    let error = get(&cache, &artifact("hf://o/nothing".into(), None)).await.expect_err("no such repository");
    assert!(matches!(error, GetError::Hub { .. }), "{error}");
    assert!(matches!(get(&cache, &artifact("hf://o/r:x".into(), None)).await, Err(GetError::Fetch { .. })));
}

#[tokio::test]
async fn cached_files_need_no_network() {
    let world = World::new(1000).await;
    world.assert_had().await;
    let offline = CacheConfig { offline: true, ..config(world.folder.path(), &world.hub) };
    let cache = Cache::open(offline).expect("open");
    get(&cache, &artifact(world.artifact.url.clone(), None)).await.expect("cached");
    // The same file under another address is identified by its hash.
    get(&cache, &artifact("https://elsewhere.invalid/x".into(), world.artifact.sha256))
        .await
        .expect("cached");
    let error = get(&cache, &artifact("hf://o/r".into(), None)).await.expect_err("not cached");
    assert!(matches!(error, GetError::Unavailable { .. }));
}

#[tokio::test]
async fn a_cached_file_that_was_changed_is_downloaded_again() {
    let world = World::new(100_000).await;
    world.assert_had().await;
    let path = world.cache.lookup(&world.artifact).expect("here").path;
    fs::write(&path, "rubbish").expect("damage");
    assert_eq!(world.cache.lookup(&world.artifact), None);
    world.assert_had().await;
}

#[tokio::test]
async fn files_of_a_cache_that_was_copied_are_hashed_and_not_downloaded_again() {
    let world = World::new(100_000).await;
    world.assert_had().await;
    // By the digest of the artifact, and by what its address resolved to.
    for sha256 in [world.artifact.sha256, None] {
        let copy = tempfile::tempdir().expect("temporary folder");
        for folder in ["blobs", "refs", "local"] {
            let (from, to) = (world.folder.path().join(folder), copy.path().join(folder));
            fs::create_dir(&to).expect("folder");
            for entry in fs::read_dir(from).expect("list").flatten() {
                fs::copy(entry.path(), to.join(entry.file_name())).expect("copy");
            }
        }
        let offline = CacheConfig { offline: true, ..config(copy.path(), &world.hub) };
        let cache = Cache::open(offline).expect("open");
        let wanted = artifact(world.artifact.url.clone(), sha256);
        let pinned = get(&cache, &wanted).await.expect("it was copied");
        assert!(pinned.path().starts_with(copy.path()), "{}", pinned.path().display());
        assert_eq!(Some(pinned.digest()), world.artifact.sha256);
        assert!(cache.lookup(&wanted).is_some(), "it is recorded again");
        fs::write(pinned.path(), "rubbish").expect("damage");
        let error = get(&cache, &wanted).await.expect_err("it was damaged");
        assert!(matches!(error, GetError::Unavailable { .. }), "{error}");
    }
}

#[tokio::test]
async fn hub_files_of_other_programs_are_used_in_place() {
    let hub = Hub::start().await;
    let home = tempfile::tempdir().expect("temporary folder");
    let repo = home.path().join("models--o--r");
    fs::create_dir_all(repo.join("snapshots/c0ffee")).expect("folder");
    fs::create_dir_all(repo.join("refs")).expect("folder");
    fs::write(repo.join("refs/main"), "c0ffee").expect("write");
    fs::write(repo.join("snapshots/c0ffee/m.gguf"), "theirs").expect("write");
    let folder = tempfile::tempdir().expect("temporary folder");
    let hub_files = Some(home.path().to_owned());
    let cache = Cache::open(CacheConfig { hub_files, ..config(folder.path(), &hub) }).expect("open");
    let pinned = get(&cache, &artifact("hf://o/r:m.gguf".into(), None)).await.expect("get");
    assert!(pinned.path().starts_with(fs::canonicalize(home.path()).expect("canonical")));
    assert_eq!(hub.requests(), 0);
    // One with another digest than the Cargo's is not used.
    let digest = hub.put("m.gguf", b"the right one");
    let pinned = get(&cache, &artifact("hf://o/r:m.gguf".into(), Some(digest))).await.expect("get");
    assert_eq!(fs::read(pinned.path()).expect("read"), b"the right one");
}

#[tokio::test]
async fn a_file_that_changed_is_removed_or_forgotten() {
    let hub = Hub::start().await;
    let [folder, theirs] = [(); 2].map(|()| tempfile::tempdir().expect("temporary folder"));
    let snapshot = theirs.path().join("models--o--r/snapshots/c0ffee");
    fs::create_dir_all(&snapshot).expect("folder");
    fs::create_dir_all(theirs.path().join("models--o--r/refs")).expect("folder");
    fs::write(theirs.path().join("models--o--r/refs/main"), "c0ffee").expect("write");
    fs::write(snapshot.join("foreign.gguf"), "theirs").expect("write");
    let hub_files = Some(theirs.path().to_owned());
    let cache = Cache::open(CacheConfig { hub_files, ..config(folder.path(), &hub) }).expect("open");
    let own = artifact(hub.web("own.gguf"), Some(hub.put("own.gguf", &bytes(5000, 3))));
    for (wanted, is_removed) in [(own, true), (artifact("hf://o/r:foreign.gguf".into(), None), false)] {
        let pinned = get(&cache, &wanted).await.expect("get");
        let entry = cache.lookup(&wanted).expect("it is here");
        assert!(cache.is_intact(&entry, |_| true).await.expect("read"));
        let modified = fs::metadata(pinned.path()).and_then(|about| about.modified()).expect("a time");
        fs::write(pinned.path(), vec![0; usize::try_from(entry.size).expect("small")]).expect("damage");
        let same = fs::FileTimes::new().set_modified(modified);
        let file = fs::File::options().append(true).open(pinned.path());
        file.and_then(|file| file.set_times(same)).expect("its time");
        assert!(cache.lookup(&wanted).is_some(), "nothing shows it");
        assert!(cache.is_intact(&entry, |_| false).await.expect("read"), "not all of it was read");
        assert!(!cache.is_intact(&entry, |_| true).await.expect("read"));
        assert!(cache.lookup(&wanted).is_none());
        assert_eq!(pinned.path().exists(), !is_removed, "that of another program is never removed");
    }
    assert_eq!(cache.damaged(), 2);
}

#[tokio::test]
async fn the_least_recently_used_is_evicted_and_pinned_files_stay() {
    let hub = Hub::start().await;
    let folder = tempfile::tempdir().expect("temporary folder");
    let small = CacheConfig { max_bytes: 2500, ..config(folder.path(), &hub) };
    let cache = Cache::open(small).expect("open");
    let artifacts: Vec<Artifact> = (0..4)
        .map(|number| {
            let name = format!("m{number}");
            hub.put(&name, &bytes(1000, 2 * number + 101));
            artifact(hub.web(&name), None)
        })
        .collect();
    let first = get(&cache, &artifacts[0]).await.expect("first");
    drop(get(&cache, &artifacts[1]).await.expect("second"));
    let third = get(&cache, &artifacts[2]).await.expect("third");
    assert!(cache.lookup(&artifacts[0]).is_some(), "pinned");
    assert!(cache.lookup(&artifacts[1]).is_none(), "evicted");
    let full = get(&cache, &artifacts[3]).await.expect_err("both others are pinned");
    assert!(full.is_disk_full(), "{full}");
    drop(first);
    get(&cache, &artifacts[3]).await.expect("now there is space");
    assert!(cache.lookup(&artifacts[0]).is_none() && third.path().exists());
    let huge = hub.put("huge", &bytes(3000, 7));
    let error = get(&cache, &artifact(hub.web("huge"), Some(huge))).await.expect_err("larger than the cache");
    assert!(error.is_disk_full());
}

#[tokio::test]
async fn nothing_is_evicted_for_a_file_that_does_not_fit_beside_pinned_ones() {
    let hub = Hub::start().await;
    let folder = tempfile::tempdir().expect("temporary folder");
    let small = CacheConfig { max_bytes: 2500, ..config(folder.path(), &hub) };
    let cache = Cache::open(small).expect("open");
    let [used, idle, wanted] =
        [("used", 1500, 11), ("idle", 800, 13), ("wanted", 1200, 17)].map(|(name, length, seed)| {
            hub.put(name, &bytes(length, seed));
            artifact(hub.web(name), None)
        });
    let pinned = get(&cache, &used).await.expect("fits");
    drop(get(&cache, &idle).await.expect("fits"));
    assert_eq!(cache.available_bytes(), 1000, "instead of the file that nothing uses");
    let full = get(&cache, &wanted).await.expect_err("it does not fit beside the pinned file");
    assert!(full.is_disk_full(), "{full}");
    assert!(cache.lookup(&idle).is_some(), "removed for nothing");
    drop(pinned);
    get(&cache, &wanted).await.expect("now there is space");
}

#[tokio::test]
async fn folders_beside_the_cache_count_and_derived_files_are_evicted_in_turn() {
    const SIZE: usize = 64 << 10;
    let hub = Hub::start().await;
    let folder = tempfile::tempdir().expect("temporary folder");
    let [derived, logs] = ["derived", "logs"].map(|name| folder.path().join(name));
    let file = |path: &Path, age_s: u64| {
        fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
        fs::write(path, bytes(SIZE, 1)).expect("write");
        let used = SystemTime::now() - Duration::from_secs(age_s);
        fs::File::open(path).and_then(|file| file.set_modified(used)).expect("set its time");
        path.to_owned()
    };
    let digest = "d".repeat(64);
    let old = file(&derived.join(format!("{digest}-1")), 1000);
    let making = file(&derived.join("making-1/scratch"), 2000);
    let log = file(&logs.join("a/b.log"), 3000);
    let beside =
        vec![Beside { dir: derived.clone(), is_evictable: true }, Beside { dir: logs, is_evictable: false }];
    let max_bytes = 5 * SIZE as u64;
    let cache = Cache::open(CacheConfig { max_bytes, beside, ..config(&folder.path().join("cache"), &hub) });
    let cache = cache.expect("open");
    assert_eq!((cache.free_bytes(), cache.available_bytes()), (2 * SIZE as u64, 3 * SIZE as u64));
    for (name, seed) in [("first", 5), ("second", 7)] {
        hub.put(name, &bytes(SIZE, seed));
        drop(get(&cache, &artifact(hub.web(name), None)).await.expect("fits"));
        assert!(old.exists(), "{name}");
    }
    hub.put("third", &bytes(SIZE, 9));
    drop(get(&cache, &artifact(hub.web("third"), None)).await.expect("fits after a removal"));
    assert!(!old.exists(), "the least recently used of all");
    let young = file(&derived.join(format!("{digest}-2")), 0);
    hub.put("fourth", &bytes(SIZE, 11));
    drop(get(&cache, &artifact(hub.web("fourth"), None)).await.expect("fits after a removal"));
    assert!(young.exists() && making.exists() && log.exists());
}

#[tokio::test]
async fn reserved_space_is_given_to_one_only() {
    let hub = Hub::start().await;
    let folder = tempfile::tempdir().expect("temporary folder");
    let cache = Cache::open(CacheConfig { max_bytes: 1 << 20, ..config(folder.path(), &hub) }).expect("open");
    let never = CancellationToken::new();
    hub.put("cached", &bytes(300 << 10, 3));
    drop(get(&cache, &artifact(hub.web("cached"), None)).await.expect("fits"));
    let first = cache.reserve(600 << 10, &never).await.expect("beside the file");
    assert!(cache.lookup(&artifact(hub.web("cached"), None)).is_some());
    let second = cache.reserve(300 << 10, &never).await.expect("instead of the file");
    assert!(cache.lookup(&artifact(hub.web("cached"), None)).is_none(), "removed for it");
    let third = cache.reserve(300 << 10, &never).await.expect_err("reserved by others");
    assert!(third.is_disk_full(), "{third}");
    hub.put("large", &bytes(300 << 10, 5));
    let error = get(&cache, &artifact(hub.web("large"), None)).await.expect_err("reserved");
    assert!(error.is_disk_full(), "{error}");
    drop(second);
    let third = cache.reserve(300 << 10, &never).await.expect("it is free again");
    drop((first, third));
    get(&cache, &artifact(hub.web("large"), None)).await.expect("fits again");
    assert!(cache.reserve(2 << 20, &never).await.expect_err("more than the limit").is_disk_full());
}

#[tokio::test]
async fn a_full_disk_is_detected_before_anything_is_written() {
    let world = World::new(1000).await;
    let greedy = CacheConfig { min_free_bytes: u64::MAX / 2, ..config(world.folder.path(), &world.hub) };
    let cache = Cache::open(greedy).expect("open");
    assert!(get(&cache, &world.artifact).await.expect_err("no space").is_disk_full());
    world.assert_had().await;
}

#[tokio::test]
async fn only_ordinary_local_files_are_read() {
    let world = World::new(1000).await;
    let fifo = world.folder.path().join("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().expect("mkfifo").success());
    for path in [fifo.as_path(), world.folder.path(), Path::new("/dev/zero")] {
        let mine = artifact(format!("file://{}", path.display()), world.artifact.sha256);
        let error = get(&world.cache, &mine).await.expect_err("not a file");
        let GetError::Read { source, .. } = &error else { panic!("{error:?}") };
        assert_eq!(source.to_string(), "it is not an ordinary file", "{}", path.display());
    }
}

#[tokio::test]
async fn local_files_are_used_in_place_and_hashed_once() {
    let world = World::new(1000).await;
    let path = world.folder.path().join("mine.gguf");
    fs::write(&path, &world.content).expect("write");
    let url = format!("file://{}", path.display());
    let hashed = Arc::new(Mutex::new(0));
    for expected in [1, 1] {
        let count = Arc::clone(&hashed);
        let progress: Arc<Progress> = Arc::new(move |_| *count.lock().expect("lock") += 1);
        let mine = artifact(url.clone(), world.artifact.sha256);
        let pinned = world.cache.get(&mine, progress, &CancellationToken::new()).await.expect("get");
        assert_eq!(pinned.path(), path);
        assert_eq!(*hashed.lock().expect("lock"), expected);
    }
    fs::write(&path, "changed").expect("write");
    let error = get(&world.cache, &artifact(url, world.artifact.sha256)).await.expect_err("changed");
    assert!(matches!(error, GetError::HashMismatch { .. }));
    assert_eq!(world.hub.requests(), 0);
}
