//! A record that is not on the disk.

use std::{
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::{Router, routing};
use fail::FailScenario;
use island_cache::{Cache, CacheConfig};
use island_protocol::artifact::Artifact;
use tokio_util::sync::CancellationToken;

const CONTENT: &[u8] = b"the weights of a model";

fn open(folder: &Path) -> Cache {
    let config = CacheConfig {
        dir: folder.to_owned(),
        max_bytes: 1 << 30,
        min_free_bytes: 0,
        beside: Vec::new(),
        hub_endpoint: "http://127.0.0.1:9".to_owned(),
        hub_token: None,
        hub_files: None,
        offline: false,
        max_bytes_per_second: None,
    };
    Cache::open(config).expect("open")
}

#[tokio::test]
async fn a_record_has_its_name_only_once_it_is_on_the_disk() {
    let scenario = FailScenario::setup();
    let requests = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&requests);
    let serve = move || {
        counter.fetch_add(1, Ordering::Relaxed);
        std::future::ready(CONTENT)
    };
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.expect("bind");
    let url = format!("http://{}/model", listener.local_addr().expect("an address"));
    let router = Router::new().route("/model", routing::get(serve));
    let server = tokio::spawn(async move { axum::serve(listener, router).await });
    let folder = tempfile::tempdir().expect("temporary folder");
    let cache = open(folder.path());
    let artifact = Artifact { name: "model".into(), url, sha256: None, size_bytes: None };
    let get = async || {
        let pinned = cache.get(&artifact, Arc::new(|_| {}), &CancellationToken::new()).await.expect("get");
        assert_eq!(fs::read(pinned.path()).expect("read"), CONTENT);
    };
    let records = || fs::read_dir(folder.path().join("refs")).expect("list").count();

    fail::cfg("cache.sync_record", "return").expect("an action");
    get().await;
    assert_eq!(records(), 0, "nothing is left of what may not be on the disk");
    fail::remove("cache.sync_record");
    get().await;
    assert_eq!(records(), 1);
    let before = requests.load(Ordering::Relaxed);
    get().await;
    assert_eq!(requests.load(Ordering::Relaxed), before, "its record names the file");
    server.abort();
    scenario.teardown();
}
