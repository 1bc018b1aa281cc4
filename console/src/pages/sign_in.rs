//! Signing in, with a key, an invitation, a link or a provider, and out.

use axum::{
    body::Body,
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header},
    response::{IntoResponse as _, Redirect, Response},
};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use island_protocol_api::signup::{FinishLogin, SignUp, SignedUp};
use rand::distr::{Alphanumeric, SampleString as _};
use sha2::{Digest as _, Sha256};

use crate::{
    backend::{ApiFailure, encoded},
    guard::is_own_navigation,
    session::{Begun, Provider, SignIn, paths},
    texts::{find, t},
    view::{Block, Cell, Field, Form, Kind, Tone},
    web::{Short, Visit, blocks_page, described, failed},
};

/// Characters of the verifier that a sign-in at a provider ends with.
const VERIFIER: usize = 64;
/// Maximum bytes of an address that a sign-in at a provider leads back to.
const MAX_NEXT: usize = 1024;

/// `GET /console/sign-in`. With `failed`, a sign-in at the provider ended without a session.
pub(super) async fn page(visit: Visit, headers: HeaderMap) -> Response {
    match visit.who().await {
        Ok(Some(_)) => Redirect::to(target(visit.param("next").unwrap_or_default())).into_response(),
        Ok(None) => {
            let (_, began_with) = without_next(visit.console.cookies.verifier(&headers).unwrap_or_default());
            let failure = visit.param("failed").map(failure_text);
            // The way that the person was on when the sign-in began is in its cookie.
            let began_with = if failure.is_some() { began_with.as_str() } else { "" };
            let next = visit.param("next").unwrap_or(began_with);
            let problem = failure.map(|text| (StatusCode::OK, text.to_owned()));
            form(&visit, problem, Entered { next, ..Entered::default() }).await
        }
        Err(failure) => failed(&visit, None, failure, "/"),
    }
}

/// The text of the reason for which a sign-in at a provider failed. Nothing of the address itself is shown: anybody can
/// make a link to this page.
fn failure_text(code: &str) -> &'static str {
    find(&format!("sign_in.failed_{code}")).unwrap_or(t("sign_in.failed"))
}

/// What is kept when the page is shown again.
#[derive(Debug, Clone, Copy, Default)]
struct Entered<'a> {
    email: &'a str,
    /// The code of an invitation.
    code: &'a str,
    /// Where the person goes after the sign-in.
    next: &'a str,
}

/// The page, with what was wrong before.
async fn show(visit: &Visit, failure: Option<ApiFailure>, entered: Entered<'_>) -> Response {
    let problem = match failure {
        Some(ApiFailure::Refused { problem, status }) => Some((status, described(&problem).0)),
        Some(failure) => return failed(visit, None, failure, "/"),
        None => None,
    };
    form(visit, problem, entered).await
}

/// The page, with a status and a text for what was wrong before.
async fn form(visit: &Visit, problem: Option<(StatusCode, String)>, entered: Entered<'_>) -> Response {
    let ways: SignIn = match visit.api.bare(paths::SIGN_IN).await {
        Ok(ways) => ways,
        Err(failure) => return failed(visit, None, failure, "/"),
    };
    let (status, text) = problem.unzip();
    let mut blocks: Vec<Block> = text.map(|text| Block::Notice(Tone::Bad, text)).into_iter().collect();
    if let Some(url) = visit.console.public_url.as_ref().filter(|_| visit.keeps_no_session) {
        blocks.push(Block::Notice(Tone::Warn, t("sign_in.unencrypted").to_owned()));
        blocks.push(Block::Links(vec![(format!("{url}/console/sign-in"), url.clone())]));
    }
    let next = || Field::hidden("next", entered.next);
    let key = Field::new("key", t("sign_in.key"), Kind::Secret).required().help(t("sign_in.key_help"));
    let mut panels = vec![Block::Panel(
        t("sign_in.with_key").to_owned(),
        vec![Block::Form(Form::post("/console/sign-in", t("account.sign_in"), vec![key, next()]))],
    )];
    let invitation = vec![
        Field::new("email", t("sign_in.email"), Kind::Email).required().value(entered.email),
        Field::line("code", t("sign_in.code")).required().value(entered.code),
    ];
    panels.push(Block::Panel(
        t("sign_in.with_invitation").to_owned(),
        vec![Block::Form(Form::post("/console/sign-in/invitation", t("sign_in.create"), invitation))],
    ));
    if ways.provider {
        panels.push(Block::Panel(
            t("sign_in.with_provider").to_owned(),
            vec![Block::Form(Form::post(
                "/console/sign-in/provider",
                t("sign_in.go_provider"),
                vec![next()],
            ))],
        ));
    }
    blocks.push(Block::Columns(panels));
    let mut response =
        blocks_page(visit.frame(t("sign_in.title"), None), t("sign_in.lead").to_owned(), blocks);
    *response.status_mut() = status.unwrap_or(StatusCode::OK);
    response
}

