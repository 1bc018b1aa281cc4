//! Streams a reply as Server-Sent Events, in the form of one API.

use std::convert::Infallible;

use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt as _, stream};
use island_protocol::job::Usage;
use parking_lot::Mutex;

use super::{
    parts::{Part, Piece},
    reply::{Head, Reply, problem, sum},
};
use crate::{ApiError, http::slots::Slot, native::jobs::stream::KEEP_ALIVE};
use island_coordinator_domain::sse;

/// Writes a reply as the events of one API.
pub(crate) trait Encode: Send + 'static {
    /// The events before the first part of the reply.
    fn begin(&mut self, head: &Head) -> Bytes;

    /// The events of a part; of the last part, those of the end.
    fn part(&mut self, head: &Head, part: Part) -> Bytes;

    /// The event of an error, the last one.
    fn error(&mut self, head: &Head, error: ApiError) -> Bytes;
}

/// What all replies to a request used.
#[derive(Debug)]
pub(crate) struct Tally(Mutex<Counts>);

#[derive(Debug)]
struct Counts {
    /// Replies that have not ended.
    open: usize,
    /// What the complete replies used; `None` until one is.
    used: Option<Usage>,
}

impl Tally {
    /// Of this number of replies.
    pub(super) fn new(replies: usize) -> Self {
        Self(Mutex::new(Counts { open: replies, used: None }))
    }

    /// Adds what a complete reply used. Returns the sum if it is the last one to end.
    pub(super) fn ended(&self, usage: &Usage) -> Option<Usage> {
        let mut counts = self.0.lock();
        counts.used = Some(sum(counts.used.iter().chain([usage])));
        counts.close()
    }

    /// Counts a reply that failed. Returns the sum if it is the last one to end and another one is complete.
    pub(super) fn failed(&self) -> Option<Usage> {
        self.0.lock().close()
    }
}

impl Counts {
    fn close(&mut self) -> Option<Usage> {
        self.open = self.open.saturating_sub(1);
        if self.open == 0 { self.used.clone() } else { None }
    }
}

/// Streams the replies to a request as their parts arrive.
pub(crate) fn merged<E: Encode>(
    replies: Vec<(Reply, E)>,
    slot: Option<Slot>,
) -> impl Stream<Item = Result<Bytes, Infallible>> {
    let mut slot = slot;
    let is_single = replies.len() == 1;
    let streams = replies.into_iter().map(|(reply, encoder)| {
        let slot = if is_single { slot.take() } else { None };
        Box::pin(frames(reply, encoder, slot))
    });
    let streams = stream::select_all(streams.collect::<Vec<_>>());
    streams.map(move |frame| {
        // Held until the last reply has ended.
        let _slot = &slot;
        frame
    })
}

/// Streams the reply. An error is the last event.
pub(crate) fn frames(
    reply: Reply,
    encoder: impl Encode,
    slot: Option<Slot>,
) -> impl Stream<Item = Result<Bytes, Infallible>> {
    let is_silent = reply.is_silent();
    let state = Streaming { reply, writer: Writer::new(encoder), slot, is_silent };
    stream::unfold(state, |mut state| async move {
        let frame = state.next().await?;
        Some((Ok(frame), state))
    })
}

/// Writes the events of a reply in order: its beginning, its parts, and one end.
struct Writer<E> {
    encoder: E,
    begun: bool,
    over: bool,
}

impl<E: Encode> Writer<E> {
    fn new(encoder: E) -> Self {
        Self { encoder, begun: false, over: false }
    }

    /// The events of what was read. An interruption ends the reply with its error, if it is not complete.
    fn write(
        &mut self,
        head: &Head,
        pieces: impl IntoIterator<Item = Piece>,
        interruption: Option<ApiError>,
    ) -> Bytes {
        let mut bytes = BytesMut::new();
        if !self.begun {
            self.begun = true;
            bytes.extend(self.encoder.begin(head));
        }
        for piece in pieces {
            match piece {
                Piece::Failed { code, message } => {
                    self.over = true;
                    bytes.extend(self.encoder.error(head, problem(&code, &message)));
                }
                Piece::Part(part) => {
                    self.over |= matches!(part, Part::Done { .. });
                    bytes.extend(self.encoder.part(head, part));
                }
            }
        }
        if let Some(error) = interruption.filter(|_| !self.over) {
            self.over = true;
            bytes.extend(self.encoder.error(head, error));
        }
        bytes.freeze()
    }
}

