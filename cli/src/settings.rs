//! Where the address and the key come from: flag, then environment, then `~/.island/config.toml`.

mod saved;

use std::{env, fmt, path::PathBuf};

use anyhow::{Result, bail};
use island_coordinator_client::Client;

pub(crate) use self::saved::SavedSettings;
use crate::{args::Global, failure::Usage, output::Output};

/// Default address of a coordinator.
const DEFAULT_API_URL: &str = "http://127.0.0.1:8080";

/// Where a setting came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    Flag,
    Environment,
    File,
    Default,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Flag => "the flag",
            Self::Environment => "the environment",
            Self::File => "~/.island/config.toml",
            Self::Default => "the default",
        })
    }
}

/// The settings in force.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) api_url: String,
    pub(crate) api_key: Option<String>,
    pub(crate) api_key_source: Source,
    pub(crate) nats_url: Option<String>,
    pub(crate) allow_plaintext: bool,
}

impl Settings {
    pub(crate) fn resolve(flags: &Global, output: &Output) -> Result<Self> {
        let saved = SavedSettings::read(output)?;
        let variable = |name| env::var(name).ok();
        let (api_url, _) = first(flags.api_url.clone(), variable("SERVICE_API_URL"), saved.api_url);
        let (api_key, api_key_source) =
            first(flags.api_key.clone(), variable("SERVICE_API_KEY"), saved.api_key);
        let (nats_url, _) = first(flags.nats_url.clone(), variable("SERVICE_NATS_URL"), saved.nats_url);
        let api_url = api_url.unwrap_or_else(|| DEFAULT_API_URL.into());
        let variable =
            match variable("SERVICE_ALLOW_PLAINTEXT").filter(|value| !value.is_empty()) {
                Some(value) => Some(value.parse().map_err(|_| {
                    Usage(format!("SERVICE_ALLOW_PLAINTEXT is true or false, not '{value}'"))
                })?),
                None => None,
            };
        let allow_plaintext = flags.allow_plaintext || variable.or(saved.allow_plaintext).unwrap_or_default();
        Ok(Self { api_url, api_key, api_key_source, nats_url, allow_plaintext })
    }

    /// A client that carries the key, if there is one.
    pub(crate) fn client(&self) -> Result<Client> {
        self.client_with(self.api_key.clone())
    }

    /// A client with another key.
    pub(crate) fn client_with(&self, key: Option<String>) -> Result<Client> {
        let name = concat!("island-cli/", env!("CARGO_PKG_VERSION"));
        let builder = Client::builder(&self.api_url).user_agent(name).allow_plaintext(self.allow_plaintext);
        let builder = match key {
            Some(key) => builder.key(key.trim()),
            None => builder,
        };
        Ok(builder.build()?)
    }
}

/// The first that is set; an empty variable is as good as none.
fn first(flag: Option<String>, variable: Option<String>, saved: Option<String>) -> (Option<String>, Source) {
    let variable = variable.filter(|value| !value.is_empty());
    let candidates = [(flag, Source::Flag), (variable, Source::Environment), (saved, Source::File)];
    let found = candidates.into_iter().find(|(value, _)| value.is_some());
    found.unwrap_or((None, Source::Default))
}

/// `~/.island`.
pub(crate) fn island_home() -> Result<PathBuf> {
    match env::var_os("HOME") {
        Some(home) if !home.is_empty() => Ok(PathBuf::from(home).join(".island")),
        _ => bail!("HOME is not set: cannot locate ~/.island"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_first_that_is_set_wins(
            flag in prop::option::of("[a-z]{1,3}"), variable in prop::option::of("[a-z]{0,3}"),
            saved in prop::option::of("[a-z]{1,3}")
        ) {
            let (value, source) = first(flag.clone(), variable.clone(), saved.clone());
            match source {
                Source::Flag => prop_assert_eq!(value, flag),
                Source::Environment => prop_assert!(flag.is_none() && value == variable && value != Some(String::new())),
                Source::File => prop_assert!(flag.is_none() && variable.unwrap_or_default().is_empty() && value == saved),
                Source::Default => prop_assert!(value.is_none() && flag.is_none() && saved.is_none()),
            }
        }
    }
}
