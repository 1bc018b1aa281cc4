//! What the answer of a server means that refuses a request: how long to wait, and what an owner can do.

use std::time::{Duration, SystemTime};

use reqwest::{
    StatusCode, Url,
    header::{self, HeaderMap, HeaderName},
};

/// Time to wait if a server accepts no more requests and does not name a time: hubs count in windows of some minutes.
const USUAL_WAIT: Duration = Duration::from_mins(1);
/// Maximum time to wait, whatever a server names.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_hours(24);

/// How long a server accepts no more requests, at most a day; `None` if it is not about that.
///
/// Reads `Retry-After` in both of its forms, and the `t` of a `RateLimit` whose rest `r` is zero.
pub(crate) fn wait(status: StatusCode, headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let named = text(headers, &header::RETRY_AFTER).and_then(|after| retry_after(after, now));
    let time = match status {
        StatusCode::TOO_MANY_REQUESTS => {
            let window = || text(headers, &HeaderName::from_static("ratelimit")).and_then(rate_limit);
            Some(named.or_else(window).unwrap_or(USUAL_WAIT))
        }
        StatusCode::SERVICE_UNAVAILABLE => named,
        _ => None,
    };
    time.map(|time| time.min(LONGEST_WAIT))
}

fn text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

/// Seconds, or a date.
fn retry_after(text: &str, now: SystemTime) -> Option<Duration> {
    if let Ok(seconds) = text.trim().parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    Some(date.duration_since(now).unwrap_or_default())
}

/// The time until the window ends: `"resolvers";r=0;t=57`.
fn rate_limit(text: &str) -> Option<Duration> {
    let number = |name: &str| {
        let mut parameters = text.split(';').map(str::trim);
        parameters.find_map(|parameter| parameter.strip_prefix(name)?.strip_prefix('=')?.parse::<u64>().ok())
    };
    (number("r") == Some(0)).then(|| number("t").map(Duration::from_secs)).flatten()
}

/// Why a hub refuses the file or list at `url`, and what an owner can do. `None` if it gives no known reason.
pub(crate) fn reason(url: &Url, headers: &HeaderMap, has_token: bool) -> Option<String> {
    let code = text(headers, &HeaderName::from_static("x-error-code"))?;
    let Place { page, revision, file } = Place::of(url)?;
    Some(match code {
        "GatedRepo" if has_token => {
            format!(
                "the account of this Island's token has not accepted the terms of {page}, or waits for its publisher"
            )
        }
        "GatedRepo" => format!(
            "its publisher requires an account that accepted the terms of {page}: accept them there, and put a token of that account into \
             the file that cache.hub_token_file names, or into HF_TOKEN"
        ),
        "RepoNotFound" if has_token => {
            format!("{page} does not exist, or this Island's token may not read it")
        }
        "RepoNotFound" => {
            format!("{page} does not exist, or is private: reading it needs a token in HF_TOKEN")
        }
        "EntryNotFound" => format!("{page} has no file {} at {revision}", file.unwrap_or_default()),
        "RevisionNotFound" => format!("{page} has no revision {revision}"),
        _ => return None,
    })
}

/// What an address of a hub names.
struct Place {
    /// Address of the page of the repository.
    page: String,
    revision: String,
    file: Option<String>,
}

