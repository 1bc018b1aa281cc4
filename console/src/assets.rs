//! Scripts, styles and pictures, embedded. Their folder is named after their content, so that browsers keep them for ever.

use std::{collections::HashMap, sync::LazyLock};

use axum::{
    extract::Path,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use bytes::Bytes;
use flate2::Compression;
use island_console_blocks::static_files::{FILES, File, HTMX, SCRIPT, STYLE};
use sha2::{Digest as _, Sha256};

use crate::compression::{MIN_BYTES, accepts_gzip, gzip};

/// The files of this crate.
const OWN: &[File] = &[
    ("chat.js", SCRIPT, include_bytes!("../assets/chat.js")),
    ("kept.js", SCRIPT, include_bytes!("../assets/kept.js")),
    ("stream.js", SCRIPT, include_bytes!("../assets/stream.js")),
    ("job.js", SCRIPT, include_bytes!("../assets/job.js")),
    ("inline.js", SCRIPT, include_bytes!("../assets/inline.js")),
    ("markdown.js", SCRIPT, include_bytes!("../assets/markdown.js")),
    ("prose.js", SCRIPT, include_bytes!("../assets/prose.js")),
    ("console.css", STYLE, include_bytes!("../assets/console.css")),
    HTMX,
];

fn files() -> impl Iterator<Item = &'static File> {
    FILES.iter().chain(OWN)
}

static FOLDER: LazyLock<String> = LazyLock::new(|| {
    let mut hash = Sha256::new();
    for (name, _, content) in files() {
        hash.update(name);
        hash.update(content);
    }
    let hash = hash.finalize();
    let number = hash.iter().take(6).fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    format!("/console/assets/{number:012x}")
});

/// The files in the form of gzip, by name: made once, at the first request, since they never change. Short ones have none.
static COMPRESSED: LazyLock<HashMap<&str, Bytes>> = LazyLock::new(|| {
    let long = files().filter(|(_, _, content)| content.len() >= MIN_BYTES);
    let compressed = long.filter_map(|(name, _, content)| {
        let content = gzip(content, Compression::best()).ok()?;
        Some((*name, Bytes::from(content)))
    });
    compressed.collect()
});

/// Address of the folder.
pub(crate) fn folder() -> &'static str {
    &FOLDER
}

/// One file.
pub(crate) async fn get(Path((folder, name)): Path<(String, String)>, headers: HeaderMap) -> Response {
    let Some((name, kind, content)) = files().find(|(known, _, _)| *known == name) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    // A page of another version, from before an upgrade, gets the file of this one without keeping it.
    let is_this_version = FOLDER.ends_with(&folder);
    let keep = if is_this_version { "public, max-age=31536000, immutable" } else { "no-store" };
    let compressed = COMPRESSED.get(name).filter(|_| accepts_gzip(&headers));
    let content = compressed.cloned().unwrap_or(Bytes::from_static(content));
    let mut response = content.into_response();
    let mut add = |name: HeaderName, value: &'static str| {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    };
    add(header::CONTENT_TYPE, kind);
    add(header::CACHE_CONTROL, keep);
    add(header::VARY, "accept-encoding");
    if compressed.is_some() {
        add(header::CONTENT_ENCODING, "gzip");
    }
    response
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    async fn asset(name: &str, accepted: &'static str) -> (HeaderMap, Bytes) {
        let accepted = HeaderMap::from_iter([(header::ACCEPT_ENCODING, HeaderValue::from_static(accepted))]);
        let folder = folder().rsplit('/').next().expect("a folder").to_owned();
        let (parts, body) = get(Path((folder, name.to_owned())), accepted).await.into_parts();
        (parts.headers, body.collect().await.expect("a body").to_bytes())
    }

    #[tokio::test]
    async fn assets_are_compressed_for_who_accepts_it() {
        for (name, kind, content) in files() {
            let (plain, whole) = asset(name, "br").await;
            let (packed, body) = asset(name, "gzip, br").await;
            assert!(whole == *content && !plain.contains_key(header::CONTENT_ENCODING), "{name}");
            for headers in [&plain, &packed] {
                assert_eq!(headers[header::CONTENT_TYPE], *kind);
                assert_eq!(headers[header::VARY], "accept-encoding");
                assert!(headers[header::CACHE_CONTROL].to_str().expect("text").ends_with("immutable"));
            }
            if content.len() < MIN_BYTES {
                assert!(body == *content && !packed.contains_key(header::CONTENT_ENCODING), "{name}");
            } else {
                assert_eq!(packed[header::CONTENT_ENCODING], "gzip");
                assert!(body.len() * 3 < content.len() * 2, "{name}: {} of {}", body.len(), content.len());
            }
        }
    }
}
