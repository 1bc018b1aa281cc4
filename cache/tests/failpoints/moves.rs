//! A download that is given up while its file is moved to its final path.

use std::{
    fs,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
};

use axum::{
    Router,
    http::{StatusCode, header},
    routing,
};
use fail::FailScenario;
use island_cache::{Cache, CacheConfig, digest_of};
use island_protocol::artifact::Artifact;
use tokio_util::sync::CancellationToken;

const CONTENT: &[u8] = b"the weights of a model";

#[tokio::test]
async fn an_address_is_not_given_up_before_its_file_is_moved() {
    let scenario = FailScenario::setup();
    let (arrived, mut arrivals) = tokio::sync::mpsc::unbounded_channel();
    let (go_on, paused) = mpsc::channel::<()>();
    let paused = Mutex::new(paused);
    fail::cfg_callback("cache.rename", move || {
        arrived.send(()).expect("the test waits for it");
        // An error means that the test has ended.
        let _ = paused.lock().expect("only one file is moved").recv();
    })
    .expect("an action");

    let requests = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&requests);
    // With a version and ranges: what is left of another file is removed when its download is given up.
    let range = format!("bytes 0-{}/{}", CONTENT.len() - 1, CONTENT.len());
    let serve = move || {
        counter.fetch_add(1, Ordering::Relaxed);
        let headers = [(header::ETAG, "\"v\"".to_owned()), (header::CONTENT_RANGE, range.clone())];
        std::future::ready((StatusCode::PARTIAL_CONTENT, headers, CONTENT))
    };
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.expect("bind");
    let url = format!("http://{}/model", listener.local_addr().expect("an address"));
    let router = Router::new().route("/model", routing::get(serve));
    let server = tokio::spawn(async move { axum::serve(listener, router).await });

    let folder = tempfile::tempdir().expect("temporary folder");
    let config = CacheConfig {
        dir: folder.path().to_owned(),
        max_bytes: 1 << 30,
        min_free_bytes: 0,
        beside: Vec::new(),
        hub_endpoint: "http://127.0.0.1:9".to_owned(),
        hub_token: None,
        hub_files: None,
        offline: false,
        max_bytes_per_second: None,
    };
    let cache = Cache::open(config).expect("open");
    let artifact = Artifact { name: "model".into(), url, sha256: Some(digest_of(CONTENT)), size_bytes: None };
    let (other, wanted) = (cache.clone(), artifact.clone());
    let download = tokio::spawn(async move {
        other.get(&wanted, Arc::new(|_| {}), &CancellationToken::new()).await.map(drop)
    });
    arrivals.recv().await.expect("the file is moved");
    download.abort();
    assert!(download.await.expect_err("it is given up").is_cancelled());

    let names = fs::read_dir(folder.path().join("partial")).expect("list").flatten();
    let locks: Vec<PathBuf> = names
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "lock"))
        .collect();
    let [lock] = locks.as_slice() else { panic!("{locks:?}") };
    let lock = fs::File::options().write(true).open(lock).expect("open the lock of the address");
    assert!(lock.try_lock().is_err(), "the partial file is still moved");
    drop(lock);

    let before = requests.load(Ordering::Relaxed);
    go_on.send(()).expect("the move waits for it");
    let pinned = cache.get(&artifact, Arc::new(|_| {}), &CancellationToken::new()).await.expect("get");
    assert_eq!(fs::read(pinned.path()).expect("read"), CONTENT);
    assert_eq!(requests.load(Ordering::Relaxed), before, "it was downloaded once");
    server.abort();
    scenario.teardown();
}