impl Place {
    /// Reads `…/OWNER/REPO/resolve/REVISION/FILE` and `…/api/models/OWNER/REPO[/revision/REVISION]`.
    fn of(url: &Url) -> Option<Self> {
        let parts: Vec<&str> = url.path_segments()?.filter(|part| !part.is_empty()).collect();
        let at = |name: &str| parts.iter().position(|part| *part == name);
        let (prefix, name, rest) =
            if let Some(api) = at("api").filter(|api| parts.get(api + 1) == Some(&"models")) {
                (&parts[..api], parts.get(api + 2..api + 4)?, parts.get(api + 4..)?)
            } else {
                let resolve = at("resolve").filter(|resolve| *resolve >= 2)?;
                (&parts[..resolve - 2], &parts[resolve - 2..resolve], &parts[resolve..])
            };
        let mut page = url.origin().ascii_serialization();
        for part in prefix.iter().chain(name) {
            page.push('/');
            page.push_str(part);
        }
        let revision = rest.get(1).map_or("main", |revision| *revision).to_owned();
        let file = rest.get(2..).filter(|file| !file.is_empty()).map(|file| file.join("/"));
        Some(Self { page, revision, file })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use reqwest::header::HeaderValue;
    use tokio::time::Instant;

    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn times_are_read_in_every_form() {
        let now = httpdate::parse_http_date("Thu, 26 Nov 2026 12:00:00 GMT").expect("a date");
        let (many, away) = (StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE);
        for (status, pairs, seconds) in [
            (many, &[("retry-after", "113")][..], Some(113)),
            (away, &[("retry-after", " 2 ")], Some(2)),
            (many, &[("retry-after", "Thu, 26 Nov 2026 12:05:00 GMT")], Some(300)),
            (many, &[("retry-after", "Thu, 26 Nov 2026 11:05:00 GMT")], Some(0)),
            (many, &[("ratelimit", "\"resolvers\";r=0;t=57")], Some(57)),
            (many, &[("ratelimit", "\"resolvers\"; r=0; t=57"), ("retry-after", "9")], Some(9)),
            (many, &[("ratelimit", "\"resolvers\";r=3;t=57")], Some(60)),
            (many, &[("retry-after", "soon")], Some(60)),
            (many, &[("retry-after", "18446744073709551615")], Some(86_400)),
            (away, &[("retry-after", "Fri, 31 Dec 9999 23:59:59 GMT")], Some(86_400)),
            (many, &[("ratelimit", "r=0;t=18446744073709551615")], Some(86_400)),
            (many, &[], Some(60)),
            (away, &[], None),
            (away, &[("ratelimit", "\"resolvers\";r=0;t=57")], None),
            (StatusCode::NOT_FOUND, &[("retry-after", "113")], None),
        ] {
            assert_eq!(
                wait(status, &headers(pairs), now),
                seconds.map(Duration::from_secs),
                "{status} {pairs:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn every_wait_can_be_added_to_the_clock(
            bits in any::<u64>(),
            shift in 0_u32..64,
            is_of_window in any::<bool>(),
        ) {
            let seconds = bits >> shift;
            let (name, value) = if is_of_window {
                (HeaderName::from_static("ratelimit"), format!("r=0;t={seconds}"))
            } else {
                (header::RETRY_AFTER, seconds.to_string())
            };
            let value = HeaderValue::from_str(&value).expect("a value");
            let headers = [(name, value)].into_iter().collect();
            let time = wait(StatusCode::TOO_MANY_REQUESTS, &headers, SystemTime::UNIX_EPOCH).expect("a time");
            prop_assert_eq!(time, Duration::from_secs(seconds).min(LONGEST_WAIT));
            prop_assert!(Instant::now().checked_add(time).is_some());
        }
    }

    #[test]
    fn reasons_name_the_page_and_what_to_do() {
        let file = "https://hub.example/o/r/resolve/main/a/b.gguf".parse().expect("an address");
        let list = "https://hub.example/mirror/api/models/o/r/revision/v1".parse().expect("an address");
        for (url, code, has_token, parts) in [
            (&file, "GatedRepo", false, &["https://hub.example/o/r:", "hub_token_file", "HF_TOKEN"][..]),
            (&file, "GatedRepo", true, &["has not accepted the terms of https://hub.example/o/r,"]),
            (&list, "RepoNotFound", false, &["https://hub.example/mirror/o/r does not exist, or is private"]),
            (&file, "EntryNotFound", true, &["https://hub.example/o/r has no file a/b.gguf at main"]),
            (&list, "RevisionNotFound", true, &["https://hub.example/mirror/o/r has no revision v1"]),
        ] {
            let code = HeaderValue::from_static(code);
            let headers = [(HeaderName::from_static("x-error-code"), code)].into_iter().collect();
            let reason = reason(url, &headers, has_token).expect("a reason");
            assert!(parts.iter().all(|part| reason.contains(part)), "{reason}");
        }
        assert_eq!(reason(&file, &headers(&[("x-error-code", "<script>")]), false), None);
        assert_eq!(reason(&file, &headers(&[]), false), None);
        let elsewhere = "https://cdn.example/bytes/1".parse().expect("an address");
        assert_eq!(reason(&elsewhere, &headers(&[("x-error-code", "GatedRepo")]), false), None);
    }
}
