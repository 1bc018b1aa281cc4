//! Requests parts of files. Redirects are followed here: a limited number, and without sending secrets to another host.

use std::{
    error::Error,
    fmt, io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::Arc,
    time::{Duration, SystemTime},
};

use island_protocol::digest::Digest;
use reqwest::{
    Client, Response, StatusCode, Url,
    dns::{Addrs, Name, Resolve, Resolving},
    header::{self, HeaderMap, HeaderName},
    redirect,
};
use tokio::sync::OwnedSemaphorePermit;

use crate::{hosts::Hosts, refusal};

/// Maximum number of redirects.
const MAX_REDIRECTS: usize = 5;
/// Time without a byte after which a connection counts as dead.
const READ_TIMEOUT: Duration = Duration::from_secs(20);

/// Maximum bytes of an unexpected answer that appear in an error.
const MAX_ANSWER: usize = 100;

/// A request that did not return the requested bytes.
#[derive(Debug, thiserror::Error)]
pub enum WebError {
    /// The address is invalid.
    #[error("{0:?} is not an address on the web")]
    Url(String),
    /// The server could not be reached, or the connection failed.
    #[error("connect to {host}")]
    Transport {
        /// The server.
        host: String,
        /// Why.
        #[source]
        source: reqwest::Error,
    },
    /// An unexpected status.
    #[error("{host} answered {status}")]
    Status {
        /// The server.
        host: String,
        /// Its answer.
        status: u16,
    },
    /// It accepts no more requests for this time.
    #[error("{host} accepts no more requests for {} s", time.as_secs())]
    Busy {
        /// The server.
        host: String,
        /// How long.
        time: Duration,
    },
    /// The hub refuses the file, and names the reason.
    #[error("{reason}")]
    Refused {
        /// The server.
        host: String,
        /// Why, and what an owner can do.
        reason: String,
    },
    /// Too many redirects.
    #[error("too many redirects")]
    Redirects,
    /// The owner's machine does not connect there.
    #[error("{host} is not fetched from: {reason}")]
    Forbidden {
        /// The server.
        host: String,
        /// Why not.
        reason: String,
    },
    /// It sent fewer bytes than expected.
    #[error("{host} sent {got} bytes instead of {expected}")]
    Length {
        /// The server.
        host: String,
        /// Expected bytes.
        expected: u64,
        /// Received bytes.
        got: u64,
    },
    /// It sent more bytes than expected. The rest of its answer was not read.
    #[error("{host} sent at least {got} bytes where {expected} were due")]
    Excess {
        /// The server.
        host: String,
        /// Expected bytes.
        expected: u64,
        /// Received bytes before the answer was aborted.
        got: u64,
    },
    /// It announced another length than the artifact states.
    #[error("{host} announced {announced} bytes for a file of {stated}")]
    Size {
        /// The server.
        host: String,
        /// The length that the artifact states.
        stated: u64,
        /// The length that the server announced.
        announced: u64,
    },
    /// The file is larger than allowed.
    #[error(
        "{host} has a file of {bytes} bytes or more, and at most {most} are fetched where the size is not known in advance"
    )]
    TooLarge {
        /// The server.
        host: String,
        /// Maximum bytes.
        most: u64,
        /// As announced, or as received before the answer was aborted.
        bytes: u64,
    },
    /// It sent another part than the requested one, or one of unknown size.
    #[error("{host} answered the request for bytes {start} to {last} with {answered}")]
    Ranges {
        /// The server.
        host: String,
        /// First byte of the request.
        start: u64,
        /// Last byte of the request.
        last: u64,
        /// Status of the answer, and the part that it names.
        answered: String,
    },
    /// The server states another hash of the file than the expected one. No byte of the file was read.
    #[error("{host} states the hash {stated} of the file")]
    Hash {
        /// The server.
        host: String,
        /// The hash that it states.
        stated: Digest,
    },
    /// The file changed while it was fetched.
    #[error("the file on {host} changed while it was fetched")]
    Changed {
        /// The server.
        host: String,
    },
}

