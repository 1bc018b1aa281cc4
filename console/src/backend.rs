//! Requests to the API in this process. They pass its router with all layers, so its checks of keys, rights and limits
//! hold for every page.

use axum::{
    Router,
    body::Body,
    http::{Extensions, HeaderMap, Method, Request, Response, StatusCode, header},
};
use bytes::Bytes;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use island_protocol_api::{
    Data, PREFIX, Page,
    problem::{ErrorBody, Problem},
};
use serde::{Serialize, de::DeserializeOwned};
use tower::ServiceExt as _;

use crate::on_behalf::OnBehalf;

/// Maximum bytes of an answer that a page is made of. The output of a job has at most 8 MiB.
const MAX_ANSWER: usize = 32 << 20;

/// Copies what a request to the API must have of the request to the console.
pub type Carry = fn(&Extensions, &mut Extensions);

/// The API.
#[derive(Debug, Clone)]
pub(crate) struct Backend {
    pub router: Router,
    pub carry: Carry,
}

/// Why the API gave no answer that a page can be made of.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiFailure {
    #[error("the API answered {status}: {}", problem.message)]
    Refused { status: StatusCode, problem: Box<Problem> },
    #[error("read the answer of the API to {path}")]
    Unreadable {
        path: String,
        #[source]
        source: serde_json::Error,
    },
    #[error("receive the answer of the API to {path}")]
    Incomplete {
        path: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("write the request to {path}")]
    Invalid {
        path: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl ApiFailure {
    /// The status with which the page is answered.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Refused { status, .. } => *status,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

/// Makes requests for one page.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    backend: Backend,
    of: OnBehalf,
    extensions: Extensions,
    /// Headers by which the API finds the address of the client.
    forwarded: HeaderMap,
}

impl Client {
    pub(crate) fn new(backend: Backend, of: OnBehalf, from: &Extensions, headers: &HeaderMap) -> Self {
        let mut extensions = Extensions::new();
        (backend.carry)(from, &mut extensions);
        let mut forwarded = HeaderMap::new();
        for value in headers.get_all("x-forwarded-for") {
            forwarded.append("x-forwarded-for", value.clone());
        }
        Self { backend, of, extensions, forwarded }
    }

    /// The same client, signed in or not with this token.
    pub(crate) fn with_token(&self, token: Option<&str>) -> Self {
        Self { of: OnBehalf::page(token), ..self.clone() }
    }

    /// A resource without an envelope.
    pub(crate) async fn bare<T: DeserializeOwned>(&self, path: &str) -> Result<T, ApiFailure> {
        self.read(path, self.send(Method::GET, path, Body::empty(), &HeaderMap::new()).await?).await
    }

    /// A resource whose answers have one form, whatever their status is.
    pub(crate) async fn either<T: DeserializeOwned>(&self, path: &str) -> Result<T, ApiFailure> {
        let answer = self.send(Method::GET, path, Body::empty(), &HeaderMap::new()).await?;
        let unreadable = |source| ApiFailure::Unreadable { path: path.to_owned(), source };
        serde_json::from_slice(&body(path, answer).await?).map_err(unreadable)
    }

    /// A resource, or a list.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ApiFailure> {
        Ok(self.bare::<Data<T>>(path).await?.data)
    }

    /// A page of a list.
    pub(crate) async fn page<T: DeserializeOwned>(&self, path: &str) -> Result<Page<T>, ApiFailure> {
        self.bare(path).await
    }

    /// Sends JSON; returns the answer without its envelope being removed.
    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ApiFailure> {
        self.post_with(path, body, HeaderMap::new()).await
    }

    /// The same with further headers.
    pub(crate) async fn post_with<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
        mut headers: HeaderMap,
    ) -> Result<T, ApiFailure> {
        let invalid = |source| ApiFailure::Invalid { path: path.to_owned(), source: Box::new(source) };
        let body = serde_json::to_vec(body).map_err(invalid)?;
        headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
        headers.insert(header::CONTENT_LENGTH, body.len().into());
        self.read(path, self.send(Method::POST, path, body.into(), &headers).await?).await
    }

    /// Deletes a resource.
    pub(crate) async fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, ApiFailure> {
        self.read(path, self.send(Method::DELETE, path, Body::empty(), &HeaderMap::new()).await?).await
    }

    /// The whole answer, which may be a stream.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Body,
        headers: &HeaderMap,
    ) -> Result<Response<Body>, ApiFailure> {
        // Routes of the API itself are named without their prefix.
        let uri = if path.starts_with("/internal/") { path.to_owned() } else { format!("{PREFIX}{path}") };
        let mut request = Request::builder()
            .method(method)
            .uri(uri)
            .body(body)
            .map_err(|source| ApiFailure::Invalid { path: path.to_owned(), source: Box::new(source) })?;
        request.headers_mut().extend(self.forwarded.clone());
        request.headers_mut().extend(headers.clone());
        *request.extensions_mut() = self.extensions.clone();
        request.extensions_mut().insert(self.of.clone());
        let answer = self.backend.router.clone().oneshot(request).await;
        Ok(answer.unwrap_or_else(|never| match never {}))
    }

    /// Reads an answer as JSON.
    pub(crate) async fn read<T: DeserializeOwned>(
        &self,
        path: &str,
        answer: Response<Body>,
    ) -> Result<T, ApiFailure> {
        let status = answer.status();
        let body = body(path, answer).await?;
        let unreadable = |source| ApiFailure::Unreadable { path: path.to_owned(), source };
        if status.is_success() {
            return serde_json::from_slice(&body).map_err(unreadable);
        }
        let refusal: ErrorBody = serde_json::from_slice(&body).map_err(unreadable)?;
        Err(ApiFailure::Refused { status, problem: Box::new(refusal.error) })
    }
}

/// The whole body of an answer.
async fn body(path: &str, answer: Response<Body>) -> Result<Bytes, ApiFailure> {
    let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
    let incomplete = |source| ApiFailure::Incomplete { path: path.to_owned(), source };
    Ok(body.map_err(incomplete)?.to_bytes())
}

/// Whether a body was refused because of its length.
pub(crate) fn is_too_long(error: &(dyn std::error::Error + 'static)) -> bool {
    error.is::<LengthLimitError>()
}

/// Encodes a value as a segment of a path, or as a value of a query.
pub(crate) fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            encoded.push(char::from(byte));
        } else {
            encoded.push('%');
            for half in [byte >> 4, byte & 15] {
                encoded.push(char::from_digit(half.into(), 16).unwrap_or('0').to_ascii_uppercase());
            }
        }
    }
    encoded
}

/// Adds a parameter to a path that has some already.
pub(crate) fn add_parameter(path: &mut String, name: &str, value: &str) {
    for part in ["&", name, "=", &encoded(value)] {
        path.push_str(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_cannot_leave_their_place() {
        assert_eq!(encoded("llm-chat_1.5~"), "llm-chat_1.5~");
        assert_eq!(encoded("../admin?x=1#y"), "..%2Fadmin%3Fx%3D1%23y");
        assert_eq!(encoded("é"), "%C3%A9");
    }
}
