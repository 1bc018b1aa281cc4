//! Messages between a subscription and their handlers.
//!
//! A task takes messages from the client as they arrive, so that the client's own queue, which is not limited in bytes,
//! remains empty. Here they wait within the [`Budget`]; what exceeds it is dropped. Islands take turns: one that sends more
//! than the others does not delay theirs. Messages of one Island are handled one after the other.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
};

use async_nats::Message;
use futures::{Stream, StreamExt as _, stream};
use island_protocol::subjects;
use parking_lot::Mutex;
use tokio::{sync::mpsc, time::Instant};

use super::budget::{Budget, Held, Sender};
use island_coordinator_domain::metrics::{self, Fabric};

/// A message and the memory that it takes.
#[derive(Debug)]
pub(super) struct Received {
    pub message: Message,
    pub held: Held,
    /// Dropped when what the message reports is applied.
    pub unapplied: Unapplied,
}

/// The messages of a subject that are not applied yet.
#[derive(Debug)]
pub(crate) struct Backlog {
    waiting: Mutex<Waiting>,
    metrics: metrics::Subject,
}

#[derive(Debug, Default)]
struct Waiting {
    last: u64,
    arrivals: BTreeMap<u64, Instant>,
    dropped: Option<Instant>,
}

/// A message that is not applied, until it is dropped.
#[derive(Debug)]
pub(super) struct Unapplied {
    backlog: Arc<Backlog>,
    number: u64,
    _counted: metrics::Waiting,
}

impl Backlog {
    /// A backlog without messages.
    pub(crate) fn new(metrics: metrics::Subject) -> Self {
        Self { waiting: Mutex::default(), metrics }
    }

    fn arrived(self: &Arc<Self>, at: Instant) -> Unapplied {
        let mut waiting = self.waiting.lock();
        waiting.last += 1;
        let number = waiting.last;
        waiting.arrivals.insert(number, at);
        Unapplied { backlog: self.clone(), number, _counted: self.metrics.arrived(at) }
    }

    /// All messages that arrived before this time are applied.
    pub(crate) fn applied_until(&self, now: Instant) -> Instant {
        self.waiting.lock().arrivals.first_key_value().map_or(now, |(_, at)| *at)
    }

    /// When a message was last dropped.
    pub(crate) fn last_dropped(&self) -> Option<Instant> {
        self.waiting.lock().dropped
    }
}

impl Drop for Unapplied {
    fn drop(&mut self) {
        self.backlog.waiting.lock().arrivals.remove(&self.number);
    }
}

/// Whose turns a message waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Lane {
    Sender(Sender),
    /// The sender is not known: messages are handled in any order.
    Number(u64),
}

/// The messages of one subject.
#[derive(Debug)]
pub(super) struct Queue {
    subject: &'static str,
    max_payload: usize,
    budget: Arc<Budget>,
    backlog: Arc<Backlog>,
    metrics: Fabric,
    lanes: Mutex<HashMap<Lane, VecDeque<Received>>>,
    turns: mpsc::UnboundedSender<Lane>,
}

/// The lanes that have a message, one entry for each.
#[derive(Debug)]
pub(super) struct Turns(mpsc::UnboundedReceiver<Lane>);

impl Queue {
    /// A queue for messages of at most `max_payload` bytes. `subject` names it.
    pub(super) fn new(
        subject: &'static str,
        max_payload: usize,
        budget: Arc<Budget>,
        backlog: Arc<Backlog>,
        metrics: Fabric,
    ) -> (Arc<Self>, Turns) {
        let (turns, receiver) = mpsc::unbounded_channel();
        let lanes = Mutex::default();
        (Arc::new(Self { subject, max_payload, budget, backlog, metrics, lanes, turns }), Turns(receiver))
    }

    /// Takes messages from the subscription until it ends.
    pub(super) async fn fill(&self, mut messages: impl Stream<Item = Message> + Unpin) {
        while let Some(message) = messages.next().await {
            self.push(message, Instant::now());
        }
    }

    fn push(&self, message: Message, now: Instant) {
        let host = subjects::parse_host(&message.subject);
        let sender = host.map_or(Sender::Subject(self.subject), |(host, _)| Sender::Island(host));
        let bytes = message.payload.len();
        let held = (bytes <= self.max_payload).then(|| self.budget.take(sender, bytes)).flatten();
        let Some(held) = held else {
            self.metrics.dropped();
            if bytes <= self.max_payload {
                self.backlog.waiting.lock().dropped = Some(now);
            }
            return tracing::debug!(subject = %message.subject, bytes, "message dropped: too large, or no memory for it");
        };
        let unapplied = self.backlog.arrived(now);
        let lane = match sender {
            Sender::Island(_) => Lane::Sender(sender),
            Sender::Subject(_) => Lane::Number(unapplied.number),
        };
        let mut lanes = self.lanes.lock();
        // A lane that exists has a turn already, or one of its messages is being handled.
        if !lanes.contains_key(&lane) {
            let _ = self.turns.send(lane);
        }
        lanes.entry(lane).or_default().push_back(Received { message, held, unapplied });
    }