impl WebError {
    /// Whether a retry may help.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Transport { .. } | Self::Length { .. } | Self::Busy { .. } => true,
            Self::Status { status, .. } => matches!(status, 408 | 425 | 500..=599),
            _ => false,
        }
    }

    /// Whether no answer arrived: there is no route, the name was not resolved, or the connection was refused, reset or not opened in time.
    /// Encryption that fails is an answer, and so is one that is not HTTP.
    pub(crate) fn is_unreachable(&self) -> bool {
        let Self::Transport { source, .. } = self else { return false };
        let is_silent = || source.is_connect() || source.is_timeout() || causes(source).any(is_of_connection);
        source.is_request() && is_silent() && !causes(source).any(is_of_encryption)
    }

    /// Whether the server broke the protocol, so that nothing it sent can be used.
    pub(crate) fn is_breach(&self) -> bool {
        match self {
            Self::Excess { .. }
            | Self::Size { .. }
            | Self::TooLarge { .. }
            | Self::Ranges { .. }
            | Self::Hash { .. }
            | Self::Changed { .. } => true,
            Self::Url(_)
            | Self::Forbidden { .. }
            | Self::Transport { .. }
            | Self::Status { .. }
            | Self::Busy { .. }
            | Self::Refused { .. }
            | Self::Redirects
            | Self::Length { .. } => false,
        }
    }

    /// Whether a redirect target has expired, so that the first address must be requested again.
    pub(crate) fn is_expired(&self) -> bool {
        matches!(self, Self::Status { status: 401 | 403 | 404 | 410, .. })
    }
}

/// What the first answer shows about a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct About {
    /// Address of the bytes, after redirects.
    pub(crate) place: Url,
    /// Total bytes, if known.
    pub(crate) total: Option<u64>,
    /// Whether range requests work.
    pub(crate) has_ranges: bool,
    /// Text that changes with the file.
    pub(crate) validator: Option<String>,
    /// Hash of the whole file, if the hub sends it: 64 hex digits.
    pub(crate) sha256: Option<String>,
}

impl About {
    /// Text that names the version of the file: its hash if the hub sends it. Servers of one network for files give other validators for the
    /// same bytes.
    pub(crate) fn version(&self) -> Option<String> {
        let hash = self.sha256.as_ref().map(|hex| format!("sha256:{hex}"));
        hash.or_else(|| self.validator.clone())
    }

    /// Whether a later download can continue this one: by range requests, for a file with a known version.
    pub(crate) fn can_be_resumed(&self) -> bool {
        self.has_ranges && self.version().is_some()
    }

    /// Whether a later answer is for the same version of the file, with the same encoding. If the hash of the file is known, it decides in the end,
    /// not the validator.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let is_version = match (&self.sha256, &other.sha256) {
            (Some(known), Some(now)) => known == now,
            (Some(_), None) => true,
            (None, _) => self.validator == other.validator,
        };
        is_version && (self.has_ranges, self.total) == (other.has_ranges, other.total)
    }
}

/// What [`Destinations::learn`] returns.
pub type Learning<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Decides where files may be downloaded from. Addresses of files and redirects are untrusted.
pub trait Destinations: fmt::Debug + Send + Sync + 'static {
    /// Whether the owner chose the origin of this address: its scheme, host and port. Requests go there unchecked, also without encryption.
    fn is_trusted(&self, url: &Url) -> bool;

    /// Finds out what the network around this machine does with addresses of IPv6. Awaited before one is checked.
    fn learn(&self) -> Learning<'_>;

    /// Whether this address may be connected to.
    ///
    /// # Errors
    /// Why not.
    fn check_address(&self, address: SocketAddr) -> Result<(), String>;
}

/// Why none of a name's addresses may be connected to.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct NotPermitted(String);

/// Resolves names to addresses that are permitted. The connection is made to one of these, so the name is not resolved again after the check.
struct Resolver(Arc<dyn Destinations>);

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let destinations = Arc::clone(&self.0);
        Box::pin(async move {
            let host = name.as_str();
            let found: Vec<SocketAddr> = tokio::net::lookup_host((host, 0)).await?.collect();
            if found.iter().any(SocketAddr::is_ipv6) {
                destinations.learn().await;
            }
            let (permitted, refused) = permitted(&*destinations, found);
            match refused {
                Some(reason) if permitted.is_empty() => Err(NotPermitted(reason).into()),
                _ => Ok(Box::new(permitted.into_iter()) as Addrs),
            }
        })
    }
}

/// The addresses that may be connected to, and why the last of the others may not.
fn permitted(destinations: &dyn Destinations, found: Vec<SocketAddr>) -> (Vec<SocketAddr>, Option<String>) {
    let mut refused = None;
    let check = |address: &SocketAddr| match destinations.check_address(*address) {
        Ok(()) => true,
        Err(reason) => {
            refused = Some(reason);
            false
        }
    };
    (found.into_iter().filter(check).collect(), refused)
}

