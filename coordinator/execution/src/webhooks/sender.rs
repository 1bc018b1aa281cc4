//! Posts an event to its address.

use std::{sync::Arc, time::Duration};

use island_daemon::chain::Chain;
use island_protocol::time::Timestamp;
use island_protocol_api::webhook::{Event, EventData};
use reqwest::{
    Client,
    header::{CONTENT_TYPE, HeaderMap, RETRY_AFTER},
    redirect::Policy,
};

use super::{
    address::{self, Resolver},
    signature,
};
use island_coordinator_domain::config;
use island_coordinator_storage::{
    to_json,
    webhook::{Attempted, Due},
};

/// Maximum bytes of the text about a failure.
const MAX_ERROR: usize = 500;

/// Sends events.
#[derive(Debug, Clone)]
pub struct Sender {
    http: Client,
    timeout: Duration,
    is_private_allowed: bool,
}

impl Sender {
    pub fn new(settings: &config::Webhooks) -> Result<Self, reqwest::Error> {
        let timeout = Duration::from_secs(settings.timeout_s.into());
        let is_private_allowed = settings.private_addresses;
        // A redirect could lead to an address that only this machine reaches, and a proxy would resolve names itself.
        let http = Client::builder()
            .redirect(Policy::none())
            .no_proxy()
            .dns_resolver(Arc::new(Resolver { is_private_allowed }))
            .timeout(timeout)
            .user_agent(concat!("island/", env!("CARGO_PKG_VERSION")))
            .build()?;
        Ok(Self { http, timeout, is_private_allowed })
    }

    /// Sends an event once. The answer's body is not read.
    pub(super) async fn send(&self, due: &Due, now: Timestamp) -> Attempted {
        let failed = |error: String| {
            let end = error.floor_char_boundary(MAX_ERROR);
            Attempted { status: None, error: Some(error[..end].to_owned()), not_before: None }
        };
        // The setting may have changed since the webhook was created.
        let url = match address::check(&due.url, self.is_private_allowed) {
            Ok(url) => url,
            Err(refused) => return failed(refused.to_string()),
        };
        let body = body(due);
        let (id, at) = (due.id.to_string(), now.unix_ms().div_euclid(1000));
        let signatures: Vec<String> =
            due.secrets.iter().filter_map(|secret| signature::sign(secret, &id, at, &body)).collect();
        if signatures.is_empty() {
            return failed("the secret of the webhook is malformed".to_owned());
        }
        let request = self
            .http
            .post(url)
            .header(CONTENT_TYPE, "application/json")
            .header("webhook-id", id)
            .header("webhook-timestamp", at)
            .header("webhook-signature", signatures.join(" "))
            .body(body);
        match request.send().await {
            Ok(response) => {
                let status = response.status();
                let error =
                    (!status.is_success()).then(|| format!("the address answered with {}", status.as_u16()));
                let not_before = retry_after(response.headers()).map(|wait_ms| now.plus_ms(wait_ms));
                Attempted { status: Some(status.as_u16()), error, not_before }
            }
            Err(error) if error.is_timeout() => {
                failed(format!("the address did not answer within {} s", self.timeout.as_secs()))
            }
            Err(error) => failed(Chain(&error.without_url()).to_string()),
        }
    }
}

/// The seconds of `Retry-After`, in milliseconds. Its other form, a date, depends on the receiver's clock.
fn retry_after(headers: &HeaderMap) -> Option<i64> {
    let seconds: u32 = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(i64::from(seconds) * 1000)
}

/// The event, the same at every attempt.
fn body(due: &Due) -> String {
    to_json(&Event {
        id: due.id,
        object: "event".to_owned(),
        created_at: due.created_at.unix_ms().div_euclid(1000),
        kind: due.event,
        data: EventData { id: due.subject.clone() },
    })
}
