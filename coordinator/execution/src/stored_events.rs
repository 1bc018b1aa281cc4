//! The events of a job that has ended, read from SQL one piece at a time, however much the job wrote.

use island_protocol::{
    event::{JobEvent, Numbered},
    ids::JobId,
};

use super::log::Entry;
use island_coordinator_storage::{Store, StoreError, jobs};

/// Reads stored events from a given one to the end.
#[derive(Debug)]
pub struct StoredEvents {
    store: Store,
    job: JobId,
    after: u64,
    /// The first piece, until it is returned.
    first: Option<Vec<Numbered<JobEvent>>>,
}

impl StoredEvents {
    /// Opens a reader that starts with the event after `after`. Returns `None` if the events are not stored: the job has not
    /// ended, or they were deleted.
    pub async fn open(store: &Store, job: JobId, after: u64) -> Result<Option<Self>, StoreError> {
        let first = jobs::piece(store.reader(), job, after).await?;
        Ok(first.map(|first| Self { store: store.clone(), job, after, first: Some(first) }))
    }

    /// The next events, at least one. Returns `None` after the last one. Cancel safe.
    pub async fn next(&mut self) -> Result<Option<Vec<Entry>>, StoreError> {
        let events = match self.first.take() {
            Some(first) => first,
            None => jobs::piece(self.store.reader(), self.job, self.after).await?.unwrap_or_default(),
        };
        let Some(last) = events.last() else { return Ok(None) };
        self.after = last.n;
        Ok(Some(events.into_iter().map(Entry::new).collect()))
    }
}

#[cfg(test)]
mod tests {
    use island_protocol::{
        credits::MicroCredits,
        ids::{HostId, InstanceId},
        job::{JobStatus, Usage},
    };
    use uuid::Uuid;

    use super::*;
    use island_coordinator_domain::{
        clock::Clock,
        config::Database,
        job::{End, Job},
        samples,
    };
    use island_coordinator_storage::setup::create_account;

    const LARGE: usize = 200 << 10;

    #[tokio::test]
    async fn one_piece_is_read_at_a_time_and_every_event_once() {
        let dir = tempfile::tempdir().expect("folder");
        let settings = Database { path: dir.path().join("island.db"), ..Database::default() };
        let store = Store::open(&settings).await.expect("database");
        let (now, mine) = (Clock::System.now(), InstanceId(Uuid::new_v4()));
        let account =
            create_account(&store, "a@example.org", false, MicroCredits::ZERO, now).await.expect("account");
        let only = Some(HostId(Uuid::new_v4()));
        let job = Job { account, only, price: MicroCredits::ZERO, ..samples::job() };
        assert!(jobs::accept_check(&store, &job, mine, now).await.expect("stored"));
        assert!(StoredEvents::open(&store, job.id, 0).await.expect("read").is_none(), "it is open");

        let large = |n| Numbered { n, event: JobEvent::token("x".repeat(LARGE)) };
        let mut events: Vec<_> = (1..=4).map(large).collect();
        // The number of the end follows a gap.
        events.push(Numbered { n: 1_000, event: JobEvent::Error { error: "e".into(), code: "c".into() } });
        let end = End { completed_at: now, output: None, usage: Usage::default(), error: None };
        let ending = jobs::Ending {
            job: &job,
            coordinator: mine,
            status: JobStatus::Failed,
            end: &end,
            earners: &[],
            karma: None,
            canceller: None,
            events: &events,
        };
        assert!(jobs::end(&store, &ending).await.expect("ended"));

        for (after, expected) in [
            (0, vec![vec![1], vec![2], vec![3], vec![4, 1_000]]),
            (2, vec![vec![3], vec![4, 1_000]]),
            (999, vec![vec![1_000]]),
            (1_000, vec![]),
        ] {
            let mut stored = StoredEvents::open(&store, job.id, after).await.expect("read").expect("events");
            let mut pieces = Vec::new();
            while let Some(piece) = stored.next().await.expect("read") {
                pieces.push(piece.iter().map(|entry| entry.event.n).collect::<Vec<_>>());
            }
            assert_eq!(pieces, expected, "after {after}");
        }
        store.close().await;
    }
}
