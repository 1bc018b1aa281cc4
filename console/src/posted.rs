//! Posted forms, with or without files.

use std::collections::HashMap;

use axum::{
    body::Body,
    extract::Request,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use island_console_blocks::block::Field;
use multer::Multipart;
use uuid::Uuid;

use crate::backend::is_too_long;

/// Field with the idempotency key of a form: what is sent twice is one job, one change of credits or one payout.
const IDEMPOTENCY_KEY: &str = ".once";
/// Maximum bytes of a form with files: what the API accepts, before it is written in base 64.
pub(crate) const MAX_BYTES: usize = 9 << 20;
/// Maximum bytes of a form of somebody who is not signed in.
pub(crate) const MAX_SMALL_BYTES: usize = 16 << 10;
/// Maximum fields of a form.
const MAX_FIELDS: usize = 512;

/// The fields of a form.
#[derive(Debug, Clone, Default)]
pub(crate) struct Posted {
    texts: HashMap<String, String>,
    files: HashMap<String, Vec<Bytes>>,
}

impl Posted {
    /// A text, without white space around it; empty if it is missing.
    pub(crate) fn get(&self, name: &str) -> &str {
        self.texts.get(name).map_or("", |text| text.trim())
    }

    /// A text as it was entered.
    pub(crate) fn raw(&self, name: &str) -> Option<&str> {
        self.texts.get(name).map(String::as_str)
    }

    /// A text that is not empty.
    pub(crate) fn some(&self, name: &str) -> Option<&str> {
        Some(self.get(name)).filter(|text| !text.is_empty())
    }

    /// The header by which a form that is sent twice has one effect, if the form has [`idempotency_key`].
    pub(crate) fn idempotency(&self) -> HeaderMap {
        let key = self.some(IDEMPOTENCY_KEY).and_then(|key| HeaderValue::from_str(key).ok());
        key.map(|key| (HeaderName::from_static("idempotency-key"), key)).into_iter().collect()
    }

    /// A number, as the API reads it; text that is not a number is left to the API to refuse.
    pub(crate) fn number(&self, name: &str) -> Option<serde_json::Value> {
        let text = self.some(name)?;
        Some(
            serde_json::from_str(text)
                .ok()
                .filter(serde_json::Value::is_number)
                .unwrap_or_else(|| text.into()),
        )
    }

    #[cfg(test)]
    pub(crate) fn of(pairs: &[(&str, &str)]) -> Self {
        let texts = pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        Self { texts: texts.collect(), files: HashMap::new() }
    }

    #[cfg(test)]
    pub(crate) fn with_files(mut self, name: &str, files: &[&'static [u8]]) -> Self {
        self.files.insert(name.to_owned(), files.iter().map(|file| Bytes::from_static(file)).collect());
        self
    }

    /// The files of a field that are not empty, in the order in which they were chosen.
    pub(crate) fn files(&self, name: &str) -> impl Iterator<Item = &Bytes> {
        self.files.get(name).into_iter().flatten().filter(|file| !file.is_empty())
    }

    /// The first of them.
    pub(crate) fn file(&self, name: &str) -> Option<&Bytes> {
        self.files(name).next()
    }
}

/// A change that the API refused. Its page is shown again, with the reason and with what was entered.
#[derive(Debug, Clone)]
pub(crate) struct Refusal {
    pub status: StatusCode,
    pub message: String,
    pub details: Vec<String>,
    /// Where the form was sent.
    pub action: String,
    pub entered: Posted,
}

/// A hidden field with a new idempotency key.
pub(crate) fn idempotency_key() -> Field {
    Field::hidden(IDEMPOTENCY_KEY, Uuid::new_v4().to_string())
}

/// Why a form cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// More bytes than a form may have.
    TooLarge,
    /// Not a form, or one that ended early.
    Malformed,
}

/// Reads the form of a request that has at most `max` bytes.
pub(crate) async fn read(request: Request, max: usize) -> Result<Posted, Unreadable> {
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.unwrap_or_default().to_owned();
    let body = receive(request.into_body(), max).await?;
    let posted = match multer::parse_boundary(&kind) {
        Ok(boundary) => multipart(body, boundary).await,
        Err(_) => Some(Posted { texts: pairs(&body), files: HashMap::new() }),
    };
    posted.ok_or(Unreadable::Malformed)
}

async fn receive(body: Body, max: usize) -> Result<Bytes, Unreadable> {
    match Limited::new(body, max).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if is_too_long(error.as_ref()) => Err(Unreadable::TooLarge),
        Err(_) => Err(Unreadable::Malformed),
    }
}

async fn multipart(body: Bytes, boundary: String) -> Option<Posted> {
    let once = futures::stream::once(async move { Ok::<_, std::convert::Infallible>(body) });
    let mut parts = Multipart::new(once, boundary);
    let mut posted = Posted::default();
    let mut count = 0;
    while let Some(part) = parts.next_field().await.ok()? {
        let Some(name) = part.name().map(str::to_owned) else { continue };
        count += 1;
        if count > MAX_FIELDS {
            return None;
        }
        if part.file_name().is_some() {
            posted.files.entry(name).or_default().push(part.bytes().await.ok()?);
        } else {
            posted.texts.insert(name, lines(&part.text().await.ok()?));
        }
    }
    Some(posted)
}

/// Browsers end lines of a form as the wire does, and people do not.
fn lines(text: &str) -> String {
    text.replace("\r\n", "\n")
}

fn pairs(body: &[u8]) -> HashMap<String, String> {
    let pairs = body.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty()).take(MAX_FIELDS);
    let pair = |pair: &[u8]| {
        let at = pair.iter().position(|byte| *byte == b'=').unwrap_or(pair.len());
        (decoded(&pair[..at]), lines(&decoded(pair.get(at + 1..).unwrap_or_default())))
    };
    pairs.map(pair).collect()
}

fn decoded(text: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.iter();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let half = |digit: Option<&u8>| digit.and_then(|digit| char::from(*digit).to_digit(16));
                match (half(rest.clone().next()), half(rest.clone().nth(1))) {
                    (Some(high), Some(low)) => {
                        rest.nth(1);
                        (high * 16 + low) as u8
                    }
                    _ => b'%',
                }
            }
            byte => *byte,
        });
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_as_browsers_write_them() {
        let posted = pairs(b"name=a+b%26c&text=x%0D%0Ay&empty=&odd=%zz%");
        assert_eq!(posted["name"], "a b&c");
        assert_eq!(posted["text"], "x\ny");
        assert_eq!(posted["empty"], "");
        assert_eq!(posted["odd"], "%zz%");
    }

    #[tokio::test]
    async fn files_are_apart_from_texts() {
        let body = "--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--x\r\n\
             Content-Disposition: form-data; name=\"f\"; filename=\"p.png\"\r\n\r\n\u{1}\u{2}\r\n--x\r\n\
             Content-Disposition: form-data; name=\"f\"; filename=\"q.png\"\r\n\r\n\u{3}\r\n--x--\r\n";
        let posted = multipart(Bytes::from_static(body.as_bytes()), "x".to_owned()).await.expect("a form");
        assert_eq!((posted.get("a"), posted.file("f").map(Bytes::as_ref)), ("1", Some(&[1, 2][..])));
        assert_eq!(
            posted.files("f").map(Bytes::as_ref).collect::<Vec<_>>(),
            [&b"\x01\x02"[..], &b"\x03"[..]]
        );
        assert!(posted.file("a").is_none() && posted.raw("f").is_none());
    }
}
