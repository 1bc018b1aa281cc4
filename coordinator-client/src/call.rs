//! One request, described so that it can be sent more than once, and how it is sent.

use std::time::Duration;

use bytes::Bytes;
use island_protocol_api::{PREFIX, problem::ErrorBody};
use reqwest::{
    Method, RequestBuilder, Response, Url,
    header::{CONTENT_TYPE, RETRY_AFTER},
    multipart::{Form, Part},
};
use serde::Serialize;
use uuid::Uuid;

use crate::{
    client::Client,
    error::{ClientError, Refusal},
};

/// Header that makes a POST safe to repeat.
const IDEMPOTENCY_KEY: &str = "Idempotency-Key";

/// Whether a request may be sent again when the result of the first try is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// It has the same effect however often it is sent.
    Safe,
    /// The caller decides.
    Never,
}

/// A file of a form.
#[derive(Debug, Clone)]
pub(crate) struct FilePart {
    pub(crate) field: &'static str,
    pub(crate) name: String,
    pub(crate) content: Bytes,
}

/// What a request carries.
#[derive(Debug, Clone)]
enum Body {
    Empty,
    Json(Bytes),
    /// `multipart/form-data`.
    Form {
        fields: Vec<(&'static str, String)>,
        file: FilePart,
    },
}

/// One request.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) what: &'static str,
    pub(crate) repeat: Repeat,
    /// Maximum time of one try including the body; `None` for streams.
    pub(crate) timeout: Option<Duration>,
    method: Method,
    path: Vec<String>,
    query: Vec<(&'static str, String)>,
    headers: Vec<(&'static str, String)>,
    body: Body,
    /// Whether the path is beside the API instead of below it.
    is_beside: bool,
}

impl Call {
    fn new(what: &'static str, method: Method, path: &[&str]) -> Self {
        Self {
            what,
            repeat: Repeat::Safe,
            timeout: None,
            method,
            path: path.iter().map(ToString::to_string).collect(),
            query: Vec::new(),
            headers: Vec::new(),
            body: Body::Empty,
            is_beside: false,
        }
    }

    pub(crate) fn get(what: &'static str, path: &[&str]) -> Self {
        Self::new(what, Method::GET, path)
    }

    pub(crate) fn delete(what: &'static str, path: &[&str]) -> Self {
        Self::new(what, Method::DELETE, path)
    }

    /// A POST that only the caller repeats.
    pub(crate) fn post(what: &'static str, path: &[&str], body: &impl Serialize) -> Self {
        let body = serde_json::to_vec(body).expect("wire types serialize into memory");
        let (body, repeat) = (Body::Json(body.into()), Repeat::Never);
        Self { repeat, body, ..Self::new(what, Method::POST, path) }
    }

    /// A POST of a form with a file that only the caller repeats.
    pub(crate) fn upload(
        what: &'static str,
        path: &[&str],
        fields: Vec<(&'static str, String)>,
        file: FilePart,
    ) -> Self {
        let (body, repeat) = (Body::Form { fields, file }, Repeat::Never);
        Self { repeat, body, ..Self::new(what, Method::POST, path) }
    }

    /// A POST that acts once however often it is sent, because it carries an `Idempotency-Key`.
    pub(crate) fn post_once(what: &'static str, path: &[&str], body: &impl Serialize) -> Self {
        Self::post(what, path, body).named(Uuid::new_v4().to_string())
    }

    /// Takes the path as one beside the API.
    pub(crate) fn beside_api(self) -> Self {
        Self { is_beside: true, ..self }
    }

    /// Marks the request as safe to repeat.
    pub(crate) fn harmless(self) -> Self {
        Self { repeat: Repeat::Safe, ..self }
    }

    /// Sets the `Idempotency-Key` of a POST.
    pub(crate) fn named(mut self, key: String) -> Self {
        self.headers.retain(|(name, _)| *name != IDEMPOTENCY_KEY);
        self.repeat = Repeat::Safe;
        self.header(IDEMPOTENCY_KEY, key)
    }

    pub(crate) fn header(mut self, name: &'static str, value: String) -> Self {
        self.headers.push((name, value));
        self
    }

    pub(crate) fn query(mut self, name: &'static str, value: Option<impl ToString>) -> Self {
        self.query.extend(value.map(|value| (name, value.to_string())));
        self
    }

    /// The address under `base`. Each path segment stays one segment, whatever its characters.
    fn url(&self, base: &Url) -> Url {
        let mut url = base.clone();
        let prefix = if self.is_beside { "" } else { PREFIX };
        if let Ok(mut segments) = url.path_segments_mut() {
            segments
                .pop_if_empty()
                .extend(prefix.split('/').filter(|part| !part.is_empty()))
                .extend(&self.path);
        }
        if !self.query.is_empty() {
            url.query_pairs_mut().extend_pairs(&self.query);
        }
        url
    }
}

impl Client {
    /// The whole body of a successful answer.
    pub(crate) async fn fetch(&self, call: &Call) -> Result<Bytes, ClientError> {
        let once = || async {
            let response = self.send_once(call).await?;
            response.bytes().await.map_err(|source| self.transport(call.what, source))
        };
        self.repeating(call, once).await
    }

    /// A successful answer whose body has not been read. A try counts as failed if no answer arrives within `limit`.
    pub(crate) async fn open(&self, call: &Call, limit: Duration) -> Result<Response, ClientError> {
        let once = || async {
            let opening = tokio::time::timeout(limit, self.send_once(call)).await;
            opening.unwrap_or_else(|_| Err(self.silent(call.what, limit)))
        };
        self.repeating(call, once).await
    }

    async fn repeating<T, F: Future<Output = Result<T, ClientError>>>(
        &self,
        call: &Call,
        attempt: impl Fn() -> F,
    ) -> Result<T, ClientError> {
        let mut backoff = self.rules().retry.start();
        loop {
            let error = match attempt().await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            if !error.should_retry(call.repeat) || !backoff.wait(error.retry_after()).await {
                return Err(error);
            }
            tracing::debug!(what = call.what, %error, "request failed; will retry");
        }
    }

    /// Sends a request. An answer that is not successful becomes an error.
    pub(crate) async fn send_once(&self, call: &Call) -> Result<Response, ClientError> {
        let mut request = self.http().request(call.method.clone(), call.url(self.base()));
        if let Some(key) = self.key() {
            request = request.header(reqwest::header::AUTHORIZATION, key.clone());
        }
        for (name, value) in &call.headers {
            request = request.header(*name, value);
        }
        request = match &call.body {
            Body::Empty => request,
            Body::Json(body) => request.header(CONTENT_TYPE, "application/json").body(body.clone()),
            Body::Form { fields, file } => request.multipart(form(fields, file)),
        };
        let response = self.answer_to(call, request).await?;
        if response.status().is_success() { Ok(response) } else { Err(self.failure(call, response).await) }
    }

    async fn answer_to(&self, call: &Call, request: RequestBuilder) -> Result<Response, ClientError> {
        let request = match call.timeout {
            Some(timeout) => request.timeout(timeout),
            None => request,
        };
        request.send().await.map_err(|source| self.transport(call.what, source))
    }

    pub(crate) fn transport(&self, what: &'static str, source: reqwest::Error) -> ClientError {
        ClientError::Transport { what, url: self.base_url().to_owned(), source: source.without_url() }
    }

    /// The error of a coordinator from which nothing arrived within `limit`.
    pub(crate) fn silent(&self, what: &'static str, limit: Duration) -> ClientError {
        ClientError::Silent { what, url: self.base_url().to_owned(), limit }
    }

    async fn failure(&self, call: &Call, response: Response) -> ClientError {
        let status = response.status().as_u16();
        let header = response.headers().get(RETRY_AFTER);
        let retry_after = header.and_then(|value| value.to_str().ok()?.trim().parse().ok());
        let retry_after = retry_after.map(Duration::from_secs);
        match response.text().await {
            Ok(text) => failure(call.what, status, retry_after, &text),
            Err(source) => self.transport(call.what, source),
        }
    }
}

/// A form can be sent once, so each try has one of its own; they share the file's content.
fn form(fields: &[(&'static str, String)], file: &FilePart) -> Form {
    let form = fields.iter().fold(Form::new(), |form, (name, value)| form.text(*name, value.clone()));
    let length = file.content.len() as u64;
    form.part(file.field, Part::stream_with_length(file.content.clone(), length).file_name(file.name.clone()))
}

/// The error in an answer that is not a success.
pub(crate) fn failure(
    what: &'static str,
    status: u16,
    retry_after: Option<Duration>,
    text: &str,
) -> ClientError {
    match serde_json::from_str::<ErrorBody>(text) {
        Ok(body) => ClientError::Refused(Box::new(Refusal::new(what, status, body.error, retry_after))),
        Err(_) => ClientError::NotOurs { what, status, excerpt: excerpt(text), retry_after },
    }
}

/// The first line of an unknown body helps more than nothing.
pub(crate) fn excerpt(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("nothing");
    line.chars().take(120).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_segment_stays_one_segment(id in "\\PC{1,12}") {
            prop_assume!(!matches!(id.as_str(), "." | ".."));
            let base = Url::parse("https://example.org/sub/").expect("address");
            let url = Call::get("read", &["workloads", &id]).url(&base);
            let segments: Vec<&str> = url.path_segments().expect("path").collect();
            prop_assert_eq!(segments.len(), 5);
            prop_assert_eq!(&segments[..4], ["sub", "api", "v1", "workloads"]);
            prop_assert!(url.query().is_none() && url.fragment().is_none());
        }
    }

    #[test]
    fn a_caller_may_set_the_idempotency_key() {
        let call = Call::post_once("submit", &["jobs"], &1).named("mine".into());
        assert_eq!(call.headers, [(IDEMPOTENCY_KEY, "mine".to_owned())]);
    }
}
