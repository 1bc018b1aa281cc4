//! An archive as the body of a request: written by a thread, read by the connection, never completely in memory.

use std::{
    io::{self, Write},
    mem,
};

use bytes::Bytes;
use futures::Stream;
use tokio::{sync::mpsc, task::JoinHandle};

use crate::archive::{Archive, ArchiveError};

const CHUNK: usize = 256 << 10;
/// Number of chunks that wait for the connection.
const QUEUE: usize = 8;

type Written = JoinHandle<Result<(), ArchiveError>>;

/// The body, and the result of writing it.
pub(super) fn feed(
    archive: Archive,
    report: impl Fn(u64) + Send + 'static,
) -> (impl Stream<Item = io::Result<Bytes>> + Send + 'static, Written) {
    let (sender, mut chunks) = mpsc::channel(QUEUE);
    let writing = tokio::task::spawn_blocking(move || {
        let written = archive.write(Chunks { sender: sender.clone(), chunk: Vec::new() }, report);
        if let Err(error) = &written {
            // Aborts the request: a daemon must not accept a partial archive.
            let _ = sender.blocking_send(Err(io::Error::other(error.to_string())));
        }
        written
    });
    (futures::stream::poll_fn(move |context| chunks.poll_recv(context)), writing)
}

struct Chunks {
    sender: mpsc::Sender<io::Result<Bytes>>,
    chunk: Vec<u8>,
}

impl Write for Chunks {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.chunk.extend_from_slice(bytes);
        if self.chunk.len() >= CHUNK {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let chunk = mem::take(&mut self.chunk);
        if chunk.is_empty() {
            return Ok(());
        }
        self.sender.blocking_send(Ok(chunk.into())).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}