/// Requests parts of files.
#[derive(Debug, Clone)]
pub(crate) struct Web {
    /// For the origins that the owner chose.
    trusted: Client,
    /// For all others, if they are checked: it resolves names by [`Resolver`], and uses no proxy of the environment, which would resolve them
    /// again.
    checked: Client,
    /// `None` permits all.
    destinations: Option<Arc<dyn Destinations>>,
    /// Address of the hub.
    hub: Url,
    /// A secret for the hub alone.
    token: Option<String>,
    hosts: Hosts,
}

/// An answer whose body has not been read. It occupies a connection until it is dropped.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) response: Response,
    pub(crate) connection: OwnedSemaphorePermit,
}

impl Web {
    pub(crate) fn new(
        hub: Url,
        token: Option<String>,
        destinations: Option<Arc<dyn Destinations>>,
    ) -> Result<Self, reqwest::Error> {
        let client = || {
            Client::builder()
                .redirect(redirect::Policy::none())
                .tcp_nodelay(true)
                .connect_timeout(Duration::from_secs(10))
                .read_timeout(READ_TIMEOUT)
                .user_agent(concat!("island/", env!("CARGO_PKG_VERSION")))
        };
        let trusted = client().build()?;
        let checked = match &destinations {
            Some(destinations) => {
                let resolver = Resolver(Arc::clone(destinations));
                client().dns_resolver(Arc::new(resolver)).no_proxy().build()?
            }
            None => trusted.clone(),
        };
        Ok(Self { trusted, checked, destinations, hub, token, hosts: Hosts::default() })
    }

    /// Requests the bytes from `start` to before `end`, and what the answer shows about the file. One that states another hash than `expected` is
    /// an error, also before a redirect is followed.
    pub(crate) async fn open(
        &self,
        url: &Url,
        start: u64,
        end: u64,
        expected: Option<Digest>,
    ) -> Result<(Opened, About), WebError> {
        let mut place = url.clone();
        let mut sha256 = None;
        for _ in 0..=MAX_REDIRECTS {
            let opened = self.get(&place, start, end).await?;
            let response = &opened.response;
            let headers = response.headers();
            let is_hub = self.hub.origin() == place.origin();
            // The hub's validator of a large file is its hash. What it is elsewhere is unknown.
            let of_hub = || is_hub.then(|| sha256_of(headers, &header::ETAG)).flatten();
            sha256 = sha256.or_else(|| linked_sha256(headers)).or_else(of_hub);
            let stated = sha256.as_deref().and_then(digest);
            if let (Some(expected), Some(stated)) = (expected, stated)
                && expected != stated
            {
                return Err(WebError::Hash { host: host(&place), stated });
            }
            if response.status().is_redirection() {
                place = redirected(&place, headers).ok_or(WebError::Redirects)?;
                continue;
            }
            let about = about(&place, response.status(), headers, response.content_length(), start, end)?;
            return Ok((opened, About { sha256, ..about }));
        }
        Err(WebError::Redirects)
    }

    /// Whether a server answers at an address.
    pub(crate) async fn answers(&self, url: &Url) -> bool {
        let answer = self.trusted.head(url.clone()).timeout(Duration::from_secs(10)).send();
        answer.await.is_ok()
    }

