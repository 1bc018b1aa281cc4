//! The builder of a [`Client`].

use std::{sync::Arc, time::Duration};

use island_protocol_api::PREFIX;
use reqwest::{Url, header::HeaderValue};

use super::{Client, Rules, Shared};
use crate::{backoff::RetryPolicy, error::ClientError, transport};

/// Settings of a new [`Client`].
#[derive(Debug, Clone)]
#[must_use = "has no effect until it is built"]
pub struct ClientBuilder {
    url: String,
    key: Option<String>,
    user_agent: String,
    connect_timeout: Duration,
    allow_plaintext: bool,
    rules: Rules,
}

impl ClientBuilder {
    pub(super) fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            key: None,
            user_agent: concat!("island/", env!("CARGO_PKG_VERSION")).to_owned(),
            connect_timeout: Duration::from_secs(10),
            allow_plaintext: false,
            rules: Rules {
                timeout: Duration::from_mins(1),
                // Streams carry a comment every 15 s: after three missed ones the other side is gone.
                idle: Duration::from_secs(50),
                // A coordinator receives a body within a minute, waits 30 s for an Island to accept the job, and 10 s
                // for its first output.
                opening: Duration::from_mins(2),
                retry: RetryPolicy::REQUESTS,
                resume: RetryPolicy::STREAMS,
            },
        }
    }

    /// API key that goes with every request.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Name and version of the program, as the coordinator's log shows it.
    pub fn user_agent(mut self, name: impl Into<String>) -> Self {
        self.user_agent = name.into();
        self
    }

    /// Timeout for opening a connection; 10 s by default.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Timeout of one try of a request that is not a stream; 60 s by default. Files and whole chat replies have longer
    /// ones.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.rules.timeout = timeout;
        self
    }

    /// Maximum silence on a stream before it counts as interrupted; 50 s by default.
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.rules.idle = timeout;
        self
    }

    /// Maximum silence of one try before a streamed chat reply begins; 2 min by default. While its job waits for an
    /// Island the coordinator sends nothing: where that may take long, by its setting `jobs.chat_wait_s`, this must be
    /// longer.
    pub fn opening_timeout(mut self, timeout: Duration) -> Self {
        self.rules.opening = timeout;
        self
    }

    /// Whether an `http:` address of another machine may be used, which sends the key in plain text; `false` by default.
    pub fn allow_plaintext(mut self, allow: bool) -> Self {
        self.allow_plaintext = allow;
        self
    }

    /// How failed requests are retried; [`RetryPolicy::REQUESTS`] by default.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.rules.retry = policy;
        self
    }

    /// How interrupted streams are resumed; [`RetryPolicy::STREAMS`] by default.
    pub fn resume(mut self, policy: RetryPolicy) -> Self {
        self.rules.resume = policy;
        self
    }

    /// Builds the client.
    pub fn build(self) -> Result<Client, ClientError> {
        let base = self.url.trim_end_matches('/').trim_end_matches(PREFIX).trim_end_matches('/');
        let parsed = Url::parse(base).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let Some(parsed) = parsed else { return Err(ClientError::BadUrl(self.url)) };
        if !self.allow_plaintext {
            transport::check_http(base)?;
        }
        let key = self.key.map(|key| HeaderValue::try_from(format!("Bearer {key}"))).transpose();
        let mut key = key.map_err(|_| ClientError::BadKey)?;
        if let Some(key) = &mut key {
            key.set_sensitive(true);
        }
        let http = reqwest::Client::builder()
            .tcp_nodelay(true)
            .connect_timeout(self.connect_timeout)
            .user_agent(self.user_agent)
            // A redirect must not lead to plain text.
            .https_only(parsed.scheme() == "https");
        // Plain text for this machine must not travel to a proxy of the environment.
        let http = if parsed.scheme() == "http" && !self.allow_plaintext { http.no_proxy() } else { http };
        let http = http.build().map_err(ClientError::Setup)?;
        let base_text = base.to_owned();
        Ok(Client { shared: Arc::new(Shared { http, base: parsed, base_text, key, rules: self.rules }) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_must_be_http() {
        for bad in ["nats://x", "example.org", "", "http://"] {
            assert!(matches!(Client::new(bad, None), Err(ClientError::BadUrl(_))), "{bad}");
        }
    }

    #[test]
    fn keys_are_not_sent_in_plain_text_unless_allowed() {
        for plain in ["http://example.org", "http://10.0.0.1:8080/api/v1", "http://0.0.0.0:1"] {
            let builder = || Client::builder(plain).key("ak_secret");
            assert!(matches!(builder().build(), Err(ClientError::PlainText(_))), "{plain}");
            builder().allow_plaintext(true).build().expect("allowed");
        }
        for private in ["https://example.org", "http://127.0.0.1:8080", "http://localhost:8080"] {
            Client::builder(private).key("ak_secret").build().expect("encrypted, or on this machine");
        }
    }

    #[test]
    fn the_version_prefix_is_optional() {
        for url in ["https://example.org", "https://example.org/", "https://example.org/api/v1/"] {
            assert_eq!(Client::new(url, None).expect("client").base_url(), "https://example.org");
        }
    }

    #[test]
    fn a_key_is_a_header_and_never_shown() {
        assert!(matches!(Client::new("https://x", Some("ak_a\nb".into())), Err(ClientError::BadKey)));
        let client = Client::new("https://x", Some("ak_secret".into())).expect("client");
        assert!(!format!("{client:?}").contains("ak_secret"));
    }
}
