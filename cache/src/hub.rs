//! The model hub: which file an address means, and where to download it.

use std::time::Duration;

use island_protocol::address::HubAddress;
use reqwest::{Client, StatusCode, Url};
use serde::Deserialize;

use crate::{GetError, OpenError, pick};

/// Time limit of one request for a list of files.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum bytes of a list of files. The longest known ones have some thousand names.
const MAX_BYTES: usize = 16 << 20;
/// Time before the second and last try.
const PAUSE: Duration = Duration::from_millis(200);

/// A list of files that was not obtained.
#[derive(Debug, thiserror::Error)]
enum HubError {
    #[error("request the list of files")]
    Transport(#[from] reqwest::Error),
    #[error("the hub answered {0}")]
    Status(StatusCode),
    #[error("the list of files is longer than {MAX_BYTES} bytes")]
    TooLong,
    #[error("the list of files is not what a hub sends")]
    Json(#[from] serde_json::Error),
}

impl HubError {
    fn is_transient(&self) -> bool {
        match self {
            Self::Transport(_) => true,
            Self::Status(status) => status.is_server_error() || *status == StatusCode::TOO_MANY_REQUESTS,
            Self::TooLong | Self::Json(_) => false,
        }
    }
}

/// The needed facts about a repository.
#[derive(Debug, Deserialize)]
struct Repository {
    sha: Option<String>,
    #[serde(default)]
    siblings: Vec<Sibling>,
}

#[derive(Debug, Deserialize)]
struct Sibling {
    rfilename: String,
}

/// A hub.
///
/// One request of its API is needed: the files of a repository. Crates for that API include their own transfer protocol, which takes
/// several minutes to compile and would not be used.
pub(crate) struct Hub {
    client: Client,
    endpoint: Url,
    token: Option<String>,
}

impl std::fmt::Debug for Hub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Hub({})", self.endpoint)
    }
}

impl Hub {
    /// The hub at `endpoint`.
    pub(crate) fn new(endpoint: &str, token: Option<String>) -> Result<Self, OpenError> {
        let bad = || OpenError::Hub(endpoint.to_owned());
        let url = Url::parse(endpoint).map_err(|_| bad())?;
        if url.cannot_be_a_base() {
            return Err(bad());
        }
        // A redirect must not lead from encryption to plain text: what the hub states decides which file is right.
        let client = Client::builder().timeout(TIMEOUT).https_only(url.scheme() == "https");
        let client = client.build().map_err(OpenError::Web)?;
        Ok(Self { client, endpoint: url, token })
    }

    /// Its address.
    pub(crate) fn endpoint(&self) -> &Url {
        &self.endpoint
    }

    /// Returns where to download the file of `address`. Queries the hub first only if the address names no file.
    pub(crate) async fn locate(&self, address: &HubAddress) -> Result<Url, GetError> {
        let revision = address.revision.clone();
        if let Some(file) = &address.file {
            return Ok(self.url(address, revision.as_deref().unwrap_or("main"), file));
        }
        let (commit, files) = self.files(address).await?;
        let nothing = || GetError::NothingToPick { repo: format!("{}/{}", address.owner, address.repo) };
        let file = pick::best(&files).ok_or_else(nothing)?;
        // The commit of the list, so that the file cannot change between the requests.
        let revision = commit.or(revision).unwrap_or_else(|| "main".to_owned());
        Ok(self.url(address, &revision, &file))
    }

    /// The commit of a revision, and the names of its files.
    async fn files(&self, address: &HubAddress) -> Result<(Option<String>, Vec<String>), GetError> {
        let listed = match self.repository(address).await {
            Err(error) if error.is_transient() => {
                tokio::time::sleep(PAUSE).await;
                self.repository(address).await
            }
            listed => listed,
        };
        let repository = listed.map_err(|source| GetError::Hub {
            repo: format!("{}/{}", address.owner, address.repo),
            source: Box::new(source),
        })?;
        Ok((repository.sha, repository.siblings.into_iter().map(|sibling| sibling.rfilename).collect()))
    }

    async fn repository(&self, address: &HubAddress) -> Result<Repository, HubError> {
        let mut url = self.endpoint.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(["api", "models", &address.owner, &address.repo]);
            if let Some(revision) = &address.revision {
                path.extend(["revision", revision]);
            }
        }
        let mut request = self.client.get(url);
        if let Some(token) = &self.token {
            // Not sent with a redirect to another host.
            request = request.bearer_auth(token);
        }
        let mut response = request.send().await?;
        if !response.status().is_success() {
            return Err(HubError::Status(response.status()));
        }
        let mut text = Vec::new();
        while let Some(chunk) = response.chunk().await? {
            if text.len() + chunk.len() > MAX_BYTES {
                return Err(HubError::TooLong);
            }
            text.extend_from_slice(&chunk);
        }
        Ok(serde_json::from_slice(&text)?)
    }

    fn url(&self, address: &HubAddress, revision: &str, file: &str) -> Url {
        let mut url = self.endpoint.clone();
        let parts = [address.owner.as_str(), &address.repo, "resolve", revision];
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(parts).extend(file.split('/'));
        }
        url
    }
}
