//! Whether a Cargo can be served now, for requests that wait for their job.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use island_protocol::ids::{AccountId, Slug};
use island_protocol_api::{preferences::Preferences, problem::Code};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{
    Api, ApiError,
    http::{auth::Caller, idempotency::IdempotencyKey},
};
use island_coordinator_domain::{
    catalogue::Cargo,
    fleet::{Candidates, Outlook, Snapshot},
    placement::{Nearness, Reason, Selection, reason},
};
use island_coordinator_execution::job_handle::JobHandle;
use island_coordinator_storage::idempotency;

/// Seconds after which another try may find an Island that was offline or could not reach a hub.
const RETRY_AFTER_S: u64 = 10;

/// The Islands that may serve a request. Each Cargo is compared with them once.
#[derive(Debug)]
pub(crate) struct Allowed {
    islands: Arc<Snapshot>,
    preferences: Preferences,
    /// `None` if every Island may.
    selected: Option<(Selection, Outlooks)>,
}

/// Outlooks on the allowed Islands, by Cargo.
type Outlooks = Mutex<HashMap<Slug, Arc<Outlook>>>;

impl Allowed {
    /// Islands of this moment that the preferences of an account's request allow.
    pub(crate) fn by_preferences(api: &Api, account: AccountId, preferences: &Preferences) -> Self {
        let selected = (!preferences.is_default()).then(|| {
            let preferences = preferences.clone();
            (Selection { account: Some(account), preferences, ..Selection::default() }, Outlooks::default())
        });
        let islands = api.fleet.snapshot(Instant::now());
        Self { islands, preferences: preferences.clone(), selected }
    }

    /// How near the files of a Cargo are to the nearest of them that can serve it now.
    pub(crate) fn nearest(&self, cargo: &Cargo) -> Option<Nearness> {
        self.outlook(cargo).nearest
    }

    fn outlook(&self, cargo: &Cargo) -> Arc<Outlook> {
        let Some((selection, known)) = &self.selected else { return self.islands.outlook(&cargo.spec) };
        let mut known = known.lock();
        let found = known.entry(cargo.spec.slug.clone());
        found.or_insert_with(|| Arc::new(self.islands.outlook_for(&cargo.spec, selection))).clone()
    }

    /// The Islands that can serve the Cargo, if one is known, for [`Request::candidates`](crate::native::jobs::submit::Request). Returns an error if
    /// none can and none will when jobs end: then waiting is in vain. A repeated request is answered with the first one's result
    /// instead.
    pub(crate) async fn check(
        &self,
        api: &Api,
        caller: &Caller,
        cargo: &Cargo,
        key: Option<&IdempotencyKey>,
    ) -> Result<Option<Candidates>, ApiError> {
        if !cargo.is_stored_as(&self.preferences.quantizations) {
            return Err(other_quantization());
        }
        let outlook = self.outlook(cargo);
        if outlook.is_hopeful() {
            return Ok(Some(Candidates::new(self.islands.clone(), outlook)));
        }
        if api.fleet.is_settling(Instant::now()) {
            return Ok(None);
        }
        if let Some(key) = key
            && idempotency::exists(api.store.reader(), &key.claim(caller.account, api.rules.idempotency_ms))
                .await?
        {
            return Ok(None);
        }
        let may_change = outlook.reasons.keys().any(|reason| !matches!(reason, Reason::NoRuntime));
        let reasons = outlook.reasons.iter().map(|(reason, count)| (reason.as_str().to_owned(), *count));
        let reasons = reasons.collect();
        if is_excluded(&reasons) {
            return Err(excluded(cargo.entry.slug.as_str()));
        }
        let error = unavailable(cargo.entry.slug.as_str(), &reasons);
        // An engine is not installed within a minute: a client that retries automatically would do so in vain.
        Err(if may_change || reasons.is_empty() { error.after(RETRY_AFTER_S) } else { error.without_retry() })
    }
}

/// The error for a job that no Island accepted in time, with the reason that its runner knows.
pub(crate) fn not_accepted(job: &JobHandle, slug: &str) -> ApiError {
    match job.waiting() {
        // `check` lets a request pass while the first heartbeat of an Island may arrive soon.
        Some(reasons) if is_excluded(&reasons) => excluded(slug),
        Some(reasons) => unavailable(slug, &reasons),
        None => {
            ApiError::new(Code::NoIslandAvailable, format!("no Island accepted the job of {slug} in time"))
        }
    }
}

/// Whether the request alone leaves no Island, by the numbers of Islands for each reason.
fn is_excluded(reasons: &BTreeMap<String, u64>) -> bool {
    !reasons.is_empty() && reasons.keys().all(|reason| reason == Reason::Preferences.as_str())
}

/// The error for a model, or several, whose weights are stored in another way than the request allows.
pub(crate) fn other_quantization() -> ApiError {
    let message = "no requested model has one of these quantizations";
    ApiError::field(Code::ValidationError, "preferences.quantizations", message)
}

fn excluded(slug: &str) -> ApiError {
    let message = format!("the request excludes every Island that could serve {slug}");
    ApiError::field(Code::ValidationError, "preferences", message)
}

fn unavailable(slug: &str, reasons: &BTreeMap<String, u64>) -> ApiError {
    let message = format!("no Island can serve {slug} now: {}", reason::in_words(reasons));
    ApiError::new(Code::NoIslandAvailable, message)
}
