//! Errors between a client and the coordinator.

use std::time::Duration;

use island_protocol::{credits::MicroCredits, ids::JobId};
use island_protocol_api::problem::{Code, Detail, Problem};

use crate::{call::Repeat, transport::PlainText};

/// A failed request: what was attempted, and why it failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The coordinator's address cannot be used.
    #[error("'{0}' is not an http:// or https:// address")]
    BadUrl(String),
    /// The address, or one that the coordinator sent, would be used without encryption.
    #[error(transparent)]
    PlainText(#[from] PlainText),
    /// The key has characters that a header cannot contain.
    #[error("the API key has invalid characters")]
    BadKey,
    /// The HTTP client cannot be created, for example because the system has no certificates.
    #[error("set up the HTTP client")]
    Setup(#[source] reqwest::Error),
    /// The coordinator was not reached, did not reply in time, or the connection broke.
    #[error("{what}: no answer from the coordinator at {url}")]
    Transport {
        /// What was attempted.
        what: &'static str,
        /// The coordinator's address.
        url: String,
        /// What broke.
        #[source]
        source: reqwest::Error,
    },
    /// The coordinator accepted the request, and did not begin its answer in time.
    #[error("{what}: no answer from the coordinator at {url} within {} s", limit.as_secs_f64())]
    Silent {
        /// What was attempted.
        what: &'static str,
        /// The coordinator's address.
        url: String,
        /// How long an answer was waited for.
        limit: Duration,
    },
    /// The coordinator answered with an error.
    #[error("{0}")]
    Refused(Box<Refusal>),
    /// Another server answered, such as a proxy.
    #[error("{what}: HTTP {status}, and not from a coordinator: {excerpt}")]
    NotOurs {
        /// What was attempted.
        what: &'static str,
        /// HTTP status.
        status: u16,
        /// Beginning of the body.
        excerpt: String,
        /// The server's `Retry-After`.
        retry_after: Option<Duration>,
    },
    /// A successful answer that this version cannot parse.
    #[error("{what}: the answer is not understood")]
    Decode {
        /// What was attempted.
        what: &'static str,
        /// What did not parse.
        #[source]
        source: serde_json::Error,
    },
    /// A job's event stream was interrupted and could not be resumed. The job itself continues.
    #[error("follow job {job}: the stream broke off after event {last} and could not be resumed")]
    StreamLost {
        /// The job.
        job: JobId,
        /// Number of the last event received.
        last: u64,
        /// Error of the last try, if it had one.
        #[source]
        source: Option<Box<ClientError>>,
    },
    /// A streamed chat reply was interrupted; the part received is incomplete.
    #[error("read the streamed reply: it broke off")]
    ReplyLost {
        /// The cause, if it is known.
        #[source]
        source: Option<reqwest::Error>,
    },
    /// The message fabric was not reached, or refused the connection.
    #[error("use the message fabric at {url}")]
    Fabric {
        /// Its address.
        url: String,
        /// What broke.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// An error that the coordinator returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// What was attempted.
    pub what: &'static str,
    /// HTTP status; 200 for an error inside a stream that had begun.
    pub status: u16,
    /// Stable code.
    pub code: String,
    /// Message for people.
    pub message: String,
    /// The field at fault, if there is one.
    pub param: Option<String>,
    /// Time to wait before another try, if that may help.
    pub retry_after: Option<Duration>,
    /// Required credits, if there were too few.
    pub required: Option<MicroCredits>,
    /// Available credits.
    pub available: Option<MicroCredits>,
    /// Id of the failure in the coordinator's log.
    pub request_id: Option<String>,
    /// Every problem of a manifest, if that is invalid.
    pub details: Vec<Detail>,
}

impl Refusal {
    pub(crate) fn new(what: &'static str, status: u16, problem: Problem, header: Option<Duration>) -> Self {
        Self {
            what,
            status,
            code: problem.code,
            message: problem.message,
            param: problem.param,
            retry_after: problem.retry_after.map(Duration::from_secs).or(header),
            required: problem.required,
            available: problem.available,
            request_id: problem.request_id,
            details: problem.details,
        }
    }

    /// The code, if this version knows it.
    pub fn known_code(&self) -> Option<Code> {
        Code::ALL.iter().copied().find(|code| code.as_str() == self.code)
    }

    /// Whether the same request may succeed later.
    fn is_transient(&self) -> bool {
        self.known_code() == Some(Code::IdempotencyInProgress) || matches!(self.status, 429 | 502 | 503 | 504)
    }

    /// Whether the client should retry automatically. A chat request that found no Island or ran out of time has
    /// already waited long, and quotas and maintenance take hours: the caller decides.
    fn should_retry(&self) -> bool {
        let is_callers = matches!(
            self.known_code(),
            Some(Code::NoIslandAvailable | Code::JobTimeout | Code::QuotaExceeded | Code::Maintenance)
        );
        self.is_transient() && !is_callers
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { what, status, code, message, param, request_id, .. } = self;
        match param.as_deref().filter(|param| !message.contains(param)) {
            Some(param) => write!(f, "{what}: {param}: {message} ({code}, HTTP {status})")?,
            None => write!(f, "{what}: {message} ({code}, HTTP {status})")?,
        }
        match request_id {
            Some(id) => write!(f, ", request {id}"),
            None => Ok(()),
        }
    }
}

impl ClientError {
    /// Whether the same request may succeed later.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Transport { source, .. } => !source.is_builder(),
            Self::Refused(refusal) => refusal.is_transient(),
            Self::NotOurs { status, .. } => matches!(status, 429 | 502 | 503 | 504),
            Self::Silent { .. } | Self::StreamLost { .. } => true,
            _ => false,
        }
    }

    /// Whether sending the same request again is safe and may succeed.
    pub(crate) fn should_retry(&self, repeat: Repeat) -> bool {
        match (self, repeat) {
            (_, Repeat::Never) => false,
            (Self::Refused(refusal), Repeat::Safe) => refusal.should_retry(),
            (_, Repeat::Safe) => self.is_transient(),
        }
    }

    /// The coordinator's `Retry-After`.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused(refusal) => refusal.retry_after,
            Self::NotOurs { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// The error that the coordinator returned, if it did.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused(refusal) => Some(refusal),
            Self::StreamLost { source: Some(source), .. } => source.refusal(),
            _ => None,
        }
    }

    /// The stable code, if the coordinator returned an error.
    pub fn code(&self) -> Option<&str> {
        self.refusal().map(|refusal| refusal.code.as_str())
    }

    /// Advice for the user.
    pub fn advice(&self) -> Option<String> {
        Some(match self {
            Self::BadUrl(_) => "give the coordinator's address, such as https://example.org".into(),
            Self::PlainText(_) => {
                "use an encrypted address (https://, tls://), or allow plain text if you trust the network"
                    .into()
            }
            Self::BadKey => "copy the key again; it begins with 'ak_'".into(),
            Self::Transport { source, url, .. } if source.is_connect() => {
                format!("check that a coordinator runs at {url} and can be reached from here")
            }
            Self::Transport { .. } | Self::Silent { .. } => {
                "try again; allow a longer timeout if the network is slow".into()
            }
            Self::Refused(refusal) => return advice(refusal),
            Self::NotOurs { .. } => "check the address: a proxy or another service answers there".into(),
            Self::Decode { .. } => "update this client: the coordinator may be newer".into(),
            Self::StreamLost { last, .. } => format!("the job goes on: follow it again after event {last}"),
            Self::ReplyLost { .. } => "ask again, or use a job, whose stream can be resumed".into(),
            Self::Setup(_) | Self::Fabric { .. } => return None,
        })
    }
}