    /// Handles messages of at most `concurrency` senders at a time.
    pub(super) async fn handle<F>(&self, turns: Turns, concurrency: usize, handle: impl Fn(Received) -> F)
    where
        F: Future<Output = ()>,
    {
        let turns =
            stream::unfold(turns, |mut turns| async { turns.0.recv().await.map(|lane| (lane, turns)) });
        let handle = &handle;
        let handled = turns.for_each_concurrent(concurrency, |lane| async move {
            let next = self.lanes.lock().get_mut(&lane).and_then(VecDeque::pop_front);
            if let Some(received) = next {
                handle(received).await;
            }
            self.pass_on(lane);
        });
        handled.await;
    }

    /// Gives a lane its next turn, or forgets it.
    fn pass_on(&self, lane: Lane) {
        let mut lanes = self.lanes.lock();
        if lanes.get(&lane).is_some_and(|waiting| !waiting.is_empty()) {
            let _ = self.turns.send(lane);
        } else {
            lanes.remove(&lane);
        }
    }
}

#[cfg(test)]
mod tests {
    use island_protocol::{
        ids::HostId,
        subjects::{HostTopic, LEASE},
    };
    use uuid::Uuid;

    use super::*;

    fn message(subject: String, bytes: usize) -> Message {
        Message {
            subject: subject.into(),
            reply: None,
            payload: vec![b' '; bytes].into(),
            headers: None,
            status: None,
            description: None,
            length: bytes,
        }
    }

    fn queue(max_payload: usize) -> (Arc<Queue>, Turns) {
        let metrics = Fabric::default();
        let backlog = Arc::new(Backlog::new(metrics.subject(LEASE)));
        Queue::new(LEASE, max_payload, Arc::default(), backlog, metrics)
    }

    /// Handles what is queued, and returns the subject and the size of each message in the order of their handling.
    async fn handled(queue: &Queue, turns: Turns) -> Vec<(String, usize)> {
        let order = Mutex::new(Vec::new());
        let handling = queue.handle(turns, 1, |received| {
            order.lock().push((received.message.subject.to_string(), received.message.payload.len()));
            async {}
        });
        tokio::select! {
            biased;
            () = handling => {}
            () = tokio::task::yield_now() => {}
        }
        order.into_inner()
    }

    #[tokio::test]
    async fn islands_take_turns_and_the_messages_of_one_keep_their_order() {
        let (queue, turns) = queue(100);
        let of = |n| HostTopic::Output.of(HostId(Uuid::from_u128(n)));
        let now = Instant::now();
        for bytes in [1, 2, 3] {
            queue.push(message(of(1), bytes), now);
        }
        queue.push(message(of(2), 4), now);
        let order = handled(&queue, turns).await;
        assert_eq!(order, [(of(1), 1), (of(2), 4), (of(1), 2), (of(1), 3)]);
        assert!(queue.lanes.lock().is_empty(), "nothing is kept of senders");
        let Queue { budget, .. } = &*queue;
        assert_eq!(
            format!("{budget:?}"),
            format!("{:?}", Arc::new(Budget::default())),
            "all memory is returned"
        );
    }

    #[tokio::test]
    async fn what_is_applied_is_known_and_what_is_dropped_is_counted() {
        let (queue, turns) = queue(100);
        let begin = Instant::now();
        let later = begin + std::time::Duration::from_secs(7);
        assert_eq!(queue.backlog.applied_until(later), later, "nothing waits");
        queue.push(message(LEASE.to_owned(), 100), begin);
        queue.push(message(LEASE.to_owned(), 1), later);
        assert_eq!(queue.backlog.applied_until(later), begin);
        queue.push(message(LEASE.to_owned(), 101), later);
        assert_eq!(queue.metrics.dropped_messages(), 1, "too large");
        assert_eq!(queue.backlog.last_dropped(), None, "no honest sender sends it");
        assert_eq!(handled(&queue, turns).await.len(), 2);
        assert_eq!(queue.backlog.applied_until(later), later);
    }

    #[tokio::test]
    async fn a_flood_is_dropped_and_noticed() {
        let (queue, _turns) = queue(1 << 20);
        let now = Instant::now();
        for _ in 0..100 {
            queue.push(message(LEASE.to_owned(), 1 << 20), now);
        }
        let dropped = queue.metrics.dropped_messages();
        assert!((60..100).contains(&dropped), "{dropped}");
        assert_eq!(queue.backlog.last_dropped(), Some(now));
    }
}
