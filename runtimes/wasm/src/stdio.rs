//! The standard streams of a program: its output is parsed by lines while it writes, its errors go to the job's debug log.

use std::sync::Arc;

use bytes::Bytes;
use island_protocol::job::{Failure, Outcome};
use island_runtimes_api::{
    JobLog, WorkCounter,
    lines::{Exit, Lines},
};
use parking_lot::{Mutex, MutexGuard};
use tokio::io::AsyncWrite;
use wasmtime_wasi::{
    async_trait,
    cli::{IsTerminal, StdoutStream},
    p2::{OutputStream, Pollable, StreamError, StreamResult},
};

use crate::verdict::Stopped;

/// Maximum bytes of one write.
const PERMIT_BYTES: usize = 64 << 10;

/// Receives what a program writes; on an error the program is stopped.
pub(crate) trait Taker: Clone + Send + Sync + 'static {
    fn take(&self, bytes: &[u8]) -> Result<(), Failure>;
}

/// Standard output. Clones write to the same lines.
#[derive(Debug, Clone)]
pub(crate) struct Stdout {
    lines: Arc<Mutex<Option<Lines>>>,
    work: WorkCounter,
}

impl Stdout {
    pub(crate) fn new(lines: Lines, work: WorkCounter) -> Self {
        Self { lines: Arc::new(Mutex::new(Some(lines))), work }
    }

    /// Combines the output with how the program ended. Must be called once.
    pub(crate) fn finish(&self, exit: Exit) -> Outcome {
        self.lines().take().expect("a program ends once").finish(exit)
    }

    fn lines(&self) -> MutexGuard<'_, Option<Lines>> {
        self.lines.lock()
    }
}

impl Taker for Stdout {
    fn take(&self, bytes: &[u8]) -> Result<(), Failure> {
        self.work.advance(1);
        self.lines().as_mut().map_or(Ok(()), |lines| lines.take(bytes))
    }
}

impl Taker for JobLog {
    fn take(&self, bytes: &[u8]) -> Result<(), Failure> {
        self.write(bytes);
        Ok(())
    }
}

/// A stream into a receiver: always ready, never buffered.
#[derive(Debug, Clone)]
pub(crate) struct Stream<T>(pub(crate) T);

impl<T: Taker> StdoutStream for Stream<T> {
    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }

    /// Only programs of preview 3 would use it, and they are not linked.
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(tokio::io::sink())
    }
}

impl<T> IsTerminal for Stream<T> {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl<T: Taker> OutputStream for Stream<T> {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.0.take(&bytes).map_err(|failure| StreamError::Trap(Stopped(failure).into()))
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(PERMIT_BYTES)
    }
}

#[async_trait]
impl<T: Taker> Pollable for Stream<T> {
    async fn ready(&mut self) {}
}
