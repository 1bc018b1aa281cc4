//! Limits the connections to each host, and sends it no request while it accepts none.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

/// Maximum number of connections to one host, for all files together.
const CONNECTIONS: usize = 12;

/// All hosts that are connected, or that accept no requests for now.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hosts(Arc<Mutex<BTreeMap<String, Host>>>);

#[derive(Debug)]
struct Host {
    permits: Arc<Semaphore>,
    closed_until: Option<Instant>,
}

impl Host {
    fn is_idle(&self, now: Instant) -> bool {
        self.permits.available_permits() == CONNECTIONS
            && Arc::strong_count(&self.permits) == 1
            && self.closed_until.is_none_or(|until| until <= now)
    }
}

impl Hosts {
    /// Waits for a connection, which is in use until the result is dropped.
    ///
    /// # Errors
    /// The time for which the host still accepts no requests.
    pub(crate) async fn enter(&self, host: &str) -> Result<OwnedSemaphorePermit, Duration> {
        self.check(host)?;
        let permits = Arc::clone(&self.host(host, |known| Arc::clone(&known.permits)));
        let permit = permits.acquire_owned().await;
        self.check(host)?;
        Ok(permit.expect("the semaphore is never closed"))
    }

    /// Notes that a host accepts no requests for this time. A time beyond what the clock can represent is not noted.
    pub(crate) fn close(&self, host: &str, time: Duration) {
        let until = Instant::now().checked_add(time);
        self.host(host, |known| known.closed_until = known.closed_until.max(until));
    }

    fn check(&self, host: &str) -> Result<(), Duration> {
        let until = self.lock().get(host).and_then(|known| known.closed_until);
        match until.map(|until| until.saturating_duration_since(Instant::now())) {
            Some(left) if !left.is_zero() => Err(left),
            _ => Ok(()),
        }
    }

    fn host<T>(&self, name: &str, of: impl FnOnce(&mut Host) -> T) -> T {
        let mut hosts = self.lock();
        let now = Instant::now();
        // Redirects lead to any number of hosts over time.
        hosts.retain(|known, host| known == name || !host.is_idle(now));
        let new = || Host { permits: Arc::new(Semaphore::new(CONNECTIONS)), closed_until: None };
        of(hosts.entry(name.to_owned()).or_insert_with(new))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Host>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_closed_host_gets_no_request_and_idle_ones_are_forgotten() {
        let hosts = Hosts::default();
        let kept = hosts.enter("a").await.expect("open");
        hosts.close("b", Duration::from_secs(9));
        hosts.close("b", Duration::from_secs(3));
        assert_eq!(hosts.enter("b").await.err(), Some(Duration::from_secs(9)));
        drop(hosts.enter("c").await.expect("the others are open"));
        tokio::time::advance(Duration::from_secs(10)).await;
        drop(hosts.enter("b").await.expect("open again"));
        assert_eq!(hosts.lock().keys().collect::<Vec<_>>(), ["a", "b"], "c is idle");
        drop(kept);
    }

    #[tokio::test(start_paused = true)]
    async fn a_time_beyond_the_clock_is_not_noted() {
        let hosts = Hosts::default();
        hosts.close("a", Duration::MAX);
        drop(hosts.enter("a").await.expect("open"));
        hosts.close("a", Duration::from_secs(5));
        hosts.close("a", Duration::MAX);
        assert_eq!(
            hosts.enter("a").await.err(),
            Some(Duration::from_secs(5)),
            "the earlier one still counts"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn connections_are_limited_and_wait_in_turn() {
        let hosts = Hosts::default();
        let mut permits = Vec::new();
        for _ in 0..CONNECTIONS {
            permits.push(hosts.enter("a").await.expect("open"));
        }
        let next = hosts.enter("a");
        tokio::pin!(next);
        assert!(futures::poll!(&mut next).is_pending());
        permits.pop();
        drop(next.await.expect("open"));
    }
}
