//! Heads of answers of file servers, read without a connection: for fuzzing.

use std::time::SystemTime;

use reqwest::{
    StatusCode, Url,
    header::{self, HeaderMap, HeaderName, HeaderValue},
};
use tokio::time::Instant;

use crate::{
    hosts::Hosts,
    refusal::{self, LONGEST_WAIT},
    size, web,
};

/// Address that is requested. It names a file of a repository, so that refusals are read as those of a hub.
const PLACE: &str = "https://files.example/owner/repository/resolve/main/file";
/// Number of bytes that are requested from the start of the file.
const REQUESTED: u64 = 8 << 20;

/// Reads an answer to the first request for a file as a download does: its status and the fields of its head. Fields that no client reads are
/// left out. Returns whether the download continues: with the body, a redirect or a wait.
///
/// # Panics
/// The answer has an effect that no answer may have: a wait of more than a day, or a redirect to an address without encryption.
pub fn read(status: u16, fields: &[(&[u8], &[u8])]) -> bool {
    let Ok(status) = StatusCode::from_u16(status) else { return false };
    let headers = headers(fields);
    let place = Url::parse(PLACE).expect("an address");
    // Only the text for the owner.
    let _ = refusal::reason(&place, &headers, true);
    if let Some(time) = refusal::wait(status, &headers, SystemTime::now()) {
        assert!(time <= LONGEST_WAIT && Instant::now().checked_add(time).is_some(), "{time:?}");
        let hosts = Hosts::default();
        hosts.close("files.example", time);
        return true;
    }
    if status.is_redirection() {
        let target = web::redirected(&place, &headers);
        assert!(target.as_ref().is_none_or(|target| target.scheme() == "https"), "{target:?}");
        return target.is_some();
    }
    let length = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    web::about(&place, status, &headers, length, 0, REQUESTED).is_ok_and(|about| {
        about.version().is_none_or(|text| !text.is_empty()) && size::extent(None, about.total).is_ok()
    })
}

fn headers(fields: &[(&[u8], &[u8])]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
            // More fields than a map holds are left out as well.
            let _ = headers.try_append(name, value);
        }
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_effect_of_an_answer_is_read_from_its_head() {
        let fields = |pairs: &[(&'static str, &'static str)]| {
            pairs.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect::<Vec<_>>()
        };
        for (status, pairs, continues) in [
            (206, &[("Content-Range", "bytes 0-4/5"), ("ETag", "\"v\"")][..], true),
            (200, &[("Content-Length", "5")], true),
            (200, &[], true),
            (302, &[("Location", "/other")], true),
            (429, &[("Retry-After", "18446744073709551615")], true),
            (503, &[("Retry-After", "5")], true),
            (302, &[("Location", "http://files.example/")], false),
            (206, &[("Content-Range", "bytes 0-0/18446744073709551615")], false),
            (206, &[("Content-Range", "bytes 5-9/10")], false),
            (206, &[], false),
            (1000, &[], false),
        ] {
            assert_eq!(read(status, &fields(pairs)), continues, "{status} {pairs:?}");
        }
    }
}
