//! The stream of job events. SQL has the events of ended jobs and Islands those of running ones, so the stream may discard its oldest
//! messages, but it must never refuse new ones.

use std::time::Duration;

use async_nats::jetstream::{
    self,
    account::Account,
    context::CreateStreamError,
    stream::{Config, DiscardPolicy, StorageType},
};
use island_daemon::chain::Chain;
use island_protocol::subjects::{self, JOB_EVENTS_STREAM};

/// How long ended streams can be replayed from the fabric.
const MAX_AGE: Duration = Duration::from_hours(1);
/// Largest share of the limit of the account that is requested, as a divisor. A server with less storage than its
/// account allows refuses it, and gets requests for a quarter of it, until it accepts or [`MIN_BYTES`] is reached.
const SHARE: i64 = 2;
const STEP: i64 = 4;
/// Below this size, a few jobs would discard each other's events.
const MIN_BYTES: i64 = 1 << 20;

/// Creates the stream if it does not exist, as after a restart of the server with an empty store, or updates one whose
/// size is not limited although the account is.
pub(super) async fn ensure(jetstream: &jetstream::Context, replicas: u8) -> Result<(), CreateStreamError> {
    let found = match jetstream.get_stream(JOB_EVENTS_STREAM).await {
        Ok(stream) => Some(stream.cached_info().config.clone()),
        Err(_) => None,
    };
    let replicas = usize::from(replicas);
    if found.as_ref().is_some_and(|config| config.max_bytes > 0 && config.num_replicas == replicas) {
        return Ok(());
    }
    let sizes = match jetstream.query_account().await {
        Ok(account) => sizes(&account, replicas),
        Err(error) => {
            tracing::debug!(error = %Chain(&error), "limits of the fabric's storage not read");
            Vec::new()
        }
    };
    for max_bytes in sizes {
        let made = match &found {
            Some(found) => {
                let discard = DiscardPolicy::Old;
                let config = Config { max_bytes, discard, num_replicas: replicas, ..found.clone() };
                jetstream.update_stream(config).await.map(|_| ())
            }
            None => jetstream.create_stream(config(max_bytes, replicas)).await.map(|_| ()),
        };
        match made {
            Ok(()) => return Ok(()),
            Err(error) => {
                tracing::debug!(max_bytes, error = %Chain(&error), "the fabric has less storage");
            }
        }
    }
    // Without a limit of its own it can fill the server's storage, and then refuses messages until the oldest are an hour old.
    jetstream.get_or_create_stream(config(-1, replicas)).await.map(|_| ())
}

fn config(max_bytes: i64, num_replicas: usize) -> Config {
    Config {
        name: JOB_EVENTS_STREAM.to_owned(),
        subjects: vec![subjects::ALL_JOB_EVENTS.to_owned()],
        max_age: MAX_AGE,
        max_bytes,
        discard: DiscardPolicy::Old,
        storage: StorageType::File,
        num_replicas,
        allow_direct: true,
        ..Default::default()
    }
}

/// Sizes to request, largest first; none if the account is not limited. A limit holds for all replicas together, unless it is
/// of a tier for this number of them.
fn sizes(account: &Account, replicas: usize) -> Vec<i64> {
    let tier = account.tiers.get(&format!("R{replicas}")).map(|tier| tier.limits);
    let share = if tier.is_some() { SHARE } else { SHARE * replicas as i64 };
    let limits = tier.unwrap_or(account.limits);
    let Some(limit) = limits.max_storage else { return Vec::new() };
    let largest = limits.storage_max_stream_bytes.filter(|largest| *largest > 0).unwrap_or(i64::MAX);
    let first = (limit / share).min(largest);
    std::iter::successors(Some(first), |size| Some(size / STEP))
        .take_while(|size| *size >= MIN_BYTES)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use async_nats::jetstream::account::{Limits, Tier};

    use super::*;

    fn limits(max_storage: Option<i64>) -> Limits {
        Limits { max_storage, ..Limits::default() }
    }

    #[test]
    fn a_share_of_the_limit_is_requested_and_less_where_it_is_refused() {
        let of = |limit| sizes(&Account { limits: limits(limit), ..Account::default() }, 1);
        assert_eq!(of(None), Vec::<i64>::new());
        assert_eq!(of(Some(32 << 20)), [16 << 20, 4 << 20, 1 << 20]);
        assert_eq!(of(Some(1 << 20)), Vec::<i64>::new());
        let tiers =
            HashMap::from([("R1".to_owned(), Tier { limits: limits(Some(4 << 20)), ..Tier::default() })]);
        assert_eq!(sizes(&Account { tiers, limits: limits(Some(0)), ..Account::default() }, 1), [2 << 20]);
        let capped = Limits { storage_max_stream_bytes: Some(3 << 20), ..limits(Some(1 << 30)) };
        assert_eq!(sizes(&Account { limits: capped, ..Account::default() }, 1), [3 << 20]);
        let three = Account { limits: limits(Some(24 << 20)), ..Account::default() };
        assert_eq!(sizes(&three, 3), [4 << 20, 1 << 20]);
    }
}
