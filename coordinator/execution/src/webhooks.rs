//! Sends events to webhooks until they are accepted: at least once, signed, with pauses that grow.
//!
//! Events are rows that the transactions of jobs and batches wrote. An attempt takes a row until a lease ends, so that one
//! coordinator at a time sends it, and another one does if that coordinator dies.

pub mod address;
mod backoff;
mod sender;
pub mod signature;

use std::{collections::HashMap, time::Duration};

use fail::fail_point;
use futures::{StreamExt as _, stream::FuturesUnordered};
use island_daemon::chain::Chain;
use island_protocol::ids::WebhookId;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use backoff::Pauses;
use island_coordinator_domain::{
    clock::Clock,
    config,
    metrics::{self, Attempt},
};
use island_coordinator_storage::{
    Store, StoreError, commit,
    webhook::{self, Due},
};
pub use sender::Sender;

/// Time between two reads of what is due.
const INTERVAL: Duration = Duration::from_secs(1);
/// Time of an attempt beyond the wait for an answer, before another coordinator may try.
const LEASE_MARGIN_MS: i64 = 30_000;

/// The task.
#[derive(Debug)]
pub struct Webhooks {
    pub store: Store,
    pub clock: Clock,
    pub settings: config::Webhooks,
    pub sender: Sender,
    pub metrics: metrics::Webhooks,
    pub stop: CancellationToken,
}

impl Webhooks {
    /// Runs until `stop` is triggered. What is being sent then is sent again after its lease.
    pub async fn run(self) {
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut attempts = FuturesUnordered::new();
        let mut busy: HashMap<WebhookId, usize> = HashMap::new();
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                Some(webhook) = attempts.next(), if !attempts.is_empty() => release(&mut busy, webhook),
                _ = ticks.tick() => {}
            }
            let free = (self.settings.concurrent as usize).saturating_sub(attempts.len());
            if free == 0 {
                continue;
            }
            let due = tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                due = webhook::due(self.store.reader(), self.clock.now()) => due,
            };
            let due = due.unwrap_or_else(|error| {
                tracing::warn!(error = %Chain(&error), "events for webhooks not read; will retry");
                Vec::new()
            });
            for due in chosen(due, &mut busy, free) {
                attempts.push(self.attempt(due));
            }
        }
    }

    /// Tries a delivery once. Returns its webhook.
    async fn attempt(&self, due: Due) -> WebhookId {
        if let Err(error) = self.try_attempt(&due).await {
            tracing::warn!(delivery = %due.id, error = %Chain(&error), "delivery to a webhook not recorded; it is repeated");
        }
        due.webhook
    }

    async fn try_attempt(&self, due: &Due) -> Result<(), StoreError> {
        fail_point!("webhooks.attempt", island_daemon::failpoint::crash);
        let lease_ms = i64::from(self.settings.timeout_s) * 1000 + LEASE_MARGIN_MS;
        let mut tx = self.store.begin().await?;
        let is_taken = webhook::take(&mut tx, due, self.clock.now().plus_ms(lease_ms)).await?;
        commit(tx).await?;
        if !is_taken {
            return Ok(());
        }
        let attempted = self.sender.send(due, self.clock.now()).await;
        let now = self.clock.now();
        let mut tx = self.store.begin().await?;
        if attempted.error.is_none() {
            webhook::delivered(&mut tx, due, &attempted, now).await?;
            commit(tx).await?;
            self.metrics.attempted(Attempt::Delivered);
            return Ok(());
        }
        let pauses = Pauses::of(&self.settings);
        let is_gone = attempted.is_gone();
        let next = pauses.next(due.attempts + 1, due.created_at, now, attempted.not_before, rand::random());
        let next = next.filter(|_| !is_gone);
        webhook::failed(&mut tx, due, &attempted, next, now).await?;
        let is_disabled = match pauses.disables_since(next, is_gone, now) {
            Some(since) => webhook::disable(&mut tx, due.webhook, since, now).await?,
            None => false,
        };
        commit(tx).await?;
        self.metrics.attempted(if next.is_none() { Attempt::GivenUp } else { Attempt::Postponed });
        if is_disabled {
            self.metrics.disabled();
            let why = if is_gone { "wants no more events" } else { "has failed for too long" };
            tracing::info!(webhook = %due.webhook, "webhook disabled: its address {why}");
        }
        Ok(())
    }
}

/// Those of the due deliveries that may begin, at most `free`.
fn chosen(due: Vec<Due>, busy: &mut HashMap<WebhookId, usize>, free: usize) -> Vec<Due> {
    let mut chosen = Vec::new();
    for due in due {
        let open = busy.entry(due.webhook).or_default();
        if *open < webhook::PER_WEBHOOK as usize && chosen.len() < free {
            *open += 1;
            chosen.push(due);
        }
    }
    busy.retain(|_, open| *open > 0);
    chosen
}

fn release(busy: &mut HashMap<WebhookId, usize>, webhook: WebhookId) {
    if let Some(open) = busy.get_mut(&webhook) {
        *open = open.saturating_sub(1);
        if *open == 0 {
            busy.remove(&webhook);
        }
    }
}
