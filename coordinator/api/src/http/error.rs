//! The error type of handlers: a stable code, a message for people, and a cause that is only logged.

use std::error::Error;

use axum::{
    Json,
    http::{HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use island_daemon::chain::Chain;
use island_protocol::credits::MicroCredits;
use island_protocol_api::problem::{Code, Detail, ErrorBody, Problem};

use serde_json::{Value, json};

use crate::http::observe;
use island_coordinator_storage::StoreError;

/// Whether clients of OpenAI and of Anthropic are to repeat a request; without it, the status decides.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// An answer that is an error.
#[derive(Debug)]
pub struct ApiError {
    code: Code,
    message: String,
    param: Option<String>,
    retry_after: Option<u64>,
    /// Whether a repeated request is undesired, whatever the code.
    is_final: bool,
    /// Required and available credits.
    credits: Option<Box<(MicroCredits, MicroCredits)>>,
    /// Problems of a manifest.
    details: Vec<Detail>,
    /// Logged, never sent to the client.
    cause: Option<Box<dyn Error + Send + Sync>>,
    form: Form,
}

/// The form of an error's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Own,
    /// With a `type`.
    OpenAi,
    /// With a `type`, in an object of the type `error`.
    Anthropic,
}

impl ApiError {
    /// An error of this code.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        let retry_after = match code.status() {
            503 => Some(2),
            409 if code == Code::IdempotencyInProgress => Some(1),
            429 => Some(1),
            _ => None,
        };
        Self {
            code,
            message: message.into(),
            param: None,
            retry_after,
            is_final: false,
            credits: None,
            details: Vec::new(),
            cause: None,
            form: Form::Own,
        }
    }

    /// The code.
    pub(crate) fn code(&self) -> Code {
        self.code
    }

    /// An error about one field.
    pub(crate) fn field(code: Code, param: impl Into<String>, message: impl Into<String>) -> Self {
        Self { param: Some(param.into()), ..Self::new(code, message) }
    }

    /// The price exceeds the available credits.
    pub(crate) fn credits(message: impl Into<String>, needed: MicroCredits, available: MicroCredits) -> Self {
        Self { credits: Some(Box::new((needed, available))), ..Self::new(Code::InsufficientCredits, message) }
    }

    /// Adds the problems of a manifest.
    pub(crate) fn with_details(self, details: Vec<Detail>) -> Self {
        Self { details, ..self }
    }

    /// Sets the seconds after which the client may retry.
    pub(crate) fn after(self, seconds: u64) -> Self {
        Self { retry_after: Some(seconds), ..self }
    }

    /// Leaves out `Retry-After`: another try soon would fail in the same way.
    pub(crate) fn without_retry(self) -> Self {
        Self { retry_after: None, ..self }
    }

    /// Asks clients not to repeat the request automatically.
    pub(crate) fn never_repeated(self) -> Self {
        Self { is_final: true, retry_after: None, ..self }
    }

    /// A bug, or a database that cannot be used.
    pub(crate) fn internal(cause: impl Error + Send + Sync + 'static) -> Self {
        Self { cause: Some(Box::new(cause)), ..Self::new(Code::InternalError, "internal error") }
    }

    /// Adds the `type` that clients of the OpenAI API expect.
    pub(crate) fn in_openai_form(self) -> Self {
        Self { form: Form::OpenAi, ..self }
    }

    /// Adds what clients of Anthropic's API expect.
    pub(crate) fn in_anthropic_form(self) -> Self {
        Self { form: Form::Anthropic, ..self }
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> Value {
        let mut body = json!(self.body());
        if self.form == Form::Anthropic {
            body["type"] = json!("error");
        }
        body
    }

    /// Whether another try soon would end in the same way, although clients repeat requests whose answers have its status. A job that
    /// reached its time limit is charged for what it delivered, each time.
    fn would_recur(&self) -> bool {
        match self.code {
            Code::JobTimeout | Code::QuotaExceeded => true,
            code => self.is_final || (code.status() == 503 && self.retry_after.is_none()),
        }
    }

    /// Logs the error if the fault is the server's. Returns the id of the request then.
    pub(crate) fn log(&self) -> Option<String> {
        let request_id = (self.code.status() >= 500).then(|| observe::request_id().to_string());
        // Maintenance is announced, and every refusal would repeat its reason.
        if let Some(request_id) = request_id.as_ref().filter(|_| self.code != Code::Maintenance) {
            let cause =
                self.cause.as_ref().map(|cause| Chain(cause.as_ref()).to_string()).unwrap_or_default();
            tracing::warn!(
                request_id,
                code = self.code.as_str(),
                message = self.message,
                cause,
                "request failed"
            );
        }
        request_id
    }

    /// The body, with the id of the request if the fault is the server's.
    pub(crate) fn body(&self) -> ErrorBody {
        let request_id = self.log();
        ErrorBody {
            error: Problem {
                message: self.message.clone(),
                code: self.code.as_str().to_owned(),
                param: self.param.clone(),
                retry_after: self.retry_after,
                required: self.credits.as_ref().map(|credits| credits.0),
                available: self.credits.as_ref().map(|credits| credits.1),
                request_id,
                details: self.details.clone(),
                kind: (self.form != Form::Own).then(|| kind(self.form, self.code.status()).to_owned()),
            },
        }
    }
}

/// The type of an error in the API of another.
fn kind(form: Form, status: u16) -> &'static str {
    match (status, form) {
        (401, _) => "authentication_error",
        (402, Form::Anthropic) => "billing_error",
        (402, _) => "insufficient_quota",
        (403, _) => "permission_error",
        (404, _) => "not_found_error",
        (413, Form::Anthropic) => "request_too_large",
        (429, _) => "rate_limit_error",
        (503, Form::Anthropic) => "overloaded_error",
        (500.., Form::Anthropic) => "api_error",
        (500.., _) => "server_error",
        _ => "invalid_request_error",
    }
}

impl From<StoreError> for ApiError {
    fn from(cause: StoreError) -> Self {
        let busy = Self::new(Code::ServiceUnavailable, "the database cannot be used right now");
        Self { cause: Some(Box::new(cause)), ..busy }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(self.json())).into_response();
        let mut header = |name: HeaderName, value: HeaderValue| {
            response.headers_mut().insert(name, value);
        };
        if status == StatusCode::UNAUTHORIZED {
            header(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(seconds) = self.retry_after {
            header(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.would_recur() {
            header(SHOULD_RETRY, HeaderValue::from_static("false"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_do_not_repeat_what_would_recur() {
        let header = |error: ApiError| error.into_response().headers().get(SHOULD_RETRY).cloned();
        let no = Some(HeaderValue::from_static("false"));
        assert_eq!(header(ApiError::new(Code::JobTimeout, "late")), no);
        assert_eq!(header(ApiError::new(Code::QuotaExceeded, "used up").after(86_400)), no);
        assert_eq!(header(ApiError::new(Code::NoIslandAvailable, "no engine").without_retry()), no);
        assert_eq!(header(ApiError::new(Code::JobFailed, "cancelled by an operator").never_repeated()), no);
        for code in [
            Code::NoIslandAvailable,
            Code::ServiceUnavailable,
            Code::RateLimited,
            Code::JobFailed,
            Code::InternalError,
            Code::ValidationError,
        ] {
            assert_eq!(header(ApiError::new(code, "once")), None, "{code:?}");
        }
    }
}