struct Streaming<E> {
    reply: Reply,
    writer: Writer<E>,
    slot: Option<Slot>,
    /// Whether the client has been sent nothing and there is nothing to send.
    is_silent: bool,
}

impl<E: Encode> Streaming<E> {
    /// The next bytes: all available events in one write, a comment after a long silence, or `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        if self.writer.over {
            return None;
        }
        if std::mem::take(&mut self.is_silent) {
            return Some(sse::KEEP_ALIVE);
        }
        let more = tokio::select! {
            biased;
            more = self.reply.fill() => more,
            () = tokio::time::sleep(KEEP_ALIVE) => return Some(sse::KEEP_ALIVE),
        };
        let pieces: Vec<Piece> = std::iter::from_fn(|| self.reply.next_ready()).collect();
        let interruption = (!more).then(|| self.reply.interruption());
        let bytes = self.writer.write(self.reply.head(), pieces, interruption);
        // The slot is released before the client can know that the stream has ended.
        if self.writer.over
            && let Some(slot) = self.slot.take()
        {
            slot.release().await;
        }
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use island_protocol::{ids::JobId, job::FinishReason};
    use island_protocol_api::problem::Code;
    use uuid::Uuid;

    use super::*;
    use crate::openai::chat::parts::End;

    /// Writes the name of each event.
    struct Names;

    impl Encode for Names {
        fn begin(&mut self, _head: &Head) -> Bytes {
            Bytes::from_static(b"begin ")
        }

        fn part(&mut self, _head: &Head, part: Part) -> Bytes {
            Bytes::from_static(if matches!(part, Part::Done { .. }) { b"done " } else { b"part " })
        }

        fn error(&mut self, _head: &Head, error: ApiError) -> Bytes {
            Bytes::from(format!("{} ", error.code().as_str()))
        }
    }

    fn text() -> Piece {
        Piece::Part(Part::Text { text: "a".to_owned(), logprobs: Vec::new() })
    }

    fn done() -> Piece {
        let end = End { usage: Usage::tokens(3, 2), finish_reason: FinishReason::Stop, stop_text: None };
        Piece::Part(Part::Done(end))
    }

    /// What is written for several reads, each with whether more may follow.
    fn written(reads: Vec<(Vec<Piece>, bool)>) -> String {
        let head = Head { job: JobId(Uuid::nil()), model: "m".to_owned(), created: 0 };
        let mut writer = Writer::new(Names);
        let interruption = || ApiError::new(Code::ServiceUnavailable, "the coordinator stops");
        let frames = reads
            .into_iter()
            .map(|(pieces, has_more)| writer.write(&head, pieces, (!has_more).then(interruption)));
        let text: String = frames.map(|frame| String::from_utf8_lossy(&frame).into_owned()).collect();
        assert!(writer.over);
        text
    }

    #[test]
    fn a_reply_begins_before_it_ends_however_it_ends() {
        assert_eq!(written(vec![(Vec::new(), false)]), "begin service_unavailable ");
        assert_eq!(
            written(vec![(vec![text()], true), (Vec::new(), false)]),
            "begin part service_unavailable "
        );
        let failed = Piece::Failed { code: "oom".to_owned(), message: "no memory".to_owned() };
        assert_eq!(written(vec![(vec![failed], true)]), "begin job_failed ");
        assert_eq!(
            written(vec![(vec![text()], true), (vec![text(), done()], true)]),
            "begin part part done "
        );
    }

    #[test]
    fn the_last_of_several_replies_to_end_has_the_usage_of_those_that_are_complete() {
        let used = Usage::tokens(3, 2);
        let counts = |usage: Option<Usage>| usage.map(|usage| (usage.prompt_tokens, usage.completion_tokens));
        let tally = Tally::new(3);
        assert_eq!((counts(tally.ended(&used)), counts(tally.failed())), (None, None));
        assert_eq!(counts(tally.ended(&used)), Some((6, 4)));
        let tally = Tally::new(2);
        assert_eq!((counts(tally.ended(&used)), counts(tally.failed())), (None, Some((3, 2))));
        let tally = Tally::new(1);
        assert_eq!(counts(tally.failed()), None, "nothing is complete");
    }
}
