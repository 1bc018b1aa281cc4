//! The commands `enroll` and `leave`. They run beside the agent, which notices the result.

use std::{
    fs, io,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::PathBuf,
};

use island_daemon::notify;
use island_protocol::ids::HostId;
use nix::unistd::Uid;
#[cfg(target_os = "linux")]
use nix::unistd::{Gid, setgid, setgroups, setuid};

use crate::{
    agent::{coordinator_url, stop_requested},
    clock,
    config::{ApiKeyError, Config},
    disk::state_lock::{LockError, StateLock},
    identity::{Identity, IdentityError},
    link::credentials::{self, CredentialsError, Enrollment},
};

/// An Island that cannot be enrolled or removed from the network.
#[derive(Debug, thiserror::Error)]
pub enum EnrollError {
    /// The state folder cannot be created or used with the rights of its owner.
    #[error("use the state folder {0}")]
    Folder(PathBuf, #[source] io::Error),
    /// No agent can run on the state folder.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The identity cannot be read or written.
    #[error("load this Island's identity")]
    Identity(#[from] IdentityError),
    /// The API key cannot be read.
    #[error(transparent)]
    ApiKey(#[from] ApiKeyError),
    /// The coordinator refused, or the credentials cannot be stored.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
}

/// Shown if an Island is not enrolled.
pub const NOT_ENROLLED: &str = "not enrolled; run `island-agent enroll --coordinator URL`";

/// Whether this Island is certainly not enrolled; `false` if its folder cannot be read.
pub fn is_not_enrolled(config: &Config) -> bool {
    let is_readable = match fs::read_dir(&config.state_dir) {
        Ok(_) => true,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    };
    let has_key = !matches!(config.read_api_key(), Ok(None));
    is_readable && !has_key && credentials::enrolled_with(&config.state_dir).is_none()
}

/// Ties this Island to an account. `show` receives what the owner must read while this waits; returns the text for the end.
pub async fn enroll(config: &Config, show: impl Fn(&str)) -> Result<String, EnrollError> {
    let state = &config.state_dir;
    if !state.exists() {
        let created = fs::create_dir_all(state)
            .and_then(|()| fs::set_permissions(state, fs::Permissions::from_mode(0o700)));
        created.map_err(|error| EnrollError::Folder(state.clone(), error))?;
    }
    let identity = Identity::load_or_create(state, || HostId(uuid::Uuid::new_v4()))?;
    let enrollment = enrollment(config)?;
    credentials::enroll(&identity, &enrollment, |pairing| {
        let (code, until) = (spaced(&pairing.code), clock::local(pairing.expires_at));
        show(&format!("This Island's code is {code}, valid until {until}. Confirm it with your account:\n\n    island hosts pair {code}\n\n"));
    })
    .await?;
    let (name, url) = (&enrollment.name, &enrollment.api_url);
    let next = if StateLock::is_held(state) { TAKEN_OVER } else { START };
    Ok(format!("{name} ({}) now belongs to your account at {url}.\n{next}", identity.host_id()))
}

/// Effect of an enrollment on an agent that runs.
const TAKEN_OVER: &str = "The running agent starts there within seconds, unless its settings name another coordinator, which \
                          `island-agent status` then states.\n";

/// What is left to do after an enrollment if no agent runs.
const START: &str =
    "No agent runs on this machine. Start it: sudo systemctl start island-agent, or island-agent run.\n";

/// Removes this Island from the network; returns a text for its owner. On a machine that never joined one it changes nothing.
pub async fn leave(config: &Config) -> Result<String, EnrollError> {
    let state = &config.state_dir;
    if !Identity::exists(state)? {
        return Ok(format!(
            "This machine never joined a network: there is no identity in {}.\n",
            state.display()
        ));
    }
    let identity = Identity::load_or_create(state, || HostId(uuid::Uuid::new_v4()))?;
    let enrollment = enrollment(config)?;
    credentials::leave(&identity, &enrollment).await?;
    let next = if StateLock::is_held(state) { " Stop the agent: it gets no jobs any more." } else { "" };
    Ok(format!("{} ({}) has left the network.{next}\n", enrollment.name, identity.host_id()))
}

/// Waits until this Island is enrolled. Returns `false` if a signal to stop arrives first. Called before an agent is built, because
/// `enroll` may name another coordinator.
pub async fn wait_enrolled(config: &Config) -> Result<bool, EnrollError> {
    let enrolled = || credentials::enrolled_with(&config.state_dir) == Some(coordinator_url(config));
    if enrolled() || config.read_api_key()?.is_some() {
        return Ok(true);
    }
    tracing::warn!("{NOT_ENROLLED}");
    notify::ready("not enrolled; run: island-agent enroll --coordinator URL");
    let owner = async {
        // Locked meanwhile, so that `enroll` can determine whether an agent runs. It may have to create the folder first.
        let mut lock = None;
        while !enrolled() {
            if lock.is_none() && config.state_dir.is_dir() {
                lock = Some(StateLock::acquire(&config.state_dir)?);
            }
            notify::watchdog();
            tokio::time::sleep(credentials::POLL_EVERY).await;
        }
        Ok(true)
    };
    tokio::select! {
        biased;
        () = stop_requested() => Ok(false),
        enrolled = owner => enrolled,
    }
}

fn enrollment(config: &Config) -> Result<Enrollment, EnrollError> {
    Ok(Enrollment {
        api_key: config.read_api_key()?,
        api_url: coordinator_url(config),
        name: config.name.clone(),
        allow_plaintext: config.allow_plaintext,
        state_dir: config.state_dir.clone(),
    })
}

/// Gives up root's rights for those of the user to whom the state folder belongs. That user may put links there, which must
/// not be followed with root's rights; what is written belongs to the agent. The API key is read before.
///
/// Holds for all threads of the process, for good.
pub fn become_owner(config: &mut Config) -> Result<(), EnrollError> {
    if !Uid::effective().is_root() {
        return Ok(());
    }
    let failed = |error| EnrollError::Folder(config.state_dir.clone(), error);
    let owner = match fs::metadata(&config.state_dir) {
        Ok(about) => (about.uid(), about.gid()),
        // It is created, and belongs to root.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    if owner.0 == 0 {
        return Ok(());
    }
    let api_key = config.read_api_key()?;
    give_up_rights(owner.0, owner.1).map_err(failed)?;
    (config.api_key, config.api_key_file) = (api_key, None);
    Ok(())
}

/// Continues with the rights of a user and of one group. Only root may call it.
#[cfg(target_os = "linux")]
fn give_up_rights(uid: u32, gid: u32) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    // Called by root, these set the saved ids, too: there is no way back.
    setgroups(&[gid]).and_then(|()| setgid(gid)).and_then(|()| setuid(uid)).map_err(io::Error::from)
}

/// Refuses: macOS asks its directory service for the groups of a process, so that root's cannot be given up reliably.
#[cfg(not(target_os = "linux"))]
fn give_up_rights(uid: u32, _gid: u32) -> io::Result<()> {
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        format!("it belongs to user {uid}: run this as that user, not as root"),
    ))
}