    /// The client for a request. Checks what the resolver does not see: the scheme, and addresses that are written as numbers.
    async fn client_for(&self, url: &Url) -> Result<&Client, WebError> {
        let Some(destinations) = &self.destinations else { return Ok(&self.trusted) };
        if destinations.is_trusted(url) {
            return Ok(&self.trusted);
        }
        let name = host(url);
        let forbidden = |reason| WebError::Forbidden { host: name.clone(), reason };
        if url.scheme() != "https" {
            return Err(forbidden("its address does not begin with https".to_owned()));
        }
        if let Ok(address) = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
            if address.is_ipv6() {
                destinations.learn().await;
            }
            destinations.check_address(SocketAddr::new(address, 0)).map_err(forbidden)?;
        }
        Ok(&self.checked)
    }

    async fn get(&self, url: &Url, start: u64, end: u64) -> Result<Opened, WebError> {
        let name = host(url);
        let busy = |time| WebError::Busy { host: name.clone(), time };
        let connection = self.hosts.enter(&name).await.map_err(busy)?;
        let mut request = self.client_for(url).await?.get(url.clone());
        request = request.header(header::RANGE, format!("bytes={start}-{}", end.saturating_sub(1)));
        // A compressed answer would have another length and hash.
        request = request.header(header::ACCEPT_ENCODING, "identity");
        let is_hub = self.hub.origin() == url.origin();
        if let Some(token) = self.token.as_ref().filter(|_| is_hub) {
            request = request.bearer_auth(token);
        }
        let response = request.send().await.map_err(|source| transport(url, source))?;
        let status = response.status();
        // An empty file has no bytes to request.
        let is_about_range = status == StatusCode::RANGE_NOT_SATISFIABLE;
        if status.is_success() || status.is_redirection() || is_about_range {
            return Ok(Opened { response, connection });
        }
        if let Some(time) = refusal::wait(status, response.headers(), SystemTime::now()) {
            self.hosts.close(&name, time);
            return Err(WebError::Busy { host: name, time });
        }
        let reason = refusal::reason(url, response.headers(), self.token.is_some()).filter(|_| is_hub);
        Err(match reason {
            Some(reason) => WebError::Refused { host: name, reason },
            None => WebError::Status { host: name, status: status.as_u16() },
        })
    }
}

pub(crate) fn transport(url: &Url, source: reqwest::Error) -> WebError {
    let host = host(url);
    let refused = causes(&source).find_map(|cause| cause.downcast_ref::<NotPermitted>());
    if let Some(NotPermitted(reason)) = refused {
        return WebError::Forbidden { host, reason: reason.clone() };
    }
    // Signed addresses are secrets: errors contain only the host.
    WebError::Transport { host, source: source.without_url() }
}

/// An error and its causes.
fn causes<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

/// Whether a cause is encryption that failed, such as an invalid certificate.
fn is_of_encryption(cause: &(dyn Error + 'static)) -> bool {
    cause.downcast_ref::<io::Error>().is_some_and(is_of_invalid_data)
}

/// Whether a cause is a connection that ended.
fn is_of_connection(cause: &(dyn Error + 'static)) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
    let kind = cause.downcast_ref::<io::Error>().map(io::Error::kind);
    matches!(kind, Some(BrokenPipe | ConnectionAborted | ConnectionReset))
}

/// Whether an error of the system, or one that it contains, is about invalid data.
fn is_of_invalid_data(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<io::Error>());
    error.kind() == io::ErrorKind::InvalidData || inner.is_some_and(is_of_invalid_data)
}

pub(crate) fn host(url: &Url) -> String {
    url.host_str().unwrap_or("?").to_owned()
}

fn text(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    Some(headers.get(name)?.to_str().ok()?.to_owned())
}

/// Where a redirect from `place` leads, if it may be followed: never from https to http.
pub(crate) fn redirected(place: &Url, headers: &HeaderMap) -> Option<Url> {
    let target = place.join(&text(headers, &header::LOCATION)?).ok()?;
    let is_web = matches!(target.scheme(), "http" | "https");
    (is_web && (place.scheme() == "http" || target.scheme() == "https")).then_some(target)
}

/// What an answer from `place` to the request for the bytes from `start` to before `end` shows about the file; `length` is that of its
/// body, if known.
pub(crate) fn about(
    place: &Url,
    status: StatusCode,
    headers: &HeaderMap,
    length: Option<u64>,
    start: u64,
    end: u64,
) -> Result<About, WebError> {
    let named = text(headers, &header::CONTENT_RANGE);
    let total = match classify(status, named.as_deref(), start, end) {
        RangeResponse::Whole => length,
        RangeResponse::Part { total } => Some(total),
        RangeResponse::Shrunk => return Err(WebError::Changed { host: host(place) }),
        RangeResponse::Other => {
            let mut answered = format!("{} {:?}", status.as_u16(), named.unwrap_or_default());
            answered.truncate(answered.floor_char_boundary(MAX_ANSWER));
            let (host, last) = (host(place), end.saturating_sub(1));
            return Err(WebError::Ranges { host, start, last, answered });
        }
    };
    let has_ranges = status != StatusCode::OK;
    let validator = text(headers, &header::ETAG).or_else(|| text(headers, &header::LAST_MODIFIED));
    Ok(About { place: place.clone(), total, has_ranges, validator, sha256: linked_sha256(headers) })
}

/// The kind of an answer to a range request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RangeResponse {
    /// The whole file.
    Whole,
    /// The requested part, or its start, of a file of this length.
    Part { total: u64 },
    /// The file ends before the part.
    Shrunk,
    /// Not what was requested.
    Other,
}

