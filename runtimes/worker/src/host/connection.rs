//! A connection to a worker: sends commands, receives frames.

use futures::StreamExt;
use tokio::{
    io::AsyncWriteExt,
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::mpsc,
};
use tokio_util::{
    bytes::BytesMut,
    codec::{Encoder, FramedRead},
    task::AbortOnDropHandle,
};

use crate::{
    codec::{FrameCodec, FrameError},
    frame::{FromWorker, ToWorker},
};

/// Number of commands that may be queued for a worker that does not read.
const QUEUE: usize = 64;

/// The worker's end of the connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the worker closed its connection")]
pub struct Closed;

/// Both directions of a connection.
#[derive(Debug)]
pub struct Connection {
    /// Sends to the worker; may be cloned.
    pub commands: Commands,
    /// Receives from the worker; dropping it closes the connection.
    pub frames: Frames,
}

impl Connection {
    pub(super) fn new(stream: UnixStream) -> Self {
        let (read, write) = stream.into_split();
        let (sender, receiver) = mpsc::channel(QUEUE);
        let writer = AbortOnDropHandle::new(tokio::spawn(write_commands(write, receiver)));
        let frames = Frames { read: FramedRead::new(read, FrameCodec::default()), _writer: writer };
        Self { commands: Commands(sender), frames }
    }

    /// Splits the connection into its directions.
    pub fn split(self) -> (Commands, Frames) {
        (self.commands, self.frames)
    }
}

/// Sends commands to a worker, in order.
#[derive(Debug, Clone)]
pub struct Commands(mpsc::Sender<ToWorker>);

impl Commands {
    /// Queues a command; waits only if the queue is full.
    pub async fn send(&self, command: ToWorker) -> Result<(), Closed> {
        self.0.send(command).await.map_err(|_| Closed)
    }
}

/// Receives a worker's frames, in order, and owns the connection.
#[derive(Debug)]
pub struct Frames {
    read: FramedRead<OwnedReadHalf, FrameCodec<FromWorker>>,
    _writer: AbortOnDropHandle<()>,
}

impl Frames {
    /// Returns the next frame; `None` once the worker closed the connection. Cancel safe.
    pub async fn next(&mut self) -> Option<Result<FromWorker, FrameError>> {
        self.read.next().await
    }
}

async fn write_commands(mut socket: OwnedWriteHalf, mut commands: mpsc::Receiver<ToWorker>) {
    let mut codec = FrameCodec::<FromWorker>::default();
    let mut bytes = BytesMut::new();
    while let Some(command) = commands.recv().await {
        if let Err(error) = codec.encode(&command, &mut bytes) {
            tracing::error!(error = &error as &dyn std::error::Error, "a command cannot be framed");
        }
        if socket.write_all_buf(&mut bytes).await.is_err() {
            return;
        }
    }
}