fn advice(refusal: &Refusal) -> Option<String> {
    Some(match (refusal.status, refusal.known_code()) {
        (_, Some(Code::MissingApiKey)) => "give an API key".into(),
        (401, _) => "use another API key: this one is unknown, expired or revoked".into(),
        (402, _) => "add credits, or wait for running jobs to release what they hold".into(),
        (_, Some(Code::AccountSuspended)) => {
            "ask the operators of the network: they suspended the account".into()
        }
        (_, Some(Code::WorkloadDisabled)) => "choose another Cargo: operators have disabled this one".into(),
        (_, Some(Code::InvalidInvitation)) => "check the code, or ask an operator for another".into(),
        (403, _) => "use a key with the scope this needs".into(),
        (408, _) => "try again over a faster connection: the body did not arrive in time".into(),
        (_, Some(Code::ConcurrentJobsExceeded)) => "wait for a job to end, or cancel one".into(),
        (_, Some(Code::ConcurrentStreamsExceeded)) => "close another stream first".into(),
        (_, Some(Code::NoIslandAvailable)) => "try again later, or choose another model".into(),
        (_, Some(Code::QuotaExceeded)) => match refusal.retry_after {
            Some(wait) => format!("the quota resets in {}; try again then, or raise it", span(wait)),
            None => "try again when the quota has reset, or raise it".into(),
        },
        (_, Some(Code::Maintenance)) => "try again when the maintenance has ended".into(),
        (_, Some(Code::AccountInUse)) => {
            "deduct its credits, let its jobs end, and let its Islands leave first".into()
        }
        (429 | 503, _) => match refusal.retry_after {
            Some(wait) => format!("wait {} s, then try again", wait.as_secs()),
            None => "try again later".into(),
        },
        (422, _) => match &refusal.param {
            Some(param) => format!("correct '{param}'"),
            None => return None,
        },
        (500.., _) => "try again; if it persists, report the request id to the operator".into(),
        _ => return None,
    })
}