/// Classifies an answer with `status` and `Content-Range` `named` to the request for the bytes from `start` to before `end`.
fn classify(status: StatusCode, named: Option<&str>, start: u64, end: u64) -> RangeResponse {
    if status == StatusCode::OK {
        return RangeResponse::Whole;
    }
    let named = named.and_then(content_range);
    match (status, named) {
        (StatusCode::PARTIAL_CONTENT, Some((Some((first, last)), total)))
            if first == start && first <= last && last < end && last < total =>
        {
            RangeResponse::Part { total }
        }
        (StatusCode::RANGE_NOT_SATISFIABLE, Some((None, 0))) if start == 0 => {
            RangeResponse::Part { total: 0 }
        }
        (StatusCode::RANGE_NOT_SATISFIABLE, Some((None, total))) if start > 0 && total <= start => {
            RangeResponse::Shrunk
        }
        _ => RangeResponse::Other,
    }
}

/// First and last byte, and the length of the file: `bytes 0-99/1234`. An unsatisfiable range has no bytes: `bytes */1234`. Returns `None`
/// if the length is absent.
fn content_range(text: &str) -> Option<(Option<(u64, u64)>, u64)> {
    let (range, total) = text.strip_prefix("bytes ")?.split_once('/')?;
    let total = total.parse().ok()?;
    if range == "*" {
        return Some((None, total));
    }
    let (first, last) = range.split_once('-')?;
    Some((Some((first.parse().ok()?, last.parse().ok()?)), total))
}

/// A hub sends the hash of a large file with the redirect to its bytes.
fn linked_sha256(headers: &HeaderMap) -> Option<String> {
    sha256_of(headers, &HeaderName::from_static("x-linked-etag"))
}

/// The digest that 64 hex digits are.
pub(crate) fn digest(hex: &str) -> Option<Digest> {
    format!("sha256:{hex}").parse().ok()
}

