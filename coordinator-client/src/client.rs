//! The client: an address, a key, and timeouts and retries.

mod builder;

use std::{sync::Arc, time::Duration};

use reqwest::{Url, header::HeaderValue};

pub use builder::ClientBuilder;

use crate::{backoff::RetryPolicy, error::ClientError};

/// A client of one coordinator. Cheap to clone; clones share connections.
#[derive(Debug, Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    http: reqwest::Client,
    base: Url,
    base_text: String,
    key: Option<HeaderValue>,
    rules: Rules,
}

/// Timeouts and retry policies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    /// One try of a request that is not a stream.
    pub(crate) timeout: Duration,
    /// Silence on a stream.
    pub(crate) idle: Duration,
    /// Silence before a streamed reply begins.
    pub(crate) opening: Duration,
    /// Requests that failed.
    pub(crate) retry: RetryPolicy,
    /// Streams that broke off.
    pub(crate) resume: RetryPolicy,
}

impl Client {
    /// A client of the coordinator at `url`, with or without the version prefix, with default timeouts and retries.
    pub fn new(url: &str, key: Option<String>) -> Result<Self, ClientError> {
        let builder = Self::builder(url);
        match key {
            Some(key) => builder.key(key).build(),
            None => builder.build(),
        }
    }

    /// A builder of a client with other timeouts and retries.
    pub fn builder(url: &str) -> ClientBuilder {
        ClientBuilder::new(url)
    }

    /// The coordinator's address, without the version prefix.
    pub fn base_url(&self) -> &str {
        &self.shared.base_text
    }

    pub(crate) fn base(&self) -> &Url {
        &self.shared.base
    }

    pub(crate) fn http(&self) -> &reqwest::Client {
        &self.shared.http
    }

    pub(crate) fn key(&self) -> Option<&HeaderValue> {
        self.shared.key.as_ref()
    }

    pub(crate) fn rules(&self) -> &Rules {
        &self.shared.rules
    }
}
