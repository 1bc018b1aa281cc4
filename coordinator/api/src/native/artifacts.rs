//! `GET /artifacts/:digest`: files of Cargos on the coordinator's machine, for Islands elsewhere.
//!
//! Needs no key: the catalogue is public, and Islands verify the hash of what they download.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::State,
    http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, ETAG},
    response::{IntoResponse, Response},
};
use island_protocol::digest::Digest;
use island_protocol_api::problem::Code;
use tokio::fs::File;
use tokio_util::io::ReaderStream;

use crate::{Api, ApiError, http::segment::Segment};

/// Bytes read at a time.
const CHUNK: usize = 256 << 10;

/// The whole file.
pub(crate) async fn get(State(api): State<Arc<Api>>, Segment(digest): Segment) -> Result<Response, ApiError> {
    let unknown = || ApiError::new(Code::NotFound, "no Cargo has such a file here");
    let digest: Digest = format!("sha256:{digest}").parse().map_err(|_| unknown())?;
    let path = api.catalogue().local_file(digest).ok_or_else(unknown)?;
    let file = File::open(&path).await.map_err(|_| unknown())?;
    let length = file.metadata().await.map_err(|_| unknown())?.len();
    let headers = [
        (CONTENT_TYPE, "application/octet-stream".to_owned()),
        (CONTENT_LENGTH, length.to_string()),
        (ETAG, format!("\"{}\"", digest.hex())),
        // The content never changes, as its address is its hash.
        (CACHE_CONTROL, "public, max-age=31536000, immutable".to_owned()),
    ];
    Ok((headers, Body::from_stream(ReaderStream::with_capacity(file, CHUNK))).into_response())
}
