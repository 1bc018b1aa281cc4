//! Enrollment and the short-lived credentials that result from it. They are stored, so that a restart needs no coordinator.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use island_coordinator_client::{Client, ClientError, backoff::Backoff};
use island_daemon::{chain::Chain, files::write_atomic, notify};
use island_protocol::{ids::AccountId, time::Timestamp};
use island_protocol_api::{HostCredentials, Pairing, claim::ClaimVerb};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::{
    sync::{Notify, watch},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::{clock, identity::Identity};

const FILE: &str = "credentials.json";
/// Maximum time between two reads of the clock: renewal must not be late after the machine was suspended.
const LOOK_EVERY: Duration = Duration::from_secs(20);
/// Age up to which credentials count as fresh, and are not renewed.
const FRESH_MS: u64 = 10_000;
/// Minimum time from obtaining credentials to their renewal.
const SHORTEST_MS: u64 = 1_000;
/// Time between two renewals if the coordinator does not know this Island.
const WHEN_UNKNOWN: Duration = Duration::from_mins(1);
/// Time to wait for renewed credentials before valid ones that are stored are used. Attempts of the last run may not
/// publish before, and their leases expire.
const STORED_AFTER: Duration = Duration::from_secs(2);
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
    /// The coordinator did not answer in the time after which stored credentials are used.
    #[error("no answer from the coordinator yet")]
    NoAnswer,
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

impl StoredCredentials {
    fn new(api_url: String, credentials: HostCredentials) -> Self {
        Self { api_url, since: clock::now(), credentials }
    }

    /// For how long they are valid, in milliseconds: as the token states, or less by this machine's clock. The
    /// clocks of coordinator and Island may differ, and the token is issued for both clocks of a coordinator whose clock
    /// has stepped.
    fn life_ms(&self) -> u64 {
        let by_clock = self.credentials.expires_at.unix_ms() - self.since.unix_ms();
        let lives = [stated_life_ms(&self.credentials.user_jwt), Some(by_clock)];
        let lives = lives.into_iter().flatten().filter_map(|ms| u64::try_from(ms).ok());
        lives.filter(|ms| *ms > 0).min().unwrap_or(0)
    }
}

/// For how long a token is valid from its issue, in milliseconds, if it states that.
fn stated_life_ms(jwt: &str) -> Option<i64> {
    #[derive(Deserialize)]
    struct Times {
        iat: i64,
        exp: i64,
    }
    let claims = URL_SAFE_NO_PAD.decode(jwt.split('.').nth(1)?).ok()?;
    let times: Times = serde_json::from_slice(&claims).ok()?;
    times.exp.checked_sub(times.iat)?.checked_mul(1_000)
}

/// Credentials with times on the clock that counts suspended time and does not step.
#[derive(Debug)]
struct Kept {
    stored: StoredCredentials,
    /// When they were obtained.
    obtained_ms: u64,
}

impl Kept {
    /// Credentials that were obtained just now.
    fn fresh(stored: StoredCredentials) -> Self {
        Self { stored, obtained_ms: clock::boot_ms() }
    }

    /// Credentials of an earlier run. Only the wall-clock time shows how old they are.
    fn of_file(stored: StoredCredentials) -> Self {
        let age_ms = u64::try_from(clock::now().unix_ms() - stored.since.unix_ms()).unwrap_or(0);
        Self { stored, obtained_ms: clock::boot_ms().saturating_sub(age_ms) }
    }

    fn is_fresh(&self, now_ms: u64) -> bool {
        now_ms < self.obtained_ms.saturating_add(FRESH_MS)
    }

    /// When four fifths of their validity have passed. New credentials are not due at once, whatever their times are: some that
    /// have expired by this machine's clock count as fresh.
    fn due_ms(&self) -> u64 {
        let pause = match self.stored.life_ms() {
            0 => FRESH_MS,
            life => (life / 5 * 4).max(SHORTEST_MS),
        };
        self.obtained_ms.saturating_add(pause)
    }
}

/// The current credentials.
#[derive(Debug)]
pub struct Credentials {
    identity: Arc<Identity>,
    http: Client,
    path: PathBuf,
    kept: Mutex<Kept>,
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
    /// Obtains credentials: the stored ones, renewed if the coordinator answers soon, or new ones by enrolling. Without
    /// valid ones, waits as long as the coordinator cannot be reached. Returns `None` if stopped.
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
            let valid = kept.clone().filter(|kept| kept.credentials.expires_at > clock::now());
            let asked = request(&http, &identity, enrollment, kept.is_some());
            let obtained = if valid.is_some() {
                timeout(STORED_AFTER, asked).await.unwrap_or(Err(CredentialsError::NoAnswer))
            } else {
                asked.await
            };
            let error = match obtained {
                Ok(credentials) => {
                    let fresh = StoredCredentials::new(enrollment.api_url.clone(), credentials);
                    keep(&path, &fresh);
                    return Ok(Some(Self::new(identity, http, path, Kept::fresh(fresh))));
                }
                Err(error) => error,
            };
            if let Some(valid) = valid {
                tracing::warn!(error = %Chain(&error), "using the stored credentials");
                let credentials = Self::new(identity, http, path, Kept::of_file(valid));
                if matches!(error, CredentialsError::NoAnswer) {
                    // With the time that a slow coordinator needs.
                    credentials.renew_now();
                }
                return Ok(Some(credentials));
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
        self.lock().stored.credentials.clone()
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
                    if self.lock().is_fresh(clock::boot_ms()) {
                        continue;
                    }
                }
                () = tokio::time::sleep(self.next_look()) => {
                    if clock::boot_ms() < self.lock().due_ms() {
                        continue;
                    }
                }
            }
            let renewed = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                renewed = self.renew() => renewed,
            };
            match renewed {
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
        let api_url = self.lock().stored.api_url.clone();
        // From the file: `island-agent enroll` may have moved the Island to another account meanwhile.
        let account = account(&self.path, &api_url);
        let credentials = renew(&self.http, &self.identity, account).await?;
        let fresh = StoredCredentials::new(api_url, credentials);
        // `island-agent enroll` may have named another coordinator meanwhile, with which the next start continues.
        if read(&self.path).is_none_or(|kept| kept.api_url == fresh.api_url) {
            keep(&self.path, &fresh);
        }
        *self.lock() = Kept::fresh(fresh);
        self.changed.send_modify(|number| *number += 1);
        Ok(())
    }

    fn next_look(&self) -> Duration {
        LOOK_EVERY.min(Duration::from_millis(self.lock().due_ms().saturating_sub(clock::boot_ms())))
    }

    fn new(identity: Arc<Identity>, http: Client, path: PathBuf, kept: Kept) -> Arc<Self> {
        let changed = watch::Sender::new(0);
        Arc::new(Self { identity, http, path, kept: Mutex::new(kept), changed, due: Notify::new() })
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, Kept> {
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
    let kept = StoredCredentials::new(enrollment.api_url.clone(), credentials);
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
    let first = introduce(http, identity, &enrollment.name, clock::steady()).await;
    if !is_of_signature(&first) {
        return first;
    }
    introduce(http, identity, &enrollment.name, clock::now()).await
}

/// Enrolls with a request that is signed with this time.
async fn introduce(
    http: &Client,
    identity: &Identity,
    name: &str,
    now: Timestamp,
) -> Result<HostCredentials, CredentialsError> {
    let answer = http.enroll(&identity.introduction(ClaimVerb::Enroll, name, now)).await;
    answer.map_err(|error| CredentialsError::Refused("enroll", error))
}

async fn renew(
    http: &Client,
    identity: &Identity,
    account: Option<AccountId>,
) -> Result<HostCredentials, CredentialsError> {
    let first = ask(http, identity, account, clock::steady()).await;
    if !is_of_signature(&first) {
        return first;
    }
    ask(http, identity, account, clock::now()).await
}

/// Renews with a request that is signed with this time.
async fn ask(
    http: &Client,
    identity: &Identity,
    account: Option<AccountId>,
    now: Timestamp,
) -> Result<HostCredentials, CredentialsError> {
    let answer = http.renew_credentials(&identity.request(ClaimVerb::Credentials, account, now)).await;
    answer.map_err(|error| CredentialsError::Refused("renew the credentials of", error))
}

/// Whether the coordinator refused a signature. Requests are signed with the time that does not follow steps of the clock;
/// if the clock was wrong at the start, the system clock may be right now.
fn is_of_signature(answer: &Result<HostCredentials, CredentialsError>) -> bool {
    let Err(CredentialsError::Refused(_, error)) = answer else { return false };
    error.refusal().is_some_and(|refusal| refusal.param.as_deref() == Some("signature"))
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

#[cfg(test)]
mod tests {
    use island_protocol::ids::HostId;

    use super::*;

    const HOUR_MS: i64 = 3_600_000;

    /// Credentials that a coordinator issued for an hour at `issued_ms`, with a token whose times are `stated` if there are any. The
    /// Island obtained them at `since_ms` by its own clock.
    fn stored(since_ms: i64, issued_ms: i64, stated: Option<(i64, i64)>) -> StoredCredentials {
        let claims = stated.map(|(iat, exp)| serde_json::json!({ "iat": iat, "exp": exp }).to_string());
        let user_jwt = format!("e30.{}.e30", URL_SAFE_NO_PAD.encode(claims.unwrap_or_default()));
        let credentials = HostCredentials {
            nats_url: String::new(),
            user_jwt,
            expires_at: Timestamp::from_unix_ms(issued_ms + HOUR_MS),
            coordinator_key: String::new(),
            account_id: None,
        };
        StoredCredentials { api_url: String::new(), since: Timestamp::from_unix_ms(since_ms), credentials }
    }

    #[test]
    fn credentials_are_renewed_in_their_life_whatever_the_clocks_say() {
        let now = 1_700_000_000_000;
        let seconds = now / 1000;
        let of_an_hour = Some((seconds, seconds + 3_600));
        for (since, issued, stated) in [
            (now, now, of_an_hour),
            (now, now, None),
            // The Island's clock is an hour and a half ahead, or behind.
            (now + HOUR_MS * 3 / 2, now, of_an_hour),
            (now - HOUR_MS * 3 / 2, now, of_an_hour),
            // The coordinator's clock has stepped an hour back: the token is valid by both of its clocks.
            (now, now, Some((seconds - 3_600, seconds + 3_600))),
        ] {
            assert_eq!(
                stored(since, issued, stated).life_ms(),
                HOUR_MS as u64,
                "{since} {issued} {stated:?}"
            );
        }
    }

    #[tokio::test]
    async fn a_renewal_does_not_undo_an_enrollment_with_another_coordinator() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join(FILE);
        let now = clock::now().unix_ms();
        let answer = serde_json::json!({ "data": stored(now, now, None).credentials });
        let router = axum::Router::new().fallback(move || std::future::ready(axum::Json(answer.clone())));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let own = format!("http://{}", listener.local_addr().expect("an address"));
        let server = tokio::spawn(async move { axum::serve(listener, router).await });
        let identity = Identity::load_or_create(folder.path(), || HostId(uuid::Uuid::from_u128(7)));
        let identity = Arc::new(identity.expect("an identity"));
        let http = Client::builder(&own).build().expect("a client");
        let of = |api_url: &str| StoredCredentials { api_url: api_url.to_owned(), ..stored(now, now, None) };
        store(&path, &of(&own)).expect("enrolled");
        let credentials = Credentials::new(identity, http, path.clone(), Kept::fresh(of(&own)));
        credentials.renew().await.expect("renewed");
        assert_eq!(enrolled_with(folder.path()).as_deref(), Some(own.as_str()));
        let other = "https://other.example.org";
        store(&path, &of(other)).expect("enrolled with another coordinator");
        credentials.renew().await.expect("renewed");
        assert_eq!(enrolled_with(folder.path()).as_deref(), Some(other));
        server.abort();
    }

    #[test]
    fn new_credentials_are_not_renewed_at_once() {
        let now = 1_700_000_000_000;
        let kept = Kept { stored: stored(now + 2 * HOUR_MS, now, None), obtained_ms: 5_000 };
        assert_eq!(kept.stored.life_ms(), 0, "they have expired by this clock");
        assert_eq!(kept.due_ms(), 5_000 + FRESH_MS);
        let short = Kept { stored: stored(now + HOUR_MS - 100, now, None), obtained_ms: 5_000 };
        assert_eq!(short.due_ms(), 5_000 + SHORTEST_MS);
        assert!(kept.is_fresh(5_000 + FRESH_MS - 1) && !kept.is_fresh(5_000 + FRESH_MS));
    }
}
