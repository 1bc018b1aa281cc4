//! A request that has not been sent yet: await it for the typed answer, or call [`Request::answer`] for the body as
//! well.

use std::{future::IntoFuture, time::Duration};

use bytes::Bytes;
use futures::future::BoxFuture;
use island_protocol_api::Data;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{call::Call, client::Client, error::ClientError};

/// A request to one endpoint. Nothing is sent until it is awaited.
#[derive(Debug)]
#[must_use = "nothing is sent until it is awaited"]
pub struct Request<T> {
    client: Client,
    call: Call,
    decode: fn(&[u8]) -> serde_json::Result<T>,
    body: fn(&[u8]) -> serde_json::Result<Value>,
}

/// An answer in typed form and as received.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer<T> {
    /// The answer in this version's type.
    pub value: T,
    /// The whole body, including fields that this version does not know; a string if it is not JSON.
    pub body: Value,
}

impl<T: DeserializeOwned> Request<T> {
    /// A request whose answer is a `T`.
    pub(crate) fn plain(client: &Client, call: Call) -> Self {
        Self::decoded(client, call, |body| serde_json::from_slice(body))
    }

    /// A request whose answer is a `T` wrapped in `data`.
    pub(crate) fn data(client: &Client, call: Call) -> Self {
        Self::decoded(client, call, |body| serde_json::from_slice::<Data<T>>(body).map(|body| body.data))
    }
}

impl Request<String> {
    /// A request whose answer is text.
    pub(crate) fn text(client: &Client, call: Call) -> Self {
        let request = Self::decoded(client, call, text);
        Self { body: |bytes| text(bytes).map(Value::String), ..request }
    }
}

fn text(bytes: &[u8]) -> serde_json::Result<String> {
    str::from_utf8(bytes).map(str::to_owned).map_err(serde::de::Error::custom)
}

impl<T> Request<T> {
    fn decoded(client: &Client, call: Call, decode: fn(&[u8]) -> serde_json::Result<T>) -> Self {
        let timeout = client.rules().timeout;
        Self { client: client.clone(), call, decode, body: |bytes| serde_json::from_slice(bytes) }
            .timeout(timeout)
    }

    /// Timeout of one try, including the answer's body.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.call.timeout = Some(timeout);
        self
    }

    /// Sets the `Idempotency-Key` of a POST instead of a generated one, so that it acts once even if the program that
    /// sends it is restarted.
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.call = self.call.named(key.into());
        self
    }

    /// Sends the request and returns the answer in both forms.
    pub async fn answer(self) -> Result<Answer<T>, ClientError> {
        let bytes = self.send().await?;
        let value = self.understand(&bytes)?;
        let body =
            (self.body)(&bytes).map_err(|source| ClientError::Decode { what: self.call.what, source })?;
        Ok(Answer { value, body })
    }

    async fn send(&self) -> Result<Bytes, ClientError> {
        self.client.fetch(&self.call).await
    }

    fn understand(&self, bytes: &[u8]) -> Result<T, ClientError> {
        (self.decode)(bytes).map_err(|source| ClientError::Decode { what: self.call.what, source })
    }
}

impl<T: 'static> IntoFuture for Request<T> {
    type Output = Result<T, ClientError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let bytes = self.send().await?;
            self.understand(&bytes)
        })
    }
}
