//! Scripts, styles and pictures, embedded. Their folder is named after their content, so that browsers keep them for ever.

use std::sync::LazyLock;

use axum::{
    extract::Path,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use island_console_pages::assets::{FILES, File, HTMX, SCRIPT, STYLE};
use sha2::{Digest as _, Sha256};

/// The files of this crate.
const OWN: &[File] = &[
    ("chat.js", SCRIPT, include_bytes!("../assets/chat.js")),
    ("stream.js", SCRIPT, include_bytes!("../assets/stream.js")),
    ("job.js", SCRIPT, include_bytes!("../assets/job.js")),
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

/// Address of the folder.
pub(crate) fn folder() -> &'static str {
    &FOLDER
}

/// One file.
pub(crate) async fn get(Path((folder, name)): Path<(String, String)>) -> Response {
    let Some((_, kind, content)) = files().find(|(known, _, _)| *known == name) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    // A page of another version, from before an upgrade, gets the file of this one without keeping it.
    let is_this_version = FOLDER.ends_with(&folder);
    let keep = if is_this_version { "public, max-age=31536000, immutable" } else { "no-store" };
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(kind)),
        (header::CACHE_CONTROL, HeaderValue::from_static(keep)),
    ];
    (headers, *content).into_response()
}