/// Where somebody who has signed in goes: to a page of the console only.
fn target(next: &str) -> &str {
    let is_own = next.starts_with("/console/") && !next.contains(['\\', '\r', '\n']) && !next.contains("//");
    if is_own && !next.starts_with("/console/sign-in") { next } else { "/console/chat" }
}

/// Sets the cookie. The browser goes on automatically: a redirect would be a part of what another site began, for which
/// browsers withhold the cookie.
fn signed_in(visit: &Visit, token: &str, next: &str) -> Response {
    let next = target(next);
    let mut response = continue_to(visit, next);
    visit.console.cookies.begin_session(token, response.headers_mut());
    response
}

fn continue_to(visit: &Visit, next: &str) -> Response {
    let blocks = vec![Block::Links(vec![(next.to_owned(), t("sign_in.continue").to_owned())])];
    let mut response = blocks_page(visit.frame(t("sign_in.done"), None), String::new(), blocks);
    if let Ok(value) = HeaderValue::from_str(&format!("0;url={next}")) {
        response.headers_mut().insert("refresh", value);
    }
    response
}

fn bearer(key: &str) -> Option<HeaderMap> {
    let mut value = HeaderValue::from_str(&format!("Bearer {key}")).ok()?;
    value.set_sensitive(true);
    Some(HeaderMap::from_iter([(header::AUTHORIZATION, value)]))
}

/// Begins a session for a key.
async fn begin(visit: &Visit, key: &str) -> Result<Begun, ApiFailure> {
    // Without a usable key, the API answers what is missing.
    let headers = bearer(key).unwrap_or_default();
    let api = visit.api.with_token(None);
    api.read(paths::BEGIN, api.send(Method::GET, paths::BEGIN, Body::empty(), &headers).await?).await
}

/// `POST /console/sign-in`: with a key.
pub(super) async fn with_key(visit: Visit, Short(posted): Short) -> Response {
    match begin(&visit, posted.get("key")).await {
        Ok(begun) => signed_in(&visit, &begun.token, posted.get("next")),
        Err(failure) => {
            let entered = Entered { next: posted.get("next"), ..Entered::default() };
            show(&visit, Some(failure), entered).await
        }
    }
}

/// `POST /console/sign-in/invitation`: creates an account. Its key is shown once.
pub(super) async fn with_invitation(visit: Visit, Short(posted): Short) -> Response {
    let request = SignUp { email: posted.get("email").to_owned(), code: posted.get("code").to_owned() };
    let signed_up: SignedUp = match visit.api.with_token(None).post("/signup", &request).await {
        Ok(signed_up) => signed_up,
        Err(failure) => {
            let [email, code] = ["email", "code"].map(|name| posted.get(name));
            let entered = Entered { email, code, ..Entered::default() };
            return show(&visit, Some(failure), entered).await;
        }
    };
    // Nobody else has the key: it is shown also if no session begins.
    let begun = begin(&visit, &signed_up.key).await.ok();
    let (next, text) = if begun.is_some() {
        ("/console/chat", t("sign_in.first_chat"))
    } else {
        ("/console/sign-in", t("account.sign_in"))
    };
    let blocks = vec![
        Block::Facts(vec![
            (t("account.email").to_owned(), Cell::text(signed_up.data.email)),
            (t("account.credits").to_owned(), Cell::Credits(signed_up.data.credits)),
        ]),
        Block::Copy(t("keys.secret").to_owned(), signed_up.key),
        Block::Links(vec![(next.to_owned(), text.to_owned())]),
    ];
    let mut response =
        blocks_page(visit.frame(t("sign_in.created"), None), t("keys.once").to_owned(), blocks);
    if let Some(begun) = begun {
        visit.console.cookies.begin_session(&begun.token, response.headers_mut());
    }
    response
}

/// `GET /console/sign-in/link?code=…`: uses a link up. A link on another site could sign a person in to an account that
/// is not theirs, so there the person confirms it.
pub(super) async fn link(visit: Visit, headers: HeaderMap) -> Response {
    let [code, next] = ["code", "next"].map(|name| visit.param(name).unwrap_or_default().to_owned());
    if is_own_navigation(&headers) {
        return take(&visit, &code, &next).await;
    }
    let fields = vec![Field::hidden("code", code), Field::hidden("next", next)];
    let form = Form::post("/console/sign-in/link", t("account.sign_in"), fields);
    blocks_page(visit.frame(t("sign_in.title"), None), t("sign_in.link").to_owned(), vec![Block::Form(form)])
}

/// `POST /console/sign-in/link`.
pub(super) async fn with_link(visit: Visit, Short(posted): Short) -> Response {
    take(&visit, posted.get("code"), posted.get("next")).await
}

async fn take(visit: &Visit, code: &str, next: &str) -> Response {
    let request = serde_json::json!({"code": code});
    match visit.api.with_token(None).post::<Begun>(paths::TAKE, &request).await {
        Ok(begun) => signed_in(visit, &begun.token, next),
        Err(failure) => show(visit, Some(failure), Entered { next, ..Entered::default() }).await,
    }
}

