//! Requests for parts of files. Redirects are followed by hand: few of them, and no secret goes to another host.

use std::time::Duration;

use reqwest::{
    Client, Response, StatusCode, Url,
    header::{self, HeaderMap, HeaderName},
    redirect,
};

/// Redirects followed before giving up.
const MAX_REDIRECTS: usize = 5;
/// Silence after which a connection counts as dead.
const READ_TIMEOUT: Duration = Duration::from_secs(20);

/// A request that did not give the bytes asked for.
#[derive(Debug, thiserror::Error)]
pub enum WebError {
    /// The address makes no sense.
    #[error("{0:?} is not an address on the web")]
    Url(String),
    /// The server was not reached, or the connection broke.
    #[error("talk to {host}")]
    Transport {
        /// The server.
        host: String,
        /// Why.
        #[source]
        source: reqwest::Error,
    },
    /// It answered with something else.
    #[error("{host} answered {status}")]
    Status {
        /// The server.
        host: String,
        /// Its answer.
        status: u16,
    },
    /// It sent us round and round.
    #[error("too many redirects")]
    Redirects,
    /// It sent fewer or more bytes than it said.
    #[error("{host} sent {got} bytes instead of {expected}")]
    Length {
        /// The server.
        host: String,
        /// What was due.
        expected: u64,
        /// What came.
        got: u64,
    },
    /// It sent another part than the one asked for, or one of unknown size.
    #[error("{host} does not send the part that was asked for")]
    Ranges {
        /// The server.
        host: String,
    },
    /// The file changed while it was fetched.
    #[error("the file on {host} changed while it was fetched")]
    Changed {
        /// The server.
        host: String,
    },
}

impl WebError {
    /// Whether asking again may help.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Transport { .. } | Self::Length { .. } => true,
            Self::Status { status, .. } => matches!(status, 408 | 425 | 429 | 500..=599),
            _ => false,
        }
    }

    /// Whether the address at the end of a redirect has run out, so that the first one should be asked again.
    pub(crate) fn is_expired(&self) -> bool {
        matches!(self, Self::Status { status: 401 | 403 | 404 | 410, .. })
    }
}

/// What a first answer tells about a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct About {
    /// Where the bytes come from, after redirects.
    pub(crate) place: Url,
    /// Bytes in all, where known.
    pub(crate) total: Option<u64>,
    /// Whether parts can be asked for.
    pub(crate) has_ranges: bool,
    /// Text that changes with the file.
    pub(crate) validator: Option<String>,
    /// Hash of the whole file, where a hub tells it: 64 hex digits.
    pub(crate) sha256: Option<String>,
}

/// Asks for parts of files.
#[derive(Debug, Clone)]
pub(crate) struct Web {
    client: Client,
    /// Secret for one host alone.
    token: Option<(Url, String)>,
}

impl Web {
    pub(crate) fn new(token: Option<(Url, String)>) -> Result<Self, reqwest::Error> {
        let client = Client::builder()
            .redirect(redirect::Policy::none())
            .tcp_nodelay(true)
            .connect_timeout(Duration::from_secs(10))
            .read_timeout(READ_TIMEOUT)
            .user_agent(concat!("island/", env!("CARGO_PKG_VERSION")))
            .build()?;
        Ok(Self { client, token })
    }

    /// Asks for the bytes from `start` to before `end`, and for what there is to know about the file.
    pub(crate) async fn open(&self, url: &Url, start: u64, end: u64) -> Result<(Response, About), WebError> {
        let mut place = url.clone();
        let mut sha256 = None;
        for _ in 0..=MAX_REDIRECTS {
            let response = self.get(&place, start, end).await?;
            let headers = response.headers();
            sha256 = sha256.or_else(|| linked_sha256(headers));
            if response.status().is_redirection() {
                let target = text(headers, &header::LOCATION).and_then(|to| place.join(&to).ok());
                let target = target.filter(|to| matches!(to.scheme(), "http" | "https"));
                // Never from a safe connection to an open one.
                let target = target.filter(|to| place.scheme() == "http" || to.scheme() == "https");
                place = target.ok_or(WebError::Redirects)?;
                continue;
            }
            let has_ranges = response.status() != StatusCode::OK;
            let total = if has_ranges { range_total(headers) } else { response.content_length() };
            let is_first = range_start(headers).is_none_or(|first| first == start);
            if has_ranges && (total.is_none() || !is_first) {
                return Err(WebError::Ranges { host: host(&place) });
            }
            let validator = text(headers, &header::ETAG).or_else(|| text(headers, &header::LAST_MODIFIED));
            return Ok((response, About { place, total, has_ranges, validator, sha256 }));
        }
        Err(WebError::Redirects)
    }

    /// Whether anything answers there.
    pub(crate) async fn answers(&self, url: &Url) -> bool {
        let asked = self.client.head(url.clone()).timeout(Duration::from_secs(10)).send();
        asked.await.is_ok()
    }

    async fn get(&self, url: &Url, start: u64, end: u64) -> Result<Response, WebError> {
        let mut request = self.client.get(url.clone());
        request = request.header(header::RANGE, format!("bytes={start}-{}", end.saturating_sub(1)));
        // A compressed answer has other lengths and other hashes.
        request = request.header(header::ACCEPT_ENCODING, "identity");
        if let Some((home, token)) = &self.token
            && home.origin() == url.origin()
        {
            request = request.bearer_auth(token);
        }
        let response = request.send().await.map_err(|source| transport(url, source))?;
        let status = response.status();
        // An empty file has no bytes to ask for.
        let is_empty =
            status == StatusCode::RANGE_NOT_SATISFIABLE && range_total(response.headers()) == Some(0);
        if status.is_success() || status.is_redirection() || is_empty {
            return Ok(response);
        }
        Err(WebError::Status { host: host(url), status: status.as_u16() })
    }
}

pub(crate) fn transport(url: &Url, source: reqwest::Error) -> WebError {
    // Signed addresses are secrets: only the host is told.
    WebError::Transport { host: host(url), source: source.without_url() }
}

pub(crate) fn host(url: &Url) -> String {
    url.host_str().unwrap_or("?").to_owned()
}

fn text(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    Some(headers.get(name)?.to_str().ok()?.to_owned())
}

/// `bytes 0-99/1234` says 1234.
fn range_total(headers: &HeaderMap) -> Option<u64> {
    text(headers, &header::CONTENT_RANGE)?.rsplit_once('/')?.1.parse().ok()
}

/// `bytes 0-99/1234` says 0; `bytes */0` says nothing.
fn range_start(headers: &HeaderMap) -> Option<u64> {
    text(headers, &header::CONTENT_RANGE)?.strip_prefix("bytes ")?.split_once('-')?.0.parse().ok()
}

/// A hub names the hash of a large file before it sends us to where the bytes are.
fn linked_sha256(headers: &HeaderMap) -> Option<String> {
    let tag = text(headers, &HeaderName::from_static("x-linked-etag"))?;
    let tag = tag.trim_start_matches("W/").trim_matches('"').to_ascii_lowercase();
    (tag.len() == 64 && tag.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(tag)
}
