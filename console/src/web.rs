//! What handlers share: the state, the person behind a request, and answers.

mod forms;
mod host;

use std::{collections::HashMap, sync::Arc};

use askama::Template;
use axum::{
    extract::{FromRequestParts, Query},
    http::{HeaderMap, HeaderValue, StatusCode, header, request::Parts},
    response::{IntoResponse, Redirect, Response},
};
use island_protocol_api::{key::Scope, problem::Problem};

pub(crate) use self::forms::Short;
use self::host::{is_unencrypted, origin};
use crate::{
    assets,
    backend::{ApiFailure, Backend, Client, encoded},
    cookie::Cookies,
    menu,
    on_behalf::OnBehalf,
    posted::{Posted, Refusal},
    session::{Who, paths},
    texts::{self, t},
    view::{Block, BlocksPage, Form, Frame, Tone, enter},
};

/// State of the handlers.
#[derive(Debug)]
pub(crate) struct Console {
    pub backend: Backend,
    pub cookies: Cookies,
    pub grafana: Option<String>,
    /// Address at which browsers reach the coordinator with TLS, if a proxy in front of it has the TLS.
    pub public_url: Option<String>,
}

/// A request, of somebody who may be signed in.
#[derive(Debug)]
pub(crate) struct Visit {
    pub console: Arc<Console>,
    pub api: Client,
    pub has_token: bool,
    pub path: String,
    pub query: HashMap<String, String>,
    /// Whether htmx replaces a part of an open page.
    pub is_partial: bool,
    /// Address of this network as the browser has it, without a path.
    pub origin: String,
    /// Whether the browser keeps no session, because it has no TLS.
    pub keeps_no_session: bool,
    pub refusal: Option<Refusal>,
}

impl FromRequestParts<Arc<Console>> for Visit {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, console: &Arc<Console>) -> Result<Self, Response> {
        let token = console.cookies.session(&parts.headers);
        let of = OnBehalf::page(token);
        let api = Client::new(console.backend.clone(), of, &parts.extensions, &parts.headers);
        // A malformed query is as good as none.
        let query = Query::<HashMap<String, String>>::try_from_uri(&parts.uri);
        Ok(Self {
            console: console.clone(),
            api,
            has_token: token.is_some(),
            path: parts.uri.path().to_owned(),
            query: query.map(|Query(query)| query).unwrap_or_default(),
            is_partial: parts.headers.contains_key("hx-request"),
            origin: origin(parts, console.cookies.is_encrypted),
            keeps_no_session: console.cookies.is_session_lost(&parts.headers)
                || console.public_url.as_deref().is_some_and(|url| is_unencrypted(parts, url)),
            refusal: None,
        })
    }
}

