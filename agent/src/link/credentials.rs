//! Enrollment and the short-lived credentials that result from it. They are stored, so that a restart needs no coordinator.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use island_coordinator_client::{Client, ClientError, backoff::Backoff};
use island_daemon::{chain::Chain, files::write_atomic, notify};
use island_protocol::{
    api::{HostCredentials, Pairing, claim::ClaimVerb},
    ids::AccountId,
    time::Timestamp,
};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::{clock, identity::Identity};

const FILE: &str = "credentials.json";
/// Maximum time between two reads of the wall-clock time: renewal must not be late after the machine was suspended.
const LOOK_EVERY: Duration = Duration::from_secs(20);
/// Age up to which credentials count as fresh.
const FRESH_MS: i64 = 10_000;
/// Time between two renewals if the coordinator does not know this Island.
const WHEN_UNKNOWN: Duration = Duration::from_mins(1);
/// Time between two polls whether the owner has confirmed the code.
pub const POLL_EVERY: Duration = Duration::from_secs(1);

/// Credentials that cannot be obtained.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// The coordinator refused.
    #[error("{0} this Island")]
    Refused(&'static str, #[source] ClientError),
    /// Not enrolled, and there is no API key to enroll with.
    #[error("not enrolled; run `island-agent enroll --coordinator URL`")]
    NoApiKey,
    /// The code was not confirmed.
    #[error("the code was not confirmed within ten minutes")]
    NotPaired,
    /// The API key cannot be read.
    #[error("read the API key")]
    ReadKey(#[source] io::Error),
    /// The credentials cannot be stored.
    #[error("write {path}")]
    Store {
        /// The file.
        path: PathBuf,
        /// Why it cannot be written.
        #[source]
        source: io::Error,
    },
}

impl CredentialsError {
    /// Whether the coordinator does not know this Island: it left, or never enrolled.
    fn is_unknown_here(&self) -> bool {
        matches!(self, Self::Refused(_, error) if error.code() == Some("host_not_found"))
    }

    fn is_transient(&self) -> bool {
        matches!(self, Self::Refused(_, error) if error.is_transient())
    }
}

/// The stored credentials, and the time at which they were obtained.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct StoredCredentials {
    api_url: String,
    since: Timestamp,
    credentials: HostCredentials,
}

/// The current credentials.
#[derive(Debug)]
pub struct Credentials {
    identity: Arc<Identity>,
    http: Client,
    path: PathBuf,
    kept: Mutex<StoredCredentials>,
    changed: watch::Sender<u64>,
    due: Notify,
}

/// What an Island sends when it enrolls.
#[derive(Debug, Clone)]
pub struct Enrollment {
    /// Folder in which credentials are stored.
    pub state_dir: PathBuf,
    /// Address of the coordinator.
    pub api_url: String,
    /// The owner's API key, needed only to enroll.
    pub api_key: Option<String>,
    /// Name of the Island.
    pub name: String,
    /// Whether the address may be used without encryption.
    pub allow_plaintext: bool,
}

impl Enrollment {
    fn client(&self, key: Option<String>) -> Result<Client, ClientError> {
        let builder = Client::builder(&self.api_url).allow_plaintext(self.allow_plaintext);
        match key {
            Some(key) => builder.key(key).build(),
            None => builder.build(),
        }
    }
}

