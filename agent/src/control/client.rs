//! The other end of the owner's socket.

use std::path::{Path, PathBuf};

use reqwest::{Client, RequestBuilder, StatusCode};
use serde::de::DeserializeOwned;

use super::{check::Checked, server::SOCKET, status::Status};
use crate::policy::{OwnerOrder, Verdict};

/// An agent that cannot be spoken with.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Nobody answers.
    #[error("no agent answers at {0}: is it running, and may you open this?")]
    Away(PathBuf, #[source] reqwest::Error),
    /// It answers something else.
    #[error("the agent at {0} answers what is not understood")]
    Nonsense(PathBuf, #[source] reqwest::Error),
    /// It refuses.
    #[error("the agent says: {0}")]
    Refused(String),
    /// It ran a check a moment ago.
    #[error("the agent says: {0}")]
    TooSoon(String),
}

/// A running agent.
#[derive(Debug)]
pub struct Control {
    http: Client,
    path: PathBuf,
}

impl Control {
    /// The agent of a state folder.
    pub fn new(state: &Path) -> Result<Self, ControlError> {
        let path = state.join(SOCKET);
        let http = Client::builder().unix_socket(path.as_path()).build();
        http.map(|http| Self { http, path: path.clone() }).map_err(|error| ControlError::Away(path, error))
    }

    /// What there is to see.
    pub async fn status(&self) -> Result<Status, ControlError> {
        self.answer(self.http.get("http://agent/status")).await
    }

    /// Says what the owner wants; gives what follows from it.
    pub async fn set_order(&self, order: OwnerOrder) -> Result<Verdict, ControlError> {
        self.answer(self.http.post("http://agent/order").json(&order)).await
    }

    /// Has a job run on this Island, through the whole network, which takes up to a minute; or tells of that of a moment ago.
    pub async fn check(&self) -> Result<Checked, ControlError> {
        self.answer(self.http.post("http://agent/check")).await
    }

    async fn answer<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, ControlError> {
        let answer = request.send().await.map_err(|error| ControlError::Away(self.path.clone(), error))?;
        if !answer.status().is_success() {
            let is_soon = answer.status() == StatusCode::TOO_MANY_REQUESTS;
            let text = answer.text().await.unwrap_or_default().trim().to_owned();
            return Err(if is_soon { ControlError::TooSoon(text) } else { ControlError::Refused(text) });
        }
        answer.json().await.map_err(|error| ControlError::Nonsense(self.path.clone(), error))
    }
}
