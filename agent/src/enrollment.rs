//! The commands `enroll` and `leave`. They run beside the agent, which notices the result.

use std::{
    fs, io,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use island_daemon::notify;
use island_protocol::ids::HostId;

use crate::{
    agent::{asked_to_stop, coordinator_url},
    config::Config,
    identity::{Identity, IdentityError},
    link::credentials::{self, CredentialsError, Enrollment},
};

/// An Island that cannot be enrolled or taken out.
#[derive(Debug, thiserror::Error)]
pub enum EnrollError {
    /// The state folder.
    #[error("use the state folder {0}")]
    Folder(PathBuf, #[source] io::Error),
    /// No identity.
    #[error("load this Island's identity")]
    Identity(#[from] IdentityError),
    /// No API key.
    #[error("read the API key")]
    ApiKey(#[source] io::Error),
    /// The coordinator, or the credentials' file.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
}

/// Shown where an Island is not enrolled.
pub const NOT_ENROLLED: &str = "not enrolled; run `island-agent enroll --coordinator URL`";

/// Whether this Island surely belongs to nobody: somebody who may not read its folder cannot tell.
pub fn is_not_enrolled(config: &Config) -> bool {
    let is_readable = match fs::read_dir(&config.state_dir) {
        Ok(_) => true,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    };
    let has_key = !matches!(config.read_api_key(), Ok(None));
    is_readable && !has_key && credentials::enrolled_with(&config.state_dir).is_none()
}

/// Ties this Island to an account; `show` gets the lines for its owner while they wait. Gives the last one.
pub async fn enroll(config: &Config, show: impl Fn(&str)) -> Result<String, EnrollError> {
    let (identity, enrollment) = prepare(config)?;
    credentials::enroll(&identity, &enrollment, |pairing| {
        let (code, until) = (spaced(&pairing.code), pairing.expires_at);
        show(&format!("This Island's code is {code}, good until {until}. Confirm it with your account:\n\n    island hosts pair {code}\n\n"));
    })
    .await?;
    hand_over(&config.state_dir)?;
    let (name, url) = (&enrollment.name, &enrollment.api_url);
    Ok(format!("{name} ({}) belongs to your account at {url} now.\n", identity.host_id()))
}

/// Takes this Island out of the network. Gives a line for its owner.
pub async fn leave(config: &Config) -> Result<String, EnrollError> {
    let (identity, enrollment) = prepare(config)?;
    credentials::leave(&identity, &enrollment).await?;
    Ok(format!(
        "{} ({}) has left. Stop the agent: without an account it gets no work.\n",
        enrollment.name,
        identity.host_id()
    ))
}

/// Waits until this Island is enrolled. Returns `false` if asked to stop first. Before anything else is made: `enroll` may name another coordinator.
pub async fn awaited(config: &Config) -> Result<bool, EnrollError> {
    let enrolled = || credentials::enrolled_with(&config.state_dir) == Some(coordinator_url(config));
    if enrolled() || config.read_api_key().map_err(EnrollError::ApiKey)?.is_some() {
        return Ok(true);
    }
    tracing::warn!("{NOT_ENROLLED}");
    notify::ready("not enrolled; run: island-agent enroll --coordinator URL");
    let owner = async {
        while !enrolled() {
            notify::watchdog();
            tokio::time::sleep(credentials::ASK_EVERY).await;
        }
    };
    tokio::select! {
        biased;
        () = asked_to_stop() => Ok(false),
        () = owner => Ok(true),
    }
}

fn prepare(config: &Config) -> Result<(Identity, Enrollment), EnrollError> {
    let state = config.state_dir.clone();
    if !state.exists() {
        let made = fs::create_dir_all(&state)
            .and_then(|()| fs::set_permissions(&state, fs::Permissions::from_mode(0o700)));
        made.map_err(|error| EnrollError::Folder(state.clone(), error))?;
    }
    let identity = Identity::load_or_make(&state, || HostId(uuid::Uuid::new_v4()))?;
    let enrollment = Enrollment {
        api_key: config.read_api_key().map_err(EnrollError::ApiKey)?,
        api_url: coordinator_url(config),
        name: config.name.clone(),
        state_dir: state,
    };
    Ok((identity, enrollment))
}

/// Gives what root wrote to whom the folder belongs to: the agent runs as somebody else.
fn hand_over(state: &Path) -> Result<(), EnrollError> {
    let failed = |error| EnrollError::Folder(state.to_owned(), error);
    let owner = fs::metadata(state).map_err(failed)?;
    for entry in fs::read_dir(state).map_err(failed)?.flatten() {
        let ours = entry.metadata().map_err(failed)?;
        if ours.is_file() && ours.uid() != owner.uid() {
            std::os::unix::fs::chown(entry.path(), Some(owner.uid()), Some(owner.gid())).map_err(failed)?;
        }
    }
    Ok(())
}

/// `ABCDEF` as `ABC-DEF`.
fn spaced(code: &str) -> String {
    let (first, rest) = code.split_at_checked(code.len() / 2).unwrap_or((code, ""));
    format!("{first}-{rest}")
}