impl Visit {
    /// A parameter of the query that is not empty.
    pub(crate) fn param(&self, name: &str) -> Option<&str> {
        self.query.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Number of entries to skip in a list.
    pub(crate) fn offset(&self) -> u64 {
        self.param("offset").and_then(|offset| offset.parse().ok()).unwrap_or(0)
    }

    /// The account, for a page that everybody may read: a suspended account reads it like a visitor.
    pub(crate) async fn who(&self) -> Result<Option<Who>, ApiFailure> {
        match self.session().await {
            Err(failure) if failure.status() == StatusCode::FORBIDDEN => Ok(None),
            session => session,
        }
    }

    /// The account, if somebody is signed in. A session that has ended is the same as none.
    async fn session(&self) -> Result<Option<Who>, ApiFailure> {
        if !self.has_token {
            return Ok(None);
        }
        match self.api.bare(paths::WHO).await {
            Ok(who) => Ok(Some(who)),
            Err(ApiFailure::Refused { status: StatusCode::UNAUTHORIZED, .. }) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// The frame of a page.
    pub(crate) fn frame(&self, title: impl Into<String>, who: Option<&Who>) -> Frame {
        let done = self.param("done").and_then(|done| texts::find(&format!("done.{done}")));
        let is_reader = who.is_some_and(|who| !who.scopes.contains(&Scope::Write));
        let done = done.map(|text| (Tone::Good, text.to_owned()));
        let reader = is_reader.then(|| (Tone::Plain, t("account.read_only").to_owned()));
        Frame {
            notices: done.into_iter().chain(reader).collect(),
            refusal: self.refusal.clone(),
            ..frame(&self.path, title, who)
        }
    }
}

fn frame(path: &str, title: impl Into<String>, who: Option<&Who>) -> Frame {
    Frame {
        title: title.into(),
        description: String::new(),
        assets: assets::folder(),
        groups: menu::groups(path, who),
        account: who.map(|who| (who.email.clone(), who.credits)),
        notices: Vec::new(),
        refusal: None,
        scripts: Vec::new(),
        has_plots: false,
        has_htmx: false,
        is_wide: false,
    }
}

/// A request of somebody who is signed in. Others are sent to the page on which they sign in.
#[derive(Debug)]
pub(crate) struct Member {
    pub visit: Visit,
    pub who: Who,
}

impl FromRequestParts<Arc<Console>> for Member {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, console: &Arc<Console>) -> Result<Self, Response> {
        let visit = Visit::from_request_parts(parts, console).await?;
        let target = parts.uri.path_and_query().map_or(visit.path.as_str(), |target| target.as_str());
        let mut response = match visit.session().await {
            Ok(Some(who)) => return Ok(Self { visit, who }),
            // A part of a page must not get another page.
            Ok(None) if visit.is_partial => (StatusCode::UNAUTHORIZED, t("sign_in.ended")).into_response(),
            // What was entered is lost, so the person learns it here.
            Ok(None) if !parts.method.is_safe() => ended(&visit, referring_page(&parts.headers)),
            Ok(None) => Redirect::to(&format!("/console/sign-in?next={}", encoded(target))).into_response(),
            Err(failure) if failure.status() == StatusCode::FORBIDDEN => {
                return Err(suspended(&visit, failure));
            }
            Err(failure) => return Err(failed(&visit, None, failure, "/")),
        };
        // Otherwise each further request would count as one with an invalid key.
        if visit.has_token {
            console.cookies.end_session(response.headers_mut());
        }
        Err(response)
    }
}

/// The path of the page from which a request was made.
fn referring_page(headers: &HeaderMap) -> &str {
    let referrer = headers.get(header::REFERER).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let rest = referrer.split_once("://").map_or("", |(_, rest)| rest);
    rest.find('/').map_or("", |at| &rest[at..])
}

/// The page for a change that was requested after the session had ended.
fn ended(visit: &Visit, next: &str) -> Response {
    let sign_in = format!("/console/sign-in?next={}", encoded(next));
    let blocks = vec![
        Block::Notice(Tone::Warn, t("sign_in.ended").to_owned()),
        Block::Links(vec![(sign_in, t("account.sign_in").to_owned())]),
    ];
    let mut response = blocks_page(visit.frame(t("error.refused"), None), String::new(), blocks);
    *response.status_mut() = StatusCode::UNAUTHORIZED;
    response
}

/// The page for a session that the API refuses, such as that of a suspended account: with the reason, and a way out.
fn suspended(visit: &Visit, failure: ApiFailure) -> Response {
    let message = match failure {
        ApiFailure::Refused { problem, .. } => described(&problem).0,
        _ => t("error.internal").to_owned(),
    };
    let sign_out = Form::button("/console/sign-out", t("account.sign_out"), t("account.sign_out"));
    let blocks = vec![Block::Notice(Tone::Bad, message), Block::Form(sign_out)];
    let mut response = blocks_page(visit.frame(t("error.forbidden"), None), String::new(), blocks);
    *response.status_mut() = StatusCode::FORBIDDEN;
    response
}

/// A page for a request that is refused before it is known whose it is.
pub(crate) fn refused(status: StatusCode, message: &str) -> Response {
    let blocks = vec![
        Block::Notice(Tone::Bad, message.to_owned()),
        Block::Links(vec![("/console".to_owned(), t("error.back").to_owned())]),
    ];
    let mut response = blocks_page(frame("", t("error.refused"), None), String::new(), blocks);
    *response.status_mut() = status;
    response
}

impl Member {
    pub(crate) fn frame(&self, title: impl Into<String>) -> Frame {
        self.visit.frame(title, Some(&self.who))
    }

    /// A page of blocks.
    pub(crate) fn page(
        &self,
        title: impl Into<String>,
        lead: impl Into<String>,
        blocks: Vec<Block>,
    ) -> Response {
        blocks_page(self.frame(title), lead.into(), blocks)
    }

    /// The page with the form that requested what the API refused, with the reason and what was entered; or the page for another failure,
    /// with a way back.
    pub(crate) async fn again<F: Future<Output = Response>>(
        mut self,
        failure: ApiFailure,
        entered: Posted,
        back: &str,
        page: impl FnOnce(Self) -> F,
    ) -> Response {
        match failure {
            ApiFailure::Refused { status, problem }
                if status.is_client_error() && status != StatusCode::UNAUTHORIZED =>
            {
                let (message, details) = described(&problem);
                let action = self.visit.path.clone();
                self.visit.refusal = Some(Refusal { status, message, details, action, entered });
                // The requests of a page make it large, and most forms are not refused.
                Box::pin(page(self)).await
            }
            failure => self.failed(failure, back),
        }
    }

    /// Links to dashboards in Grafana, each with its id, for an operator of a network that has any.
    pub(crate) fn dashboards(&self, dashboards: &[(&str, &str)]) -> Option<Block> {
        let grafana = self.visit.console.grafana.as_ref()?.trim_end_matches('/');
        let link = |(id, text): &(&str, &str)| (format!("{grafana}/d/{id}"), t(text).to_owned());
        Some(Block::Links(dashboards.iter().map(link).collect()))
    }

    /// The page for what the API refused, with a way back.
    pub(crate) fn failed(&self, failure: ApiFailure, back: &str) -> Response {
        failed(&self.visit, Some(&self.who), failure, back)
    }
}

/// A page of blocks, with the scripts that its blocks need.
pub(crate) fn blocks_page(mut frame: Frame, lead: String, mut blocks: Vec<Block>) -> Response {
    let refusal = frame.refusal.take();
    if let Some(Refusal { message, details, action, entered, .. }) = &refusal {
        enter(&mut blocks, action, &|name| entered.raw(name).map(str::to_owned));
        let details = details.iter().cloned().map(Block::Text);
        let notice = std::iter::once(Block::Notice(Tone::Bad, message.clone()));
        drop(blocks.splice(..0, notice.chain(details)));
    }
    frame.has_plots |= any(&blocks, &|block| matches!(block, Block::Plot(_)));
    frame.has_htmx |= any(&blocks, &is_read_again);
    let mut response = html(&BlocksPage { frame, lead, blocks });
    if let Some(refusal) = refusal {
        *response.status_mut() = refusal.status;
    }
    response
}

fn is_read_again(block: &Block) -> bool {
    match block {
        Block::Table(table) => table.refresh.is_some(),
        Block::Live(_) => true,
        _ => false,
    }
}

fn any(blocks: &[Block], holds: &dyn Fn(&Block) -> bool) -> bool {
    blocks.iter().any(|block| {
        holds(block)
            || match block {
                Block::Fold(_, inner) | Block::Panel(_, inner) | Block::Columns(inner) => any(inner, holds),
                Block::Live(live) => any(&live.blocks, holds),
                _ => false,
            }
    })
}

/// Renders a template.
pub(crate) fn html(page: &impl Template) -> Response {
    match page.render() {
        Ok(text) => ([(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"))], text)
            .into_response(),
        Err(error) => {
            tracing::error!(%error, "a page of the console cannot be rendered");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// Leads to a page that shows what was done.
pub(crate) fn done(address: &str, what: &str) -> Response {
    let separator = if address.contains('?') { '&' } else { '?' };
    Redirect::to(&format!("{address}{separator}done={what}")).into_response()
}

/// The page for a failure.
pub(crate) fn failed(visit: &Visit, who: Option<&Who>, failure: ApiFailure, back: &str) -> Response {
    let status = failure.status();
    if status == StatusCode::UNAUTHORIZED && who.is_some() {
        return Redirect::to("/console/sign-in").into_response();
    }
    let (message, details) = match failure {
        ApiFailure::Refused { problem, .. } => described(&problem),
        failure => {
            tracing::error!(error = &failure as &dyn std::error::Error, "a page of the console failed");
            (t("error.internal").to_owned(), Vec::new())
        }
    };
    let title = match status {
        StatusCode::NOT_FOUND => t("error.not_found"),
        StatusCode::FORBIDDEN => t("error.forbidden"),
        status if status.is_server_error() => t("error.server"),
        _ => t("error.refused"),
    };
    let mut blocks = vec![Block::Notice(Tone::Bad, message)];
    blocks.extend(details.into_iter().map(Block::Text));
    blocks.push(Block::Links(vec![(back.to_owned(), t("error.back").to_owned())]));
    let mut response = blocks_page(visit.frame(title, who), String::new(), blocks);
    *response.status_mut() = status;
    response
}

/// The page for an address that leads nowhere, or nowhere for this person.
pub(crate) fn not_found(visit: &Visit, who: Option<&Who>) -> Response {
    let back = Block::Links(vec![("/".to_owned(), t("nav.home").to_owned())]);
    let frame = visit.frame(t("error.not_found"), who);
    let mut response = blocks_page(frame, t("error.no_page").to_owned(), vec![back]);
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}

/// A problem for people: its message, and those of its parts.
pub(crate) fn described(problem: &Problem) -> (String, Vec<String>) {
    let mut message = problem.message.clone();
    if let Some(id) = &problem.request_id {
        message.push_str(&texts::fill("error.request", &[("id", id)]));
    }
    let details = problem.details.iter();
    (message, details.map(|detail| format!("{}: {}", detail.line, detail.message)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_referring_page_is_a_path() {
        let of = |referrer: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::REFERER, HeaderValue::from_static(referrer));
            referring_page(&headers).to_owned()
        };
        assert_eq!(of("https://island.example.org:8443/console/keys?x=1"), "/console/keys?x=1");
        assert_eq!((of("https://island.example.org"), of("console")), (String::new(), String::new()));
        assert_eq!(referring_page(&HeaderMap::new()), "");
    }

    #[tokio::test]
    async fn a_refused_form_is_shown_with_its_reason_and_what_was_entered() {
        let refusal = Refusal {
            status: StatusCode::CONFLICT,
            message: "too much".to_owned(),
            details: vec!["line 1: why".to_owned()],
            action: "/console/x".to_owned(),
            entered: Posted::of(&[("reason", "a gift")]),
        };
        let form = Form::post("/console/x", "Send", vec![crate::view::Field::reason()]);
        let frame = Frame { refusal: Some(refusal), ..frame("/console/x", "X", None) };
        let response = blocks_page(frame, String::new(), vec![Block::Form(form)]);
        assert_eq!(response.status(), StatusCode::CONFLICT);
        let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.expect("a page");
        let html = String::from_utf8(body.to_vec()).expect("text");
        for part in ["too much", "line 1: why", "value=\"a gift\""] {
            assert!(html.contains(part), "{part}: {html}");
        }
    }
}
