//! Cookies of the console.

use axum::http::{HeaderMap, HeaderValue, header};

/// How cookies of this coordinator are named and sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cookies {
    /// Whether browsers reach the coordinator with TLS.
    pub is_encrypted: bool,
}

/// Life of a session's cookie in seconds; the session itself may end earlier.
const SESSION_S: u32 = 14 * 24 * 3600;
/// Life of a sign-in at a provider.
const VERIFIER_S: u32 = 600;

impl Cookies {
    /// With the prefix, browsers accept the cookie from this host with TLS only.
    fn session_name(self) -> &'static str {
        if self.is_encrypted { "__Host-island-session" } else { "island-session" }
    }

    fn verifier_name(self) -> &'static str {
        if self.is_encrypted { "__Host-island-sign-in" } else { "island-sign-in" }
    }

    /// Token of the session of a request.
    pub(crate) fn session(self, headers: &HeaderMap) -> Option<&str> {
        find(headers, self.session_name())
    }

    /// What this browser proves with that it began a sign-in.
    pub(crate) fn verifier(self, headers: &HeaderMap) -> Option<&str> {
        find(headers, self.verifier_name())
    }

    /// Sets the session; an empty token removes it.
    pub(crate) fn set_session(self, token: &str) -> Option<HeaderValue> {
        let age = if token.is_empty() { 0 } else { SESSION_S };
        self.set(self.session_name(), token, age, "Strict")
    }

    /// Sets what the sign-in ends with. The provider's site returns the browser, so `Strict` would withhold it.
    pub(crate) fn set_verifier(self, verifier: &str) -> Option<HeaderValue> {
        let age = if verifier.is_empty() { 0 } else { VERIFIER_S };
        self.set(self.verifier_name(), verifier, age, "Lax")
    }

    fn set(self, name: &str, value: &str, age: u32, same_site: &str) -> Option<HeaderValue> {
        let secure = if self.is_encrypted { "; Secure" } else { "" };
        let text = format!("{name}={value}; Path=/; Max-Age={age}; HttpOnly; SameSite={same_site}{secure}");
        HeaderValue::from_str(&text).ok()
    }
}

fn find<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let pairs = headers.get_all(header::COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    let mut pairs = pairs.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(found, value)| *found == name && !value.is_empty()).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_kept_from_scripts_and_other_sites() {
        let plain = Cookies { is_encrypted: false };
        let set = plain.set_session("abc").expect("a header");
        assert_eq!(set, "island-session=abc; Path=/; Max-Age=1209600; HttpOnly; SameSite=Strict");
        let set = Cookies { is_encrypted: true }.set_session("abc").expect("a header");
        let set = set.to_str().expect("text");
        assert!(set.starts_with("__Host-island-session=abc;") && set.ends_with("; Secure"), "{set}");
    }

    #[test]
    fn cookies_are_found_among_others() {
        let mut headers = HeaderMap::new();
        headers.insert(header::COOKIE, HeaderValue::from_static("a=b; island-session=t0ken; c=d"));
        assert_eq!(Cookies { is_encrypted: false }.session(&headers), Some("t0ken"));
        assert_eq!(Cookies { is_encrypted: true }.session(&headers), None);
    }
}