/// `POST /console/sign-in/provider`: sends the browser to the provider.
pub(super) async fn with_provider(visit: Visit, Short(posted): Short) -> Response {
    let next = posted.get("next");
    let verifier = Alphanumeric.sample_string(&mut rand::rng(), VERIFIER);
    let challenge = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.as_bytes()));
    let path = format!("{}?challenge={}", paths::PROVIDER, encoded(&challenge));
    let Provider { address } = match visit.api.with_token(None).bare(&path).await {
        Ok(provider) => provider,
        Err(failure) => {
            return show(&visit, Some(failure), Entered { next, ..Entered::default() }).await;
        }
    };
    // The policy for content forbids that a form leads to another address, so a page with a link does.
    let blocks = vec![Block::Links(vec![(address.clone(), t("sign_in.go_provider").to_owned())])];
    let mut response = blocks_page(visit.frame(t("sign_in.title"), None), String::new(), blocks);
    if let (Some(cookie), Ok(refresh)) = (
        visit.console.cookies.set_verifier(&with_next(&verifier, next)),
        HeaderValue::from_str(&format!("0;url={address}")),
    ) {
        response.headers_mut().append(header::SET_COOKIE, cookie);
        response.headers_mut().insert("refresh", refresh);
    }
    response
}

/// `GET /console/sign-in/provider/end?code=…`: the provider has confirmed the person.
pub(super) async fn provider_end(visit: Visit, headers: HeaderMap) -> Response {
    let code = visit.param("code").unwrap_or_default().to_owned();
    let (verifier, next) = without_next(visit.console.cookies.verifier(&headers).unwrap_or_default());
    let request = FinishLogin { code, verifier: verifier.to_owned() };
    let begun = match visit.api.with_token(None).post::<SignedUp>("/login", &request).await {
        Ok(finished) => begin(&visit, &finished.key).await,
        Err(failure) => Err(failure),
    };
    match begun {
        Ok(begun) => {
            let mut response = signed_in(&visit, &begun.token, &next);
            if let Some(cookie) = visit.console.cookies.set_verifier("") {
                response.headers_mut().append(header::SET_COOKIE, cookie);
            }
            response
        }
        Err(failure) => show(&visit, Some(failure), Entered { next: &next, ..Entered::default() }).await,
    }
}

/// What the cookie holds while a person is at the provider: the verifier, and where the person goes then.
fn with_next(verifier: &str, next: &str) -> String {
    // Browsers refuse cookies of more than 4 KiB.
    let next = if next.len() > MAX_NEXT { "" } else { next };
    format!("{verifier}.{}", BASE64_URL_SAFE_NO_PAD.encode(next))
}

fn without_next(cookie: &str) -> (&str, String) {
    let (verifier, next) = cookie.split_once('.').unwrap_or((cookie, ""));
    let next = BASE64_URL_SAFE_NO_PAD.decode(next).ok().and_then(|next| String::from_utf8(next).ok());
    (verifier, next.unwrap_or_default())
}

/// `POST /console/sign-out`: ends the session everywhere.
pub(super) async fn sign_out(visit: Visit) -> Response {
    if let Err(failure) = visit.api.post::<()>(paths::END, &()).await {
        return failed(&visit, None, failure, "/");
    }
    let mut response = Redirect::to("/").into_response();
    visit.console.cookies.end_session(response.headers_mut());
    // Conversations are kept in tabs. The script of this page removes its own; without TLS, browsers remove no others.
    if visit.console.cookies.is_encrypted {
        let storage = HeaderValue::from_static("\"storage\"");
        response.headers_mut().insert(HeaderName::from_static("clear-site-data"), storage);
    }
    response
}

/// `POST /console/links`, with a key: a program gets a link that signs a browser in.
pub(super) async fn offer(visit: Visit, headers: HeaderMap) -> Response {
    let of_key = headers.get(header::AUTHORIZATION).cloned();
    let headers: HeaderMap = of_key.map(|value| (header::AUTHORIZATION, value)).into_iter().collect();
    let answer = visit.api.with_token(None).send(Method::GET, paths::OFFER, Body::empty(), &headers).await;
    match answer {
        Ok(answer) => answer,
        Err(failure) => failed(&visit, None, failure, "/"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_page_survives_the_provider() {
        let next = "/console/jobs?status=failed&x=;,é";
        assert_eq!(without_next(&with_next("verifier", next)), ("verifier", next.to_owned()));
        assert_eq!(without_next("verifier"), ("verifier", String::new()));
        assert_eq!(without_next("verifier.***"), ("verifier", String::new()));
    }

    #[test]
    fn a_link_chooses_no_text() {
        assert_eq!(failure_text("expired"), t("sign_in.failed_expired"));
        for other in ["", "no_such_code", "<script>", "expired ", "../failed"] {
            assert_eq!(failure_text(other), t("sign_in.failed"), "{other}");
        }
    }

    #[test]
    fn people_stay_on_this_site() {
        assert_eq!(target("/console/jobs?offset=20"), "/console/jobs?offset=20");
        for other in [
            "",
            "https://evil.example.org",
            "//evil.example.org",
            "/console//evil",
            "/console/\\evil",
            "/docs",
        ] {
            assert_eq!(target(other), "/console/chat", "{other}");
        }
    }
}
