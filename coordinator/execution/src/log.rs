//! The numbered events of one job, from 1, and readers that wait for more. There are no gaps, except before the end of a
//! job whose latest events were lost with the coordinator and the Island that had them, and in the log of a relay.

use std::sync::Arc;

use bytes::Bytes;
use island_daemon::latest::Latest;
use island_protocol::event::{JobEvent, Numbered};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

use island_coordinator_domain::sse;

/// One event, with its SSE frame built once for all readers.
#[derive(Debug, Clone)]
pub struct Entry {
    pub event: Arc<Numbered<JobEvent>>,
    pub frame: Bytes,
}

/// Length of a log and whether it grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Up to this number; more may follow.
    Open(u64),
    /// Up to this number; nothing follows.
    Ended(u64),
    /// Another coordinator took the job over; what follows is not known here.
    Abandoned,
}

/// The log. Only the job's runner appends, or the task of its relay.
#[derive(Debug)]
pub struct Log {
    entries: Mutex<Vec<Entry>>,
    extent: watch::Sender<Extent>,
}

impl Log {
    /// A log that starts with `head`, which may be complete.
    pub fn new(head: Vec<Numbered<JobEvent>>) -> Self {
        let entries: Vec<Entry> = head.into_iter().map(Entry::new).collect();
        let length = entries.len() as u64;
        let ended = entries.last().is_some_and(|entry| entry.event.event.is_last());
        let extent = watch::Sender::new(if ended { Extent::Ended(length) } else { Extent::Open(length) });
        Self { entries: Mutex::new(entries), extent }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock()
    }

    /// Number of the next event.
    pub fn next(&self) -> u64 {
        self.lock().len() as u64 + 1
    }

    /// Appends events that are numbered from [`Self::next`] on, and wakes the readers once.
    pub(crate) fn append(&self, events: impl IntoIterator<Item = JobEvent>) {
        let mut entries = self.lock();
        let mut last = false;
        for event in events {
            last |= event.is_last();
            let n = entries.len() as u64 + 1;
            entries.push(Entry::new(Numbered { n, event }));
        }
        let length = entries.len() as u64;
        drop(entries);
        self.extent.send_replace(if last { Extent::Ended(length) } else { Extent::Open(length) });
    }

    /// Appends the end, whose number may follow a gap.
    pub(crate) fn append_end(&self, end: Numbered<JobEvent>) {
        let n = end.n;
        self.lock().push(Entry::new(end));
        self.extent.send_replace(Extent::Ended(n));
    }

    /// Appends the events that follow the last one, and wakes the readers once. Gaps remain. Returns whether there were
    /// any.
    pub(crate) fn append_numbered(&self, events: Vec<Numbered<JobEvent>>) -> bool {
        let mut entries = self.lock();
        let before = entries.last().map_or(0, |entry| entry.event.n);
        let mut last = before;
        for event in events {
            if event.n > last {
                last = event.n;
                entries.push(Entry::new(event));
            }
        }
        let ended = entries.last().is_some_and(|entry| entry.event.event.is_last());
        drop(entries);
        if last > before {
            self.extent.send_replace(if ended { Extent::Ended(last) } else { Extent::Open(last) });
        }
        last > before
    }

    /// Ends every reader of a log without an end.
    pub fn close(&self) {
        if !self.has_ended() {
            self.abandon();
        }
    }

    /// Whether the log contains the end.
    pub fn has_ended(&self) -> bool {
        matches!(self.extent.latest(), Extent::Ended(_))
    }

    /// Ends every reader: another coordinator executes the job now.
    pub(crate) fn abandon(&self) {
        self.extent.send_replace(Extent::Abandoned);
    }

    /// Whether another coordinator executes the job now.
    pub fn is_abandoned(&self) -> bool {
        self.extent.latest() == Extent::Abandoned
    }

    /// All events so far.
    pub fn events(&self) -> Vec<Numbered<JobEvent>> {
        self.lock().iter().map(|entry| entry.event.as_ref().clone()).collect()
    }

    /// The last state or phase that the job announced.
    pub(crate) fn last_state(&self) -> Option<String> {
        self.lock().iter().rev().find_map(|entry| match &entry.event.event {
            JobEvent::Status { state, .. } => Some(state.clone()),
            _ => None,
        })
    }

    /// The text of the answer so far.
    pub fn text(&self) -> String {
        self.tokens(false)
    }

    /// The text of the reasoning so far; `None` without any.
    pub fn reasoning(&self) -> Option<String> {
        Some(self.tokens(true)).filter(|text| !text.is_empty())
    }

    /// The text of the answer and of the calls so far, as the model wrote it.
    pub fn written(&self) -> String {
        let entries = self.lock();
        let written = entries.iter().filter_map(|entry| match &entry.event.event {
            JobEvent::Token { call: Some(call), .. } => Some(call.text.as_str()),
            JobEvent::Token { content, reasoning: false, .. } => Some(content.as_str()),
            _ => None,
        });
        written.collect()
    }

