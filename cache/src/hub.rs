//! The model hub: which file an address means, and where to download it.

use std::time::{Duration, SystemTime};

use island_protocol::address::HubAddress;
use reqwest::{Client, Url, redirect};
use serde::Deserialize;

use crate::{
    GetError, OpenError, Progress, Transfer,
    patience::Patience,
    pick, refusal,
    web::{WebError, host, transport},
};

/// Time limit of one request for a list of files.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum number of redirects of such a request.
const MAX_REDIRECTS: usize = 5;
/// Time limit of a check of the token, for which a person waits.
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum bytes of a list of files. The longest known ones have some thousand names.
const MAX_BYTES: usize = 16 << 20;

/// A list of files that was not obtained.
#[derive(Debug, thiserror::Error)]
enum HubError {
    #[error(transparent)]
    Web(#[from] WebError),
    #[error("the list of files is longer than {MAX_BYTES} bytes")]
    TooLong,
    #[error("the list of files is not what a hub sends")]
    Json(#[from] serde_json::Error),
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

/// Whether a hub that answers accepts a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenStanding {
    /// The owner has given no token.
    Absent,
    /// The hub accepts it.
    Accepted,
    /// The hub does not accept it.
    Refused,
    /// Unknown: the hub has no address that shows it, as some mirrors.
    Unknown,
}

/// A hub that was not checked.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// Its address is invalid, or there is no client for it.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// It does not answer, or not now.
    #[error(transparent)]
    Web(#[from] WebError),
}

/// Checks whether the hub at `endpoint` answers, and accepts `token`.
///
/// # Errors
/// Why it does not answer.
pub async fn check_hub(endpoint: &str, token: Option<String>) -> Result<TokenStanding, CheckError> {
    Ok(Hub::new(endpoint, token)?.check().await?)
}

/// Follows redirects to the same scheme, host and port, such as those of repositories that were renamed.
fn within_origin(attempt: redirect::Attempt<'_>) -> redirect::Action {
    let is_same = attempt.previous().first().is_some_and(|first| first.origin() == attempt.url().origin());
    if !is_same {
        return attempt.stop();
    }
    redirect::Policy::limited(MAX_REDIRECTS).redirect(attempt)
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
        // What the hub states decides which file is right, and it alone may be in the owner's network.
        let client = Client::builder().timeout(TIMEOUT).redirect(redirect::Policy::custom(within_origin));
        let client = client.build().map_err(OpenError::Web)?;
        Ok(Self { client, endpoint: url, token })
    }

    /// Its address.
    pub(crate) fn endpoint(&self) -> &Url {
        &self.endpoint
    }

    async fn check(&self) -> Result<TokenStanding, WebError> {
        let mut url = self.endpoint.clone();
        let request = match &self.token {
            None => self.client.head(url.clone()),
            Some(token) => {
                if let Ok(mut path) = url.path_segments_mut() {
                    path.pop_if_empty().extend(["api", "whoami-v2"]);
                }
                self.client.get(url.clone()).bearer_auth(token)
            }
        };
        let response = request.timeout(CHECK_TIMEOUT).send().await.map_err(|error| transport(&url, error))?;
        let (status, host) = (response.status(), host(&url));
        if let Some(time) = refusal::wait(status, response.headers(), SystemTime::now()) {
            return Err(WebError::Busy { host, time });
        }
        match status.as_u16() {
            status @ 500..=599 => Err(WebError::Status { host, status }),
            _ if self.token.is_none() => Ok(TokenStanding::Absent),
            401 | 403 => Ok(TokenStanding::Refused),
            200..=299 => Ok(TokenStanding::Accepted),
            _ => Ok(TokenStanding::Unknown),
        }
    }

    /// Returns where to download the file of `address`. Queries the hub first only if the address names no file.
    pub(crate) async fn locate(&self, address: &HubAddress, progress: &Progress) -> Result<Url, GetError> {
        let revision = address.revision.clone();
        if let Some(file) = &address.file {
            return Ok(self.url(address, revision.as_deref().unwrap_or("main"), file));
        }
        let (commit, files) = self.files(address, progress).await?;
        let nothing = || GetError::NothingToPick { repo: format!("{}/{}", address.owner, address.repo) };
        let file = pick::best(&files).ok_or_else(nothing)?;
        // The commit of the list, so that the file cannot change between the requests.
        let revision = commit.or(revision).unwrap_or_else(|| "main".to_owned());
        Ok(self.url(address, &revision, &file))
    }

    /// The commit of a revision, and the names of its files.
    async fn files(
        &self,
        address: &HubAddress,
        progress: &Progress,
    ) -> Result<(Option<String>, Vec<String>), GetError> {
        let mut patience = Patience::new();
        let repository = loop {
            let error = match self.repository(address).await {
                Ok(repository) => break repository,
                Err(error) => error,
            };
            let wait = match &error {
                HubError::Web(error) => patience.after(error, rand::random()),
                HubError::TooLong | HubError::Json(_) => None,
            };
            let Some(time) = wait else {
                let repo = format!("{}/{}", address.owner, address.repo);
                return Err(GetError::Hub { repo, source: Box::new(error) });
            };
            if let HubError::Web(WebError::Busy { host, .. }) = error {
                progress(Transfer::Waiting { host, time });
            }
            tokio::time::sleep(time).await;
        };
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
        let mut request = self.client.get(url.clone());
        if let Some(token) = &self.token {
            // Not sent with a redirect to another host.
            request = request.bearer_auth(token);
        }
        let failed = |error| transport(&url, error);
        let mut response = request.send().await.map_err(failed)?;
        let (status, headers) = (response.status(), response.headers());
        if !status.is_success() {
            let host = host(&url);
            let wait = refusal::wait(status, headers, SystemTime::now());
            let reason = refusal::reason(&url, headers, self.token.is_some());
            return Err(HubError::Web(match (wait, reason) {
                (Some(time), _) => WebError::Busy { host, time },
                (None, Some(reason)) => WebError::Refused { host, reason },
                (None, None) => WebError::Status { host, status: status.as_u16() },
            }));
        }
        let mut text = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
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
