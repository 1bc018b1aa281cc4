//! A connection whose bytes are counted and limited.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Instant, sleep_until},
};

use crate::bounds::Allowance;

/// The traffic of one connection, and when the last byte was transferred.
#[derive(Debug)]
pub(crate) struct Traffic {
    allowance: Arc<Allowance>,
    since: Instant,
    /// Milliseconds after `since`.
    last_ms: AtomicU64,
    sent: AtomicU64,
    received: AtomicU64,
}

impl Traffic {
    pub(crate) fn new(allowance: Arc<Allowance>) -> Self {
        let zero = AtomicU64::default;
        Self { allowance, since: Instant::now(), last_ms: zero(), sent: zero(), received: zero() }
    }

    /// Bytes sent, bytes received, and duration.
    pub(crate) fn so_far(&self) -> (u64, u64, Duration) {
        (self.sent.load(Ordering::Relaxed), self.received.load(Ordering::Relaxed), self.since.elapsed())
    }

    /// Resolves when no byte was transferred in either direction for this time.
    pub(crate) async fn idle(&self, limit: Duration) {
        loop {
            let quiet_since = self.since + Duration::from_millis(self.last_ms.load(Ordering::Relaxed));
            if quiet_since.elapsed() >= limit {
                return;
            }
            sleep_until(quiet_since + limit).await;
        }
    }

    fn count(&self, what: &AtomicU64, bytes: usize) -> io::Result<()> {
        self.last_ms.store(self.since.elapsed().as_millis() as u64, Ordering::Relaxed);
        what.fetch_add(bytes as u64, Ordering::Relaxed);
        if bytes == 0 || self.allowance.take(bytes) { Ok(()) } else { Err(used_up()) }
    }
}

fn used_up() -> io::Error {
    io::Error::other("the job has transferred as many bytes as it may")
}

/// A connection to the outside.
#[derive(Debug)]
pub(crate) struct Metered {
    stream: TcpStream,
    traffic: Arc<Traffic>,
}

impl Metered {
    pub(crate) fn new(stream: TcpStream, traffic: Arc<Traffic>) -> Self {
        Self { stream, traffic }
    }
}

impl AsyncRead for Metered {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, into))?;
        Poll::Ready(self.traffic.count(&self.traffic.received, into.filled().len() - before))
    }
}

impl AsyncWrite for Metered {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.traffic.allowance.is_used_up() {
            return Poll::Ready(Err(used_up()));
        }
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes))?;
        self.traffic.count(&self.traffic.sent, written)?;
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
