//! A model hub: which file is meant, and where its bytes are.

use std::time::Duration;

use hf_hub::HFClient;
use island_protocol::address::HubAddress;
use reqwest::Url;

use crate::{GetError, OpenError, pick};

/// A hub.
pub(crate) struct Hub {
    client: HFClient,
    endpoint: Url,
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
        let mut builder = HFClient::builder()
            .endpoint(endpoint)
            .cache_enabled(false)
            .retry_max_attempts(2)
            .retry_base_delay(Duration::from_millis(200));
        if let Some(token) = token {
            builder = builder.token(token);
        }
        Ok(Self { client: builder.build().map_err(|_| bad())?, endpoint: url })
    }

    /// Its address.
    pub(crate) fn endpoint(&self) -> &Url {
        &self.endpoint
    }

    /// Where the file of `address` is fetched. The hub is asked first only when no file is named.
    pub(crate) async fn locate(&self, address: &HubAddress) -> Result<Url, GetError> {
        let revision = address.revision.clone();
        if let Some(file) = &address.file {
            return Ok(self.url(address, revision.as_deref().unwrap_or("main"), file));
        }
        let (commit, files) = self.files(address).await?;
        let nothing = || GetError::NothingToPick { repo: format!("{}/{}", address.owner, address.repo) };
        let file = pick::best(&files).ok_or_else(nothing)?;
        // The commit that was looked at, so that nothing changes between looking and fetching.
        let revision = commit.or(revision).unwrap_or_else(|| "main".to_owned());
        Ok(self.url(address, &revision, &file))
    }

    async fn files(&self, address: &HubAddress) -> Result<(Option<String>, Vec<String>), GetError> {
        let model = self.client.model(&address.owner, &address.repo);
        let info = model.info().maybe_revision(address.revision.clone()).send().await;
        let info = info.map_err(|source| GetError::Hub {
            repo: format!("{}/{}", address.owner, address.repo),
            source: Box::new(source),
        })?;
        let files = info.siblings.unwrap_or_default().into_iter().map(|sibling| sibling.rfilename).collect();
        Ok((info.sha, files))
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