/// A delay in its largest unit, rounded up.
fn span(wait: Duration) -> String {
    match wait.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds.div_ceil(60)),
        seconds => format!("{} h", seconds.div_ceil(3600)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(status: u16, code: &str) -> ClientError {
        let problem = Problem { message: "no".into(), code: code.into(), ..Problem::default() };
        ClientError::Refused(Box::new(Refusal::new("submit the job", status, problem, None)))
    }

    #[test]
    fn only_safe_requests_are_retried() {
        for (status, code, wanted) in [
            (429, "rate_limited", true),
            (409, "idempotency_in_progress", true),
            (409, "host_conflict", false),
            (503, "service_unavailable", true),
            (503, "no_island_available", false),
            (504, "job_timeout", false),
            (429, "quota_exceeded", false),
            (503, "maintenance", false),
            (500, "internal_error", false),
            (402, "insufficient_credits", false),
        ] {
            let error = refusal(status, code);
            assert_eq!(error.should_retry(Repeat::Safe), wanted, "{code}");
            assert!(!error.should_retry(Repeat::Never), "{code}");
        }
    }

    #[test]
    fn messages_name_the_attempt_and_advice_the_next_step() {
        let error = refusal(402, "insufficient_credits");
        assert_eq!(error.to_string(), "submit the job: no (insufficient_credits, HTTP 402)");
        assert!(error.advice().is_some_and(|advice| advice.contains("credits")));
    }

    #[test]
    fn a_quota_resets_after_hours() {
        let advice = |retry_after| {
            let problem = Problem { code: "quota_exceeded".into(), retry_after, ..Problem::default() };
            ClientError::Refused(Box::new(Refusal::new("chat", 429, problem, None))).advice().expect("advice")
        };
        assert_eq!(advice(Some(119)), "the quota resets in 119 s; try again then, or raise it");
        assert_eq!(advice(Some(121)), "the quota resets in 3 min; try again then, or raise it");
        assert_eq!(advice(Some(40_000)), "the quota resets in 12 h; try again then, or raise it");
        assert!(!advice(None).contains(" in "));
    }

    #[test]
    fn the_field_is_named_once() {
        let shown = |param: &str, message: &str| {
            let problem = Problem {
                message: message.into(),
                code: "invalid_input".into(),
                param: Some(param.into()),
                ..Problem::default()
            };
            Refusal::new("submit the job", 422, problem, None).to_string()
        };
        assert_eq!(
            shown("input.prompt", "the value is not of type \"string\""),
            "submit the job: input.prompt: the value is not of type \"string\" (invalid_input, HTTP 422)"
        );
        assert_eq!(
            shown("limit", "limit must be 1 to 100"),
            "submit the job: limit must be 1 to 100 (invalid_input, HTTP 422)"
        );
    }

    #[test]
    fn every_refusal_except_bad_requests_has_advice() {
        for code in Code::ALL {
            let error = refusal(code.status(), code.as_str());
            let plain = matches!(code.status(), 400 | 404 | 405 | 409 | 413 | 415 | 422);
            assert!(plain || error.advice().is_some(), "{code:?}");
        }
    }
}
