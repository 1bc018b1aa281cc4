//! Cookies of the console.
//!
//! Where browsers have TLS, the cookie of a session is for TLS only. A browser that came without it, by another address than the public
//! one, drops that cookie without a word. A second cookie, which it keeps, shows that this happened.

use axum::http::{HeaderMap, HeaderValue, header};

/// How cookies of this coordinator are named and sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cookies {
    /// Whether browsers reach the coordinator with TLS.
    pub is_encrypted: bool,
}

/// Name of the cookie that shows that a session was begun.
const BEGUN: &str = "island-signed-in";
/// Life of a session's cookie in seconds; the session itself may end earlier.
const SESSION_S: u32 = 14 * 24 * 3600;
/// Shows for this long that a session was begun.
const BEGUN_S: u32 = 60;
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

    /// Begins a session in the browser.
    pub(crate) fn begin_session(self, token: &str, headers: &mut HeaderMap) {
        append(headers, self.set_session(token));
        if self.is_encrypted {
            append(headers, cookie(BEGUN, "1", BEGUN_S, "Strict", false));
        }
    }

    /// Ends the session in the browser.
    pub(crate) fn end_session(self, headers: &mut HeaderMap) {
        append(headers, self.set_session(""));
        if self.is_encrypted {
            append(headers, cookie(BEGUN, "", 0, "Strict", false));
        }
    }

    /// Whether the browser dropped a session that was begun a moment ago.
    pub(crate) fn is_session_lost(self, headers: &HeaderMap) -> bool {
        self.is_encrypted && find(headers, BEGUN).is_some() && self.session(headers).is_none()
    }

    fn set_session(self, token: &str) -> Option<HeaderValue> {
        let age = if token.is_empty() { 0 } else { SESSION_S };
        self.set(self.session_name(), token, age, "Strict")
    }

    /// Sets what the sign-in ends with. The provider's site returns the browser, so `Strict` would withhold it.
    pub(crate) fn set_verifier(self, verifier: &str) -> Option<HeaderValue> {
        let age = if verifier.is_empty() { 0 } else { VERIFIER_S };
        self.set(self.verifier_name(), verifier, age, "Lax")
    }

    fn set(self, name: &str, value: &str, age: u32, same_site: &str) -> Option<HeaderValue> {
        cookie(name, value, age, same_site, self.is_encrypted)
    }
}

fn cookie(name: &str, value: &str, age: u32, same_site: &str, is_secure: bool) -> Option<HeaderValue> {
    let secure = if is_secure { "; Secure" } else { "" };
    let text = format!("{name}={value}; Path=/; Max-Age={age}; HttpOnly; SameSite={same_site}{secure}");
    HeaderValue::from_str(&text).ok()
}

fn append(headers: &mut HeaderMap, cookie: Option<HeaderValue>) {
    if let Some(cookie) = cookie {
        headers.append(header::SET_COOKIE, cookie);
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
    fn a_session_that_a_browser_dropped_is_known() {
        let sent = |cookies: Cookies, kept: fn(&str) -> bool| {
            let mut answer = HeaderMap::new();
            cookies.begin_session("abc", &mut answer);
            let set = answer.get_all(header::SET_COOKIE).iter().map(|cookie| cookie.to_str().expect("text"));
            let pairs: Vec<&str> =
                set.filter(|cookie| kept(cookie)).filter_map(|cookie| cookie.split(';').next()).collect();
            let pairs = HeaderValue::from_str(&pairs.join("; ")).expect("a header");
            HeaderMap::from_iter([(header::COOKIE, pairs)])
        };
        let (encrypted, plain) = (Cookies { is_encrypted: true }, Cookies { is_encrypted: false });
        let without_tls: fn(&str) -> bool = |cookie| !cookie.contains("Secure");
        assert!(encrypted.is_session_lost(&sent(encrypted, without_tls)));
        assert!(!encrypted.is_session_lost(&sent(encrypted, |_| true)));
        assert!(!plain.is_session_lost(&sent(plain, without_tls)));
        assert!(!encrypted.is_session_lost(&HeaderMap::new()), "nobody signed in");
        // A session that ended is not lost.
        let mut answer = HeaderMap::new();
        encrypted.end_session(&mut answer);
        let ended = answer.get_all(header::SET_COOKIE).iter().map(|cookie| cookie.to_str().expect("text"));
        let ended: Vec<&str> = ended.collect();
        assert!(ended.len() == 2 && ended.iter().all(|cookie| cookie.contains("Max-Age=0")), "{ended:?}");
    }

    #[test]
    fn cookies_are_found_among_others() {
        let mut headers = HeaderMap::new();
        headers.insert(header::COOKIE, HeaderValue::from_static("a=b; island-session=t0ken; c=d"));
        assert_eq!(Cookies { is_encrypted: false }.session(&headers), Some("t0ken"));
        assert_eq!(Cookies { is_encrypted: true }.session(&headers), None);
    }
}
