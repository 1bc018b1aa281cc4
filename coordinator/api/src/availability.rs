//! Whether a Cargo can be served now, for requests that wait for their job.

use std::{collections::BTreeMap, sync::Arc};

use island_protocol::{ids::AccountId, preferences::Preferences, problem::Code};
use tokio::time::Instant;

use super::{Api, ApiError, auth::Caller, idempotency::IdempotencyKey};
use island_coordinator_domain::{
    catalogue::Cargo,
    fleet::Snapshot,
    placement::{self, Nearness, Reason, Selection, reason},
};
use island_coordinator_execution::job_handle::JobHandle;
use island_coordinator_storage::idempotency;

/// Seconds after which another try may find an Island that was offline or could not reach a hub.
const RETRY_AFTER_S: u64 = 10;

/// The Islands that may serve a request.
#[derive(Debug)]
pub(super) struct Allowed {
    islands: Arc<Snapshot>,
    /// `None` if every Island may.
    selection: Option<Selection>,
}

impl Allowed {
    /// Those that the preferences of an account's request leave.
    pub(super) fn of(api: &Api, account: AccountId, preferences: &Preferences) -> Self {
        let selection = (!preferences.is_default()).then(|| Selection {
            account: Some(account),
            preferences: preferences.clone(),
            ..Selection::default()
        });
        Self { islands: api.execution.context().fleet.snapshot(Instant::now()), selection }
    }

    /// How near the files of a Cargo are to the nearest of them that can serve it now.
    pub(super) fn nearest(&self, cargo: &Cargo) -> Option<Nearness> {
        let Some(selection) = &self.selection else { return self.islands.nearest(&cargo.spec) };
        let candidates = self.islands.candidates();
        candidates.filter_map(|island| placement::usable_by(&cargo.spec, selection, &island).ok()).min()
    }
}

/// Returns an error if no Island can serve the Cargo and none will when jobs end: then waiting is in vain. A repeated request is
/// answered with the first one's result instead.
pub(super) async fn check(
    api: &Api,
    caller: &Caller,
    cargo: &Cargo,
    preferences: &Preferences,
    key: Option<&IdempotencyKey>,
) -> Result<(), ApiError> {
    if !cargo.is_stored_as(&preferences.quantizations) {
        return Err(other_quantization());
    }
    let mut reasons: BTreeMap<Reason, u64> = BTreeMap::new();
    let context = api.execution.context();
    let now = Instant::now();
    let islands = context.fleet.snapshot(now);
    let selection =
        Selection { account: Some(caller.account), preferences: preferences.clone(), ..Selection::default() };
    for island in islands.candidates() {
        match placement::usable_by(&cargo.spec, &selection, &island) {
            Err(reason) if !reason.is_temporary() => *reasons.entry(reason).or_default() += 1,
            Ok(_) | Err(_) => return Ok(()),
        }
    }
    if context.fleet.is_settling(now) {
        return Ok(());
    }
    if let Some(key) = key
        && idempotency::exists(context.store.reader(), &key.claim(caller.account, api.rules.idempotency_ms))
            .await?
    {
        return Ok(());
    }
    let may_change = reasons.keys().any(|reason| !matches!(reason, Reason::NoRuntime));
    let reasons = reasons.into_iter().map(|(reason, count)| (reason.as_str().to_owned(), count)).collect();
    if is_excluded(&reasons) {
        return Err(excluded(cargo.entry.slug.as_str()));
    }
    let error = unavailable(cargo.entry.slug.as_str(), &reasons);
    // An engine is not installed within a minute: a client that retries automatically would do so in vain.
    Err(if may_change || reasons.is_empty() { error.after(RETRY_AFTER_S) } else { error.without_retry() })
}

/// The error for a job that no Island accepted in time, with the reason that its runner knows.
pub(super) fn not_accepted(job: &JobHandle, slug: &str) -> ApiError {
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
pub(super) fn other_quantization() -> ApiError {
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
