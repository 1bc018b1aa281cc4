//! One connection of the agent: reads commands and writes frames until either side closes it or a newer connection replaces it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::StreamExt;
use island_protocol::{host::SandboxReport, ids::InstanceId};
use tokio::{
    io::AsyncWriteExt,
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{mpsc, watch},
    time::{Instant, sleep_until},
};
use tokio_util::{
    bytes::BytesMut,
    codec::{Encoder, FramedRead},
};

use super::state::{LoadState, State, latest};
use crate::{
    codec::{FrameCodec, FrameError},
    frame::{FromWorker, ToWorker},
};

/// Time between two pulses.
const PULSE: Duration = Duration::from_secs(1);
/// The same without jobs: an idle machine is woken seldom. Two pulses may be lost before the worker counts as stalled.
const IDLE_PULSE: Duration = Duration::from_secs(4);

/// What the first frame of every connection contains.
#[derive(Debug, Clone)]
pub(super) struct FrameWriter {
    pub(super) instance: InstanceId,
    pub(super) sandbox: SandboxReport,
    pub(super) resident_mb: Arc<AtomicU64>,
    pub(super) load: watch::Receiver<LoadState>,
    pub(super) state: Arc<State>,
}

/// Serves one connection to its end.
pub(super) async fn serve(stream: UnixStream, writer: FrameWriter, commands: mpsc::Sender<ToWorker>) {
    let (read, write) = stream.into_split();
    let ended = tokio::select! {
        ended = listen(read, commands) => ended,
        ended = writer.run(write) => ended,
    };
    match ended {
        Ok(()) => tracing::debug!("the agent's connection ended"),
        Err(error) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "the agent's connection was closed");
        }
    }
}

async fn listen(read: OwnedReadHalf, commands: mpsc::Sender<ToWorker>) -> Result<(), FrameError> {
    let mut frames = FramedRead::new(read, FrameCodec::<ToWorker>::default());
    while let Some(frame) = frames.next().await {
        if commands.send(frame?).await.is_err() {
            break;
        }
    }
    Ok(())
}

impl FrameWriter {
    async fn run(mut self, mut socket: OwnedWriteHalf) -> Result<(), FrameError> {
        let mut bytes = BytesMut::new();
        encode(&self.hello(), &mut bytes)?;
        self.load.mark_unchanged();
        let first = latest(&self.load);
        encode(&first.frame(), &mut bytes)?;
        socket.write_all_buf(&mut bytes).await?;
        if matches!(first, LoadState::Failed(_)) {
            return Ok(());
        }
        let mut pulsed = None;
        loop {
            let due = pulsed.map_or_else(Instant::now, |pulsed| pulsed + self.pulse_every());
            // Events that arrive while a frame is written are sent together in the next.
            tokio::select! {
                biased;
                Ok(()) = self.load.changed() => {
                    let load = latest(&self.load);
                    encode(&load.frame(), &mut bytes)?;
                    if matches!(load, LoadState::Failed(_)) {
                        return Ok(socket.write_all_buf(&mut bytes).await?);
                    }
                }
                () = self.state.changed.notified() => {}
                () = sleep_until(due) => {
                    encode(&self.pulse(), &mut bytes)?;
                    pulsed = Some(Instant::now());
                }
            }
            self.send_events(&mut socket, &mut bytes).await?;
        }
    }

    async fn send_events(&self, socket: &mut OwnedWriteHalf, bytes: &mut BytesMut) -> Result<(), FrameError> {
        loop {
            let frames = self.state.take_batches();
            for frame in &frames {
                encode(frame, bytes)?;
            }
            socket.write_all_buf(bytes).await?;
            if frames.is_empty() {
                return Ok(());
            }
        }
    }

    fn hello(&self) -> FromWorker {
        FromWorker::Hello {
            instance: self.instance,
            pid: std::process::id(),
            jobs: self.state.held(),
            sandbox: self.sandbox.clone(),
            ready: matches!(latest(&self.load), LoadState::Ready { .. }),
        }
    }

    fn pulse_every(&self) -> Duration {
        let is_idle = self.state.is_empty() && matches!(latest(&self.load), LoadState::Ready { .. });
        if is_idle { IDLE_PULSE } else { PULSE }
    }

    fn pulse(&self) -> FromWorker {
        FromWorker::Pulse { work: self.state.work(), rss_mb: self.resident_mb.load(Ordering::Relaxed) }
    }
}

fn encode(frame: &FromWorker, bytes: &mut BytesMut) -> Result<(), FrameError> {
    FrameCodec::<ToWorker>::default().encode(frame, bytes)
}
