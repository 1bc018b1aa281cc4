//! Downloads from servers that send anything.

use axum::{Router, body::Body, routing::get};
use futures::stream;
use island_protocol::digest::Digest;
use island_update::{
    fetch::{FetchError, Web, hash},
    manifest::{File, MAX_BYTES},
};
use sha2::{Digest as _, Sha256};
use tokio::net::TcpListener;

const GOOD: &[u8] = b"a package, as it was made";

async fn server() -> String {
    let endless = || async {
        let chunk = || async { Some((Ok::<_, std::io::Error>(vec![b'x'; 4096]), ())) };
        Body::from_stream(stream::unfold((), move |()| chunk()))
    };
    let router = Router::new()
        .route("/manifest.json", get(async || "a manifest"))
        .route("/good.deb", get(async || GOOD))
        .route("/other.deb", get(async || "a package, made by others"))
        .route("/endless", get(endless));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

fn file(url: &str) -> File {
    let sha256 = Digest::from_bytes(Sha256::digest(GOOD).into());
    File { url: url.to_owned(), size: GOOD.len() as u64, sha256 }
}

#[tokio::test]
async fn only_the_file_of_the_release_is_kept() {
    let (url, folder) = (server().await, tempfile::tempdir().expect("a folder"));
    let web = Web::new().expect("a client");
    let (from, bytes) = web.manifest(&format!("{url}/manifest.json")).await.expect("the manifest");
    assert_eq!(bytes, b"a manifest");
    let here = || std::fs::read_dir(folder.path()).expect("the folder").count();
    for (name, endless) in [("other.deb", false), ("endless", true)] {
        let refused = web.file(&from, &file(name), folder.path()).await.expect_err(name);
        let fits = matches!(
            (&refused, endless),
            (FetchError::OtherFile(_), false) | (FetchError::Endless(..), true)
        );
        assert!(fits, "{name}: {refused:?}");
        assert_eq!(here(), 0, "{name} left a file");
    }
    web.file(&from, &file("missing.deb"), folder.path()).await.expect_err("it does not exist");
    let path = web.file(&from, &file("good.deb"), folder.path()).await.expect("the file");
    assert_eq!(hash(&path).expect("its hash"), file("").sha256);
    // An existing file is verified, too, and downloaded again if it changed.
    std::fs::write(&path, "changed").expect("write");
    let path = web.file(&from, &file("good.deb"), folder.path()).await.expect("the file");
    assert_eq!(std::fs::read(path).expect("read"), GOOD);
}

#[tokio::test]
async fn packages_of_other_releases_are_removed() {
    let (url, folder) = (server().await, tempfile::tempdir().expect("a folder"));
    let web = Web::new().expect("a client");
    let from = url.parse().expect("an address");
    let digest = |byte| Digest::from_bytes([byte; 32]).hex();
    // Of releases that waited for jobs until a newer one came, and of a run that was killed; then files that are not downloads.
    let stale = [format!("{}.deb", digest(1)), format!("{}.deb", digest(2)), format!("{}.part", digest(3))];
    let others = ["island-agent_0.1.0_amd64.deb", "record.json", "lock"].map(str::to_owned);
    for name in stale.iter().chain(&others) {
        std::fs::write(folder.path().join(name), "x").expect("write");
    }
    let kept = web.file(&from, &file("good.deb"), folder.path()).await.expect("the file");
    for name in &stale {
        assert!(!folder.path().join(name).exists(), "{name} is still there");
    }
    for name in &others {
        assert!(folder.path().join(name).exists(), "{name} is gone");
    }
    // The same release once more, by a run that could not install it.
    assert_eq!(web.file(&from, &file("good.deb"), folder.path()).await.expect("the file"), kept);
    assert!(kept.exists());
}

#[tokio::test]
async fn manifests_have_a_maximum_length() {
    let (url, web) = (server().await, Web::new().expect("a client"));
    let refused = web.manifest(&format!("{url}/endless")).await.expect_err("endless");
    assert!(matches!(refused, FetchError::Endless(_, most) if most == MAX_BYTES as u64), "{refused:?}");
    assert!(matches!(web.manifest("not an address").await, Err(FetchError::Address(_))));
}