    fn tokens(&self, of_reasoning: bool) -> String {
        let entries = self.lock();
        let tokens = entries.iter().filter_map(|entry| match &entry.event.event {
            JobEvent::Token { content, reasoning, .. } if *reasoning == of_reasoning => {
                Some(content.as_str())
            }
            _ => None,
        });
        tokens.collect()
    }

    /// Whether a consumer may have seen part of the result.
    pub(crate) fn has_output(&self) -> bool {
        self.lock().iter().any(|entry| entry.event.event.is_output())
    }

    /// Whether all output so far is text.
    pub(crate) fn is_text_alone(&self) -> bool {
        let entries = self.lock();
        let mut output = entries.iter().map(|entry| &entry.event.event).filter(|event| event.is_output());
        output.all(|event| matches!(event, JobEvent::Token { .. }))
    }

    /// Number of readers.
    pub fn readers(&self) -> usize {
        self.extent.receiver_count()
    }

    /// Waits until there are no readers.
    pub async fn unread(&self) {
        self.extent.closed().await;
    }

    /// A reader that starts with the event after `after`.
    pub fn read(self: &Arc<Self>, after: u64) -> Reader {
        Reader { extent: self.extent.subscribe(), log: self.clone(), after }
    }
}

impl Entry {
    /// Builds the event's frame.
    pub fn new(event: Numbered<JobEvent>) -> Self {
        let frame = sse::job_frame(&event);
        Self { event: Arc::new(event), frame }
    }
}

/// Reads a log from a given event to its end.
#[derive(Debug)]
pub struct Reader {
    log: Arc<Log>,
    extent: watch::Receiver<Extent>,
    after: u64,
}

impl Reader {
    /// Waits for new events, at least one. Returns `None` when the log has ended and all were read. Cancel safe.
    pub async fn next(&mut self) -> Option<Vec<Entry>> {
        loop {
            self.extent.mark_unchanged();
            let extent = self.extent.latest();
            let new = self.take();
            if !new.is_empty() {
                return Some(new);
            }
            if !matches!(extent, Extent::Open(_)) || self.extent.changed().await.is_err() {
                return None;
            }
        }
    }

    /// Whether the log has ended and contains the end.
    pub fn has_ended(&self) -> bool {
        self.log.has_ended()
    }

    fn take(&mut self) -> Vec<Entry> {
        let entries = self.log.lock();
        let new = entries[entries.partition_point(|entry| entry.event.n <= self.after)..].to_vec();
        self.after = new.last().map_or(self.after, |entry| entry.event.n);
        new
    }
}

#[cfg(test)]
mod tests {
    use island_protocol::reply::CallDelta;

    use super::*;

    fn token(content: &str) -> JobEvent {
        JobEvent::token(content.to_owned())
    }

    #[test]
    fn reasoning_is_not_a_part_of_the_answer() {
        let thought = |content: &str| JobEvent::Token {
            content: content.to_owned(),
            reasoning: true,
            logprobs: Vec::new(),
            call: None,
        };
        let log = Log::new(Vec::new());
        assert_eq!(log.reasoning(), None);
        log.append([thought("Hm"), thought("."), token("Yes")]);
        assert_eq!((log.text(), log.reasoning()), ("Yes".to_owned(), Some("Hm.".to_owned())));
    }

    #[test]
    fn what_the_model_wrote_includes_its_calls() {
        let part = CallDelta { text: "<tool_call>{".to_owned(), ..CallDelta::default() };
        let call = JobEvent::Token {
            content: String::new(),
            reasoning: false,
            logprobs: Vec::new(),
            call: Some(Box::new(part)),
        };
        let log = Log::new(Vec::new());
        log.append([token("So: "), call]);
        assert_eq!((log.text().as_str(), log.written().as_str()), ("So: ", "So: <tool_call>{"));
    }

    #[tokio::test]
    async fn readers_get_every_event_after_their_position() {
        let log = Arc::new(Log::new(vec![Numbered { n: 1, event: token("a") }]));
        let (mut whole, mut later) = (log.read(0), log.read(2));
        let numbers = |entries: Option<Vec<Entry>>| -> Vec<u64> {
            entries.unwrap_or_default().iter().map(|entry| entry.event.n).collect()
        };
        assert_eq!(numbers(whole.next().await), [1]);
        log.append([token("b")]);
        assert_eq!(numbers(whole.next().await), [2]);
        log.append([token("c"), JobEvent::Error { error: "x".into(), code: "y".into() }]);
        assert_eq!(numbers(whole.next().await), [3, 4]);
        assert_eq!(numbers(later.next().await), [3, 4]);
        assert!(whole.next().await.is_none() && later.next().await.is_none());
        assert_eq!(log.text(), "abc");
    }
}