impl Credentials {
    /// Obtains credentials: the stored ones, renewed if the coordinator can be reached, or new ones by enrolling. Waits as long as the
    /// coordinator cannot be reached. Returns `None` if stopped.
    pub async fn obtain(
        identity: Arc<Identity>,
        enrollment: &Enrollment,
        stop: &CancellationToken,
    ) -> Result<Option<Arc<Self>>, CredentialsError> {
        let refused = |error| CredentialsError::Refused("enroll", error);
        let http = enrollment.client(enrollment.api_key.clone()).map_err(refused)?;
        let path = enrollment.state_dir.join(FILE);
        let kept = read(&path).filter(|kept| kept.api_url == enrollment.api_url);
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5), u32::MAX);
        loop {
            let obtained = request(&http, &identity, enrollment, kept.is_some()).await;
            let error = match obtained {
                Ok(credentials) => {
                    let fresh = StoredCredentials {
                        api_url: enrollment.api_url.clone(),
                        since: clock::now(),
                        credentials,
                    };
                    keep(&path, &fresh);
                    return Ok(Some(Self::new(identity, http, path, fresh)));
                }
                Err(error) => error,
            };
            if let Some(kept) = kept.clone().filter(|kept| kept.credentials.expires_at > clock::now()) {
                tracing::warn!(error = %Chain(&error), "using the stored credentials");
                return Ok(Some(Self::new(identity, http, path, kept)));
            }
            if !error.is_transient() {
                return Err(error);
            }
            tracing::warn!(error = %Chain(&error), "waiting for the coordinator");
            notify::ready("waiting for the coordinator");
            notify::watchdog();
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(None),
                _ = backoff.wait(None) => {}
            }
        }
    }

    /// The current credentials.
    pub fn current(&self) -> HostCredentials {
        self.lock().credentials.clone()
    }

    /// Changes with each renewal.
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Requests a renewal now.
    pub fn renew_now(&self) {
        self.due.notify_one();
    }

    /// Renews the credentials before they expire, until stopped.
    pub async fn run(&self, stop: CancellationToken) {
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = self.due.notified() => {
                    // A fabric that cannot be reached causes repeated requests; credentials that are still fresh would not help.
                    if clock::now() < self.lock().since.plus_ms(FRESH_MS) {
                        continue;
                    }
                }
                () = tokio::time::sleep(self.next_look()) => {
                    if clock::now() < self.renewal_due() {
                        continue;
                    }
                }
            }
            match self.renew().await {
                Ok(()) => tracing::info!("renewed the fabric credentials"),
                Err(error) => {
                    tracing::warn!(error = %Chain(&error), "cannot renew the fabric credentials");
                    let pause = if error.is_unknown_here() { WHEN_UNKNOWN } else { Duration::from_secs(2) };
                    tokio::select! {
                        biased;
                        () = stop.cancelled() => return,
                        () = tokio::time::sleep(pause) => {}
                    }
                }
            }
        }
    }

    async fn renew(&self) -> Result<(), CredentialsError> {
        let api_url = self.lock().api_url.clone();
        // From the file: `island-agent enroll` may have moved the Island to another account meanwhile.
        let account = account(&self.path, &api_url);
        let credentials = renew(&self.http, &self.identity, account).await?;
        let fresh = StoredCredentials { since: clock::now(), credentials, api_url };
        keep(&self.path, &fresh);
        *self.lock() = fresh;
        self.changed.send_modify(|number| *number += 1);
        Ok(())
    }

    fn next_look(&self) -> Duration {
        let left_ms = self.renewal_due().unix_ms() - clock::now().unix_ms();
        LOOK_EVERY.min(Duration::from_millis(left_ms.max(0) as u64))
    }

    /// When four fifths of their validity have passed.
    fn renewal_due(&self) -> Timestamp {
        let kept = self.lock();
        let life = kept.credentials.expires_at.unix_ms() - kept.since.unix_ms();
        kept.since.plus_ms(life * 4 / 5)
    }

    fn new(identity: Arc<Identity>, http: Client, path: PathBuf, kept: StoredCredentials) -> Arc<Self> {
        let changed = watch::Sender::new(0);
        Arc::new(Self { identity, http, path, kept: Mutex::new(kept), changed, due: Notify::new() })
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, StoredCredentials> {
        self.kept.lock()
    }
}

/// Enrolls with the owner's API key, or shows a code and waits until it is confirmed. Stores the credentials for the agent.
pub async fn enroll(
    identity: &Identity,
    enrollment: &Enrollment,
    show: impl FnOnce(&Pairing),
) -> Result<(), CredentialsError> {
    let refused = |what| move |error| CredentialsError::Refused(what, error);
    let http = enrollment.client(enrollment.api_key.clone()).map_err(refused("enroll"))?;
    let credentials = if enrollment.api_key.is_some() {
        request(&http, identity, enrollment, false).await?
    } else {
        let pairing =
            http.start_pairing(&identity.introduction(ClaimVerb::Pair, &enrollment.name, clock::now())).await;
        let pairing = pairing.map_err(refused("pair"))?;
        show(&pairing);
        confirmed(&http, identity, &pairing).await?
    };
    let kept = StoredCredentials { api_url: enrollment.api_url.clone(), since: clock::now(), credentials };
    store(&enrollment.state_dir.join(FILE), &kept)
}

