//! Pages and assets in fewer bytes, for clients that accept gzip.
//!
//! Who sees the lengths of encrypted answers, and chooses a text that is shown in them, can guess what else is in an answer that is
//! compressed as a whole (BREACH). So a page is compressed only if nothing in it was chosen by its address (0146).

use std::io::{self, Write as _};

use axum::{
    body::{Body, HttpBody as _},
    extract::Request,
    http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use flate2::{Compression, write::GzEncoder};
use http_body_util::BodyExt as _;

/// Answers that are shorter are sent as they are: a packet holds them.
pub(crate) const MIN_BYTES: usize = 1 << 10;
/// Pages that are longer are sent as they are, as compressing them would hold up the requests of others.
const MAX_PAGE_BYTES: u64 = 1 << 20;
/// The longest number in an address that a page may show.
const MAX_DIGITS: usize = 4;

/// Compresses pages.
pub(crate) async fn compress(request: Request, next: Next) -> Response {
    let is_accepted = accepts_gzip(request.headers());
    let may = request.method() == Method::GET && shows_nothing_of(request.uri());
    let mut response = next.run(request).await;
    if !may || !is_page(&response) {
        return response;
    }
    response.headers_mut().append(header::VARY, HeaderValue::from_static("accept-encoding"));
    if !is_accepted {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let whole = body.collect().await.map_err(io::Error::other);
    match whole.and_then(|whole| gzip(&whole.to_bytes(), Compression::fast())) {
        Ok(compressed) => {
            parts.headers.remove(header::CONTENT_LENGTH);
            parts.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            Response::from_parts(parts, Body::from(compressed))
        }
        Err(error) => {
            tracing::error!(%error, "a page of the console cannot be compressed");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// Whether an answer is a page that is worth it, and not a stream of events or a file of a job.
fn is_page(response: &Response) -> bool {
    let kind = response.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let is_html = kind.is_some_and(|kind| kind.starts_with("text/html"));
    let length = response.body().size_hint().exact();
    let is_sized = length.is_some_and(|length| (MIN_BYTES as u64..=MAX_PAGE_BYTES).contains(&length));
    response.status() == StatusCode::OK && is_html && is_sized
}

/// Whether the values in the query of an address are empty or short numbers, which reveal nothing when they are shown.
fn shows_nothing_of(uri: &Uri) -> bool {
    let pairs = uri.query().unwrap_or_default().split('&');
    let mut values = pairs.map(|pair| pair.split_once('=').map_or(pair, |(_, value)| value));
    values.all(|value| value.len() <= MAX_DIGITS && value.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Whether a client accepts gzip.
pub(crate) fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING).into_iter();
    let mut codings = values.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    codings.any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        let is_gzip = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        let is_refused = parts.filter_map(|part| part.split_once('=')).any(|(name, weight)| {
            name.trim().eq_ignore_ascii_case("q") && weight.trim().parse::<f32>() == Ok(0.0)
        });
        is_gzip && !is_refused
    })
}

/// The bytes in the form of gzip.
pub(crate) fn gzip(bytes: &[u8], level: Compression) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 4), level);
    encoder.write_all(bytes)?;
    encoder.finish()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use axum::{Router, middleware, response::Html, routing::get};
    use flate2::read::GzDecoder;
    use tower::ServiceExt as _;

    use super::*;

    const PAGE: &str = "<p>a row of a table of a page</p>\n";

    fn router() -> Router {
        let long = || async { Html(PAGE.repeat(200)) };
        let refused = || async { (StatusCode::NOT_FOUND, Html(PAGE.repeat(200))) };
        let events = || async { ([(header::CONTENT_TYPE, "text/event-stream")], PAGE.repeat(200)) };
        let stream = || async {
            let parts = futures::stream::iter([Ok::<_, io::Error>(PAGE.repeat(200))]);
            Html(Body::from_stream(parts))
        };
        Router::new()
            .route("/long", get(long).post(long))
            .route("/short", get(|| async { Html(PAGE) }))
            .route("/refused", get(refused))
            .route("/events", get(events))
            .route("/stream", get(stream))
            .layer(middleware::from_fn(compress))
    }

    /// The coding and the decoded body of an answer.
    async fn answer(path: &str, accepted: &str) -> (Option<String>, String) {
        let (method, path) = path.split_once(' ').unwrap_or(("GET", path));
        let request = axum::http::Request::builder().method(method).uri(path);
        let request = request.header(header::ACCEPT_ENCODING, accepted).body(Body::empty());
        let answer = router().oneshot(request.expect("a request")).await;
        let (parts, body) = answer.expect("an answer").into_parts();
        let body = body.collect().await.expect("a body").to_bytes();
        let coding = parts.headers.get(header::CONTENT_ENCODING);
        let coding = coding.map(|coding| coding.to_str().expect("text").to_owned());
        let mut text = String::new();
        if coding.is_some() {
            assert!(body.len() < PAGE.len() * 200 / 10, "{}", body.len());
            GzDecoder::new(&body[..]).read_to_string(&mut text).expect("gzip");
        } else {
            text.push_str(std::str::from_utf8(&body).expect("text"));
        }
        (coding, text)
    }

    #[tokio::test]
    async fn a_page_is_compressed_for_who_accepts_it() {
        let gzip = Some("gzip".to_owned());
        for accepted in ["gzip", "br, GZIP;q=0.5", "deflate,gzip"] {
            assert_eq!(answer("/long?days=90&key=", accepted).await, (gzip.clone(), PAGE.repeat(200)));
        }
        for accepted in ["", "br", "gzip;q=0", "gzip; q=0.0, deflate", "gzipped"] {
            assert_eq!(answer("/long", accepted).await, (None, PAGE.repeat(200)), "{accepted}");
        }
    }

    #[tokio::test]
    async fn what_the_address_may_have_chosen_is_not_compressed() {
        for path in
            ["/long?q=secret", "/long?offset=12345", "/long?guess", "/long?a=1&q=x", "POST /long", "/refused"]
        {
            assert_eq!(answer(path, "gzip").await, (None, PAGE.repeat(200)), "{path}");
        }
    }

    #[tokio::test]
    async fn streams_and_short_pages_stay_as_they_are() {
        for path in ["/events", "/stream"] {
            assert_eq!(answer(path, "gzip").await, (None, PAGE.repeat(200)), "{path}");
        }
        assert_eq!(answer("/short", "gzip").await, (None, PAGE.to_owned()));
    }
}
