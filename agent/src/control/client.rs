//! The client of the owner's socket.

use std::path::{Path, PathBuf};

use island_protocol::host::Capabilities;
use reqwest::{Client, RequestBuilder, StatusCode};
use serde::de::DeserializeOwned;

use super::{check::Checked, server::SOCKET, status::Status};
use crate::{
    config::Config,
    owner::policy::{OwnerOrder, Verdict},
};

/// A command that the agent did not carry out.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// No agent listens, or the socket may not be opened.
    #[error("no agent answers at {0}")]
    Away(PathBuf, #[source] reqwest::Error),
    /// The answer has another form: the agent has another version.
    #[error("the agent at {0} sent an answer of an unknown form")]
    Malformed(PathBuf, #[source] reqwest::Error),
    /// The agent refused.
    #[error("the agent refused: {0}")]
    Refused(String),
    /// The agent ran a test job less than a minute ago.
    #[error("the agent refused: {0}")]
    TooSoon(String),
}

/// A running agent.
#[derive(Debug)]
pub struct Control {
    http: Client,
    path: PathBuf,
}

impl Control {
    /// Returns the client for the agent of a state folder; connects at the first command.
    pub fn new(state: &Path) -> Result<Self, ControlError> {
        let path = state.join(SOCKET);
        let http = Client::builder().unix_socket(path.as_path()).build();
        http.map(|http| Self { http, path: path.clone() }).map_err(|error| ControlError::Away(path, error))
    }

    /// Returns the status.
    pub async fn status(&self) -> Result<Status, ControlError> {
        self.answer(self.http.get("http://agent/status")).await
    }

    /// Returns the settings in force, without secrets.
    pub async fn settings(&self) -> Result<Config, ControlError> {
        self.answer(self.http.get("http://agent/settings")).await
    }

    /// Returns the capabilities, as they are registered.
    pub async fn capabilities(&self) -> Result<Capabilities, ControlError> {
        self.answer(self.http.get("http://agent/capabilities")).await
    }

    /// Sends the owner's order; returns the verdict that follows from it.
    pub async fn set_order(&self, order: OwnerOrder) -> Result<Verdict, ControlError> {
        self.answer(self.http.post("http://agent/order").json(&order)).await
    }

    /// Holds the agent for an update: it accepts no new jobs for this number of seconds; zero ends that.
    pub async fn hold(&self, seconds: u64) -> Result<Verdict, ControlError> {
        self.answer(self.http.post("http://agent/hold").json(&seconds)).await
    }

    /// Runs a test job through the whole network, which takes up to a minute; returns the last result if one ran in the last minute.
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
        answer.json().await.map_err(|error| ControlError::Malformed(self.path.clone(), error))
    }
}