/// Removes this Island from the network, and deletes its credentials.
pub async fn leave(identity: &Identity, enrollment: &Enrollment) -> Result<(), CredentialsError> {
    let refused = |error| CredentialsError::Refused("remove from the network", error);
    let http = enrollment.client(None).map_err(refused)?;
    let path = enrollment.state_dir.join(FILE);
    let request = identity.request(ClaimVerb::Leave, account(&path, &enrollment.api_url), clock::now());
    match http.leave(&request).await {
        // It has already left.
        Err(error) if error.code() != Some("host_not_found") => return Err(refused(error)),
        _ => {}
    }
    match fs::remove_file(&path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(CredentialsError::Store { path, source })
        }
        _ => Ok(()),
    }
}

/// Address of the coordinator that this Island enrolled with.
pub fn enrolled_with(state: &Path) -> Option<String> {
    Some(read(&state.join(FILE))?.api_url)
}

/// Polls for credentials until the code is confirmed or has expired.
async fn confirmed(
    http: &Client,
    identity: &Identity,
    pairing: &Pairing,
) -> Result<HostCredentials, CredentialsError> {
    loop {
        match renew(http, identity, None).await {
            Err(CredentialsError::Refused(_, error))
                if error.code() == Some("host_not_found") || error.is_transient() => {}
            other => return other,
        }
        if clock::now() > pairing.expires_at {
            return Err(CredentialsError::NotPaired);
        }
        tokio::time::sleep(POLL_EVERY).await;
    }
}

/// Renews if the Island is enrolled; otherwise, or if the coordinator does not know it any more, enrolls.
async fn request(
    http: &Client,
    identity: &Identity,
    enrollment: &Enrollment,
    is_enrolled: bool,
) -> Result<HostCredentials, CredentialsError> {
    if is_enrolled {
        let account = account(&enrollment.state_dir.join(FILE), &enrollment.api_url);
        match renew(http, identity, account).await {
            Err(CredentialsError::Refused(_, error))
                if error.code() == Some("host_not_found") && enrollment.api_key.is_some() => {}
            other => return other,
        }
    }
    if enrollment.api_key.is_none() {
        return Err(CredentialsError::NoApiKey);
    }
    http.enroll(&identity.introduction(ClaimVerb::Enroll, &enrollment.name, clock::now()))
        .await
        .map_err(|error| CredentialsError::Refused("enroll", error))
}

async fn renew(
    http: &Client,
    identity: &Identity,
    account: Option<AccountId>,
) -> Result<HostCredentials, CredentialsError> {
    let answer =
        http.renew_credentials(&identity.request(ClaimVerb::Credentials, account, clock::now())).await;
    answer.map_err(|error| CredentialsError::Refused("renew the credentials of", error))
}

/// The account of the stored credentials, if they are of this coordinator and name one.
fn account(path: &Path, api_url: &str) -> Option<AccountId> {
    read(path).filter(|kept| kept.api_url == api_url)?.credentials.account_id
}

fn read(path: &Path) -> Option<StoredCredentials> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// Stores credentials that are valid without it: only the next start needs the file.
fn keep(path: &Path, kept: &StoredCredentials) {
    if let Err(error) = store(path, kept) {
        tracing::warn!(error = %Chain(&error), "the credentials cannot be stored");
    }
}

fn store(path: &Path, kept: &StoredCredentials) -> Result<(), CredentialsError> {
    let failed = |source| CredentialsError::Store { path: path.to_owned(), source };
    let bytes = serde_json::to_vec(kept).map_err(|error| failed(error.into()))?;
    write_atomic(path, &bytes, 0o600).map_err(failed)
}
