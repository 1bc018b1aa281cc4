//! Scripts, styles and pictures, embedded. Their folder is named after their content, so that browsers keep them for ever.

use std::sync::LazyLock;

use axum::{
    extract::Path,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use sha2::{Digest as _, Sha256};

const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

/// Name, media type and content.
const FILES: &[(&str, &str, &[u8])] = &[
    ("page.js", SCRIPT, include_bytes!("../assets/page.js")),
    ("chat.js", SCRIPT, include_bytes!("../assets/chat.js")),
    ("stream.js", SCRIPT, include_bytes!("../assets/stream.js")),
    ("job.js", SCRIPT, include_bytes!("../assets/job.js")),
    ("htmx.min.js", SCRIPT, include_bytes!("../assets/vendor/htmx.min.js")),
    ("uPlot.iife.min.js", SCRIPT, include_bytes!("../assets/vendor/uPlot.iife.min.js")),
    ("uPlot.min.css", STYLE, include_bytes!("../assets/vendor/uPlot.min.css")),
    ("console.css", STYLE, include_bytes!("../assets/console.css")),
    ("island.svg", "image/svg+xml", include_bytes!("../assets/island.svg")),
];

static FOLDER: LazyLock<String> = LazyLock::new(|| {
    let mut hash = Sha256::new();
    for (name, _, content) in FILES {
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
    let Some((_, kind, content)) = FILES.iter().find(|(known, _, _)| *known == name) else {
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
