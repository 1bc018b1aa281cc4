//! What protects every page: the policy for its content, and the check that a change was requested by a page of this
//! console.

use axum::{
    extract::Request,
    http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header},
    middleware::Next,
    response::Response,
};
use island_console_blocks::static_files::POLICY;

use crate::{session::LINKS, texts::t, web::refused};

/// Refuses changes that other sites request, and adds the headers of all pages.
pub(crate) async fn guard(request: Request, next: Next) -> Response {
    let is_link = request.uri().path() == LINKS;
    // A request with a key is not a browser's.
    if !is_link && !may_change(request.method(), request.headers(), request.uri()) {
        return with_headers(refused(StatusCode::FORBIDDEN, t("error.other_site")));
    }
    with_headers(next.run(request).await)
}

fn with_headers(mut response: Response) -> Response {
    let headers = response.headers_mut();
    let mut add = |name: header::HeaderName, value: &'static str| {
        if !headers.contains_key(&name) {
            headers.insert(name, HeaderValue::from_static(value));
        }
    };
    add(header::CONTENT_SECURITY_POLICY, POLICY);
    add(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    add(header::REFERRER_POLICY, "same-origin");
    add(header::X_FRAME_OPTIONS, "DENY");
    add(header::CACHE_CONTROL, "no-store");
    add(header::HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
    add(header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
    response
}

/// Whether a request changes nothing, or was made by a page of this address. Browsers send at least one of the two
/// headers with every request that a form or a script makes; what has neither is refused.
fn may_change(method: &Method, headers: &HeaderMap, uri: &Uri) -> bool {
    if method.is_safe() {
        return true;
    }
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let (site, origin) = (text("sec-fetch-site"), text("origin"));
    if site.is_none() && origin.is_none() {
        return false;
    }
    let host = text("host").or_else(|| uri.authority().map(axum::http::uri::Authority::as_str));
    let is_own = |origin: &str| {
        let authority = origin.split_once("://").map(|(_, authority)| authority);
        authority.is_some() && authority == host
    };
    site.is_none_or(|site| site == "same-origin") && origin.is_none_or(is_own)
}

/// Whether a person opened an address by other means than a link on another site.
pub(crate) fn is_own_navigation(headers: &HeaderMap) -> bool {
    let site = headers.get("sec-fetch-site").map(|value| value.to_str().unwrap_or_default());
    site.is_none_or(|site| matches!(site, "none" | "same-origin"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn may(method: &Method, pairs: &[(&'static str, &'static str)]) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert("host", HeaderValue::from_static("island.example.org:8443"));
        for (name, value) in pairs {
            headers.insert(*name, HeaderValue::from_static(value));
        }
        may_change(method, &headers, &Uri::from_static("/console/keys"))
    }

    #[test]
    fn only_pages_of_this_address_change_something() {
        let own = "https://island.example.org:8443";
        assert!(may(&Method::GET, &[("sec-fetch-site", "cross-site")]));
        assert!(may(&Method::POST, &[("sec-fetch-site", "same-origin"), ("origin", own)]));
        assert!(may(&Method::POST, &[("origin", own)]), "older browsers send this one only");
        for refused in [
            &[][..],
            &[("sec-fetch-site", "same-site")],
            &[("sec-fetch-site", "cross-site"), ("origin", own)],
            &[("sec-fetch-site", "none")],
            &[("sec-fetch-site", "same-origin"), ("origin", "https://evil.example.org")],
            &[("origin", "null")],
            &[("origin", "https://island.example.org:8443.evil.example.org")],
            &[("origin", "https://island.example.org")],
        ] {
            assert!(!may(&Method::POST, refused), "{refused:?}");
        }
    }
}