/// A validator that is a hash.
fn sha256_of(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let tag = text(headers, name)?;
    let tag = tag.trim_start_matches("W/").trim_matches('"').to_ascii_lowercase();
    (tag.len() == 64 && tag.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(tag)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    proptest! {
        /// Whatever numbers a server sends, only a part is accepted that starts at the requested byte, ends at the requested one or before,
        /// and is inside the file.
        #[test]
        fn only_the_requested_part_is_accepted(
            start in 0_u64..100,
            length in 1_u64..100,
            first in prop_oneof![0_u64..120, any::<u64>()],
            last in prop_oneof![0_u64..220, any::<u64>()],
            total in prop_oneof![0_u64..220, any::<u64>()],
        ) {
            let text = format!("bytes {first}-{last}/{total}");
            let answer = classify(StatusCode::PARTIAL_CONTENT, Some(&text), start, start + length);
            let is_asked = first == start && (first..start + length).contains(&last) && last < total;
            prop_assert_eq!(answer, if is_asked { RangeResponse::Part { total } } else { RangeResponse::Other });
        }

        #[test]
        fn parsed_headers_are_unambiguous(text in "(bytes )?[0-9*]{0,3}[-/]?[0-9*]{0,3}[-/]?[0-9*]{0,3}") {
            if let Some((range, total)) = content_range(&text) {
                let range = range.map_or("*".to_owned(), |(first, last)| format!("{first}-{last}"));
                let again = content_range(&format!("bytes {range}/{total}"));
                prop_assert_eq!(again, content_range(&text));
            }
        }
    }

    /// Permits every address, and trusts one origin.
    #[derive(Debug)]
    struct Anywhere(&'static str);

    impl Destinations for Anywhere {
        fn is_trusted(&self, url: &Url) -> bool {
            url.origin().ascii_serialization() == self.0
        }

        fn learn(&self) -> Learning<'_> {
            Box::pin(async {})
        }

        fn check_address(&self, _: SocketAddr) -> Result<(), String> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn only_an_origin_that_the_owner_chose_is_used_without_encryption() {
        let hub = "http://hub.example:8080";
        let parsed = |url: &str| Url::parse(url).expect("an address");
        let web = Web::new(parsed(hub), None, Some(Arc::new(Anywhere(hub)))).expect("a client");
        for permitted in
            ["http://hub.example:8080/o/r/resolve/main/f", "https://files.example/f", "https://192.0.2.1/f"]
        {
            web.client_for(&parsed(permitted)).await.expect(permitted);
        }
        for refused in
            ["http://hub.example/f", "http://files.example/f", "http://192.0.2.1/f", "http://[2001:db8::1]/f"]
        {
            let error = web.client_for(&parsed(refused)).await.expect_err(refused);
            assert!(error.to_string().contains("does not begin with https"), "{refused}: {error}");
        }
    }

    /// Permits no address.
    #[derive(Debug)]
    struct Nowhere;

    impl Destinations for Nowhere {
        fn is_trusted(&self, _: &Url) -> bool {
            false
        }

        fn learn(&self) -> Learning<'_> {
            Box::pin(async {})
        }

        fn check_address(&self, _: SocketAddr) -> Result<(), String> {
            Err("it is not permitted".to_owned())
        }
    }

    #[tokio::test]
    async fn a_server_that_cannot_be_reached_differs_from_one_that_cannot_be_used() {
        let parsed = |url: &str| Url::parse(url).expect("an address");
        let web = |destinations: Option<Arc<dyn Destinations>>| {
            Web::new(parsed("http://hub.example"), None, destinations).expect("a client")
        };
        // The port is taken, and nothing listens there.
        let taken = tokio::net::TcpSocket::new_v4().expect("a socket");
        taken.bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("bind");
        let url = parsed(&format!("http://{}/f", taken.local_addr().expect("an address")));
        let error = web(None).open(&url, 0, 1, None).await.expect_err("nothing listens");
        assert!(error.is_unreachable() && error.is_transient(), "{error:?}");

        // A server without encryption.
        let plain = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let url = parsed(&format!("https://{}/f", plain.local_addr().expect("an address")));
        let serving = tokio::spawn(async move {
            let (mut stream, _) = plain.accept().await.expect("accept");
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.expect("write");
            while stream.read(&mut [0; 1024]).await.is_ok_and(|read| read > 0) {}
        });
        let error = web(None).open(&url, 0, 1, None).await.expect_err("it does not encrypt");
        assert!(!error.is_unreachable() && error.is_transient(), "{error:?}");
        serving.abort();

        // A server whose answer is not HTTP.
        let other = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let url = parsed(&format!("http://{}/f", other.local_addr().expect("an address")));
        let serving = tokio::spawn(async move {
            let (mut stream, _) = other.accept().await.expect("accept");
            stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 18446744073709551615\r\n\r\n")
                .await
                .expect("write");
            while stream.read(&mut [0; 1024]).await.is_ok_and(|read| read > 0) {}
        });
        let error = web(None).open(&url, 0, 1, None).await.expect_err("no length is that large");
        assert!(!error.is_unreachable() && error.is_transient(), "{error:?}");
        serving.abort();

        // A name is resolved for the connection only.
        let url = parsed("https://localhost/f");
        let error = web(Some(Arc::new(Nowhere))).open(&url, 0, 1, None).await.expect_err("not permitted");
        assert!(
            matches!(&error, WebError::Forbidden { reason, .. } if reason == "it is not permitted"),
            "{error:?}"
        );
        assert!(!error.is_unreachable() && !error.is_transient());
    }

    #[test]
    fn an_unsatisfiable_range_shows_an_empty_or_shorter_file() {
        let classify = |named, start| classify(StatusCode::RANGE_NOT_SATISFIABLE, named, start, start + 10);
        assert_eq!(classify(Some("bytes */0"), 0), RangeResponse::Part { total: 0 });
        assert_eq!(classify(Some("bytes */50"), 50), RangeResponse::Shrunk);
        assert_eq!(classify(Some("bytes */0"), 50), RangeResponse::Shrunk);
        assert_eq!(classify(Some("bytes */51"), 50), RangeResponse::Other, "the part is inside");
        assert_eq!(classify(Some("bytes */51"), 0), RangeResponse::Other);
        assert_eq!(classify(Some("bytes 0-9/51"), 0), RangeResponse::Other);
        assert_eq!(classify(None, 0), RangeResponse::Other);
        assert_eq!(
            super::classify(StatusCode::PARTIAL_CONTENT, Some("bytes 0-9/*"), 0, 10),
            RangeResponse::Other
        );
        assert_eq!(super::classify(StatusCode::NO_CONTENT, None, 0, 10), RangeResponse::Other);
    }
}
