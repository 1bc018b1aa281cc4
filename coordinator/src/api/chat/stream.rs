//! Streams a reply as Server-Sent Events, in the form of one API.

use std::convert::Infallible;

use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt as _, stream};
use island_protocol::{job::Usage, problem::Code};
use parking_lot::Mutex;

use super::reply::{Head, Part, Piece, Reply, problem, sum};
use crate::{
    api::{ApiError, jobs::stream::KEEP_ALIVE, slots::Slot},
    sse,
};

/// Writes a reply as the events of one API.
pub(in crate::api) trait Encode: Send + 'static {
    /// The events before the first part of the reply.
    fn begin(&mut self, head: &Head) -> Bytes;

    /// The events of a part; of the last part, those of the end.
    fn part(&mut self, head: &Head, part: Part) -> Bytes;

    /// The event of an error, the last one.
    fn error(&mut self, head: &Head, error: ApiError) -> Bytes;
}

/// What all replies to a request used.
#[derive(Debug)]
pub(in crate::api) struct Tally(Mutex<(usize, Usage)>);

impl Tally {
    /// Of this number of replies.
    pub(super) fn new(replies: usize) -> Self {
        Self(Mutex::new((replies, Usage::default())))
    }

    /// Adds what an ended reply used. Returns the sum if it is the last one.
    pub(super) fn ended(&self, usage: &Usage) -> Option<Usage> {
        let mut tally = self.0.lock();
        let (open, used) = &mut *tally;
        *open = open.saturating_sub(1);
        *used = sum([&*used, usage]);
        (*open == 0).then(|| used.clone())
    }
}

/// Streams the replies to a request as their parts arrive.
pub(in crate::api) fn merged<E: Encode>(
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
pub(in crate::api) fn frames(
    reply: Reply,
    encoder: impl Encode,
    slot: Option<Slot>,
) -> impl Stream<Item = Result<Bytes, Infallible>> {
    let is_silent = reply.is_silent();
    let state = Streaming { reply, encoder, slot, is_silent, begun: false, over: false };
    stream::unfold(state, |mut state| async move {
        let frame = state.next().await?;
        Some((Ok(frame), state))
    })
}

struct Streaming<E> {
    reply: Reply,
    encoder: E,
    slot: Option<Slot>,
    /// Whether the client has been sent nothing and there is nothing to send.
    is_silent: bool,
    begun: bool,
    over: bool,
}

impl<E: Encode> Streaming<E> {
    /// The next bytes: all available events in one write, a comment after a long silence, or `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        if self.over {
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
        let mut bytes = BytesMut::new();
        if !more {
            self.over = true;
            let moved = ApiError::new(Code::ServiceUnavailable, "the job moved to another coordinator");
            bytes.extend(self.encoder.error(self.reply.head(), moved));
        }
        if !self.begun {
            self.begun = true;
            bytes.extend(self.encoder.begin(self.reply.head()));
        }
        while let Some(piece) = self.reply.next_ready() {
            let part = match piece {
                Piece::Failed { code, message } => {
                    bytes.extend(self.encoder.error(self.reply.head(), problem(&code, &message)));
                    self.over = true;
                    continue;
                }
                Piece::Part(part) => part,
            };
            self.over |= matches!(part, Part::Done { .. });
            bytes.extend(self.encoder.part(self.reply.head(), part));
        }
        // The slot is released before the client can know that the stream has ended.
        if self.over
            && let Some(slot) = self.slot.take()
        {
            slot.release().await;
        }
        Some(bytes.freeze())
    }
}