/// `ABCDEF` as `ABC-DEF`.
fn spaced(code: &str) -> String {
    let (first, rest) = code.split_at_checked(code.len() / 2).unwrap_or((code, ""));
    format!("{first}-{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn leaving_without_having_joined_creates_nothing() {
        let folder = tempfile::tempdir().expect("temporary folder");
        for state in [folder.path().to_owned(), folder.path().join("absent")] {
            let config = Config { state_dir: state, ..Config::default() };
            let text = leave(&config).await.expect("nothing to do");
            assert!(text.starts_with("This machine never joined a network"), "{text}");
        }
        assert_eq!(fs::read_dir(folder.path()).expect("list").count(), 0);
    }

    #[tokio::test]
    async fn a_missing_key_file_is_named() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let config = Config {
            state_dir: folder.path().to_owned(),
            api_key_file: Some("/absent/key".into()),
            ..Config::default()
        };
        let error = enroll(&config, |_| ()).await.expect_err("no key");
        assert!(error.to_string().contains("/absent/key"), "{error}");
    }

    /// Names the state folder to the process that the test below starts.
    #[cfg(target_os = "linux")]
    const STATE: &str = "ISLAND_TEST_ENROLLMENT_STATE";
    /// Its exit status if it may not open its identity.
    #[cfg(target_os = "linux")]
    const REFUSED: i32 = 3;

    /// As `sudo island-agent enroll` in a folder in which a worker that was taken over has prepared a link.
    #[cfg(target_os = "linux")]
    #[test]
    fn root_does_not_follow_links_of_the_folders_owner() {
        if let Some(state) = std::env::var_os(STATE) {
            // Giving up rights holds for the whole process.
            let mut config = Config { state_dir: state.into(), ..Config::default() };
            become_owner(&mut config).expect("rights are given up");
            assert!(setuid(Uid::from_raw(0)).is_err(), "there is no way back");
            let identity = Identity::load_or_create(&config.state_dir, || HostId(uuid::Uuid::nil()));
            std::process::exit(if identity.is_ok() { 0 } else { REFUSED });
        }
        if !Uid::effective().is_root() {
            return island_testing::skip("giving up root's rights", "only root has them");
        }
        let folder = tempfile::tempdir().expect("temporary folder");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("permissions");
        let (state, precious) = (folder.path().join("state"), folder.path().join("precious"));
        let enroll = || {
            std::process::Command::new(std::env::current_exe().expect("this test"))
                .args(["--exact", "enrollment::tests::root_does_not_follow_links_of_the_folders_owner"])
                .env(STATE, &state)
                .status()
                .expect("the test runs again")
                .code()
        };
        fs::create_dir(&state).expect("a folder");
        fs::write(&precious, "precious").expect("write");
        std::os::unix::fs::symlink(&precious, state.join("identity.lock")).expect("a link");
        std::os::unix::fs::chown(&state, Some(65534), Some(65534)).expect("chown");
        assert_eq!(enroll(), Some(REFUSED), "the lock is a link to root's file");
        assert_eq!(fs::read_to_string(&precious).expect("read"), "precious");
        assert_eq!(fs::metadata(&precious).expect("metadata").uid(), 0);
        // Without the link, everything belongs to the owner of the folder.
        fs::remove_file(state.join("identity.lock")).expect("removed");
        assert_eq!(enroll(), Some(0));
        let entries: Vec<_> = fs::read_dir(&state).expect("list").flatten().collect();
        assert!(
            entries.len() == 2
                && entries.iter().all(|entry| entry.metadata().expect("metadata").uid() == 65534)
        );
    }
}
