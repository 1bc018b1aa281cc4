//! Serves a router over HTTP/1.1, with a limit on connections and on every time that a client determines: that of a
//! request's head, and that for which it may not read what is sent.

mod port;
mod tls;

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use axum::Router;
use hyper::{body::Incoming, server::conn::http1};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinSet,
    time::timeout,
};
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::util::MapRequest;

pub use port::Port;
pub use tls::CertificateError;
pub use tls::{Certificate, expires};

/// Maximum time for the handshake of TLS.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time for the head of a request, including the pause before it on a connection that is kept alive. Longer than reverse proxies
/// keep unused connections (nginx for one minute, Caddy for two): of a connection that both ends may close, the proxy must be the one that
/// closes it, as a request that meets the coordinator's end of it fails.
const HEAD_TIMEOUT: Duration = Duration::from_secs(150);
/// Maximum time for which a client may read nothing of what is sent.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum bytes that a connection holds of what is received and of what is to be sent.
const BUFFER_BYTES: usize = 128 << 10;
/// Pause after a failed accept, usually for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);
/// Maximum time that sent bytes may stay unacknowledged. Silent streams get a comment every 15 s, so a client that
/// vanished is detected within 35 s.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED_MS: u32 = 20_000;

/// The other end of a request's connection: a client, or a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Peer(pub IpAddr);

/// Serves until `soft` is triggered and the open connections have ended. Dropped earlier, it closes them. With `max`
/// open connections, further ones wait in the queue of the operating system.
pub async fn serve(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    router: Router,
    max: usize,
    soft: CancellationToken,
) {
    let free = Arc::new(Semaphore::new(max));
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            () = soft.cancelled() => break,
            Some(_) = connections.join_next() => {}
            (stream, peer, permit) = accept(&listener, &free) => {
                let (tls, router, soft) = (tls.clone(), router.clone(), soft.clone());
                connections.spawn(async move {
                    prepare(&stream);
                    let peer = Peer(peer.ip());
                    match tls {
                        None => serve_connection(stream, peer, router, soft).await,
                        Some(tls) => {
                            if let Some(stream) = handshake(&tls, stream, &soft).await {
                                serve_connection(stream, peer, router, soft).await;
                            }
                        }
                    }
                    drop(permit);
                });
            }
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// The next connection. Cancel safe.
async fn accept(
    listener: &TcpListener,
    free: &Arc<Semaphore>,
) -> (TcpStream, SocketAddr, OwnedSemaphorePermit) {
    let permit = free.clone().acquire_owned().await.expect("the semaphore is never closed");
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => return (stream, peer, permit),
            Err(error) if is_of_connection(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "connection not accepted; will retry");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Whether an error concerns one connection, which ended before it was accepted.
fn is_of_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// Returns `None` if the client did not complete the handshake in time, or `soft` is triggered.
async fn handshake(
    tls: &TlsAcceptor,
    stream: TcpStream,
    soft: &CancellationToken,
) -> Option<tokio_rustls::server::TlsStream<TcpStream>> {
    tokio::select! {
        biased;
        () = soft.cancelled() => None,
        done = timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)) => match done {
            Ok(Ok(stream)) => Some(stream),
            Ok(Err(error)) => {
                tracing::debug!(%error, "TLS handshake failed");
                None
            }
            Err(_) => None,
        },
    }
}

async fn serve_connection<S>(stream: S, peer: Peer, router: Router, soft: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Send + 'static,
{
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(WRITE_TIMEOUT));
    let with_peer = move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(peer);
        request
    };
    let service = TowerToHyperService::new(MapRequest::new(router.into_service(), with_peer));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(BUFFER_BYTES)
        .serve_connection(TokioIo::new(Box::pin(stream)), service)
        .with_upgrades();
    tokio::pin!(connection);
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => ended,
        () = soft.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended");
    }
}

/// Sets options of a connection. A reply must not wait for the acknowledgement of the one before, and a client that
/// vanished must be detected by what it does not acknowledge.
fn prepare(stream: &TcpStream) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY not set");
    }
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::net::sockopt::set_tcp_user_timeout(stream, UNACKNOWLEDGED_MS) {
        tracing::debug!(%error, "TCP_USER_TIMEOUT not set");
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use axum::body::Body;
    use bytes::Bytes;
    use futures::stream;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    async fn started(router: Router, max: usize) -> (std::net::SocketAddr, CancellationToken) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let (address, soft) = (listener.local_addr().expect("an address"), CancellationToken::new());
        tokio::spawn(serve(listener, None, router, max, soft.clone()));
        (address, soft)
    }

    async fn connected(address: std::net::SocketAddr) -> TcpStream {
        TcpStream::connect(address).await.expect("a connection")
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_is_disconnected() {
        let (dropped, is_dropped) = tokio::sync::oneshot::channel::<()>();
        let dropped = Arc::new(parking_lot::Mutex::new(Some(dropped)));
        let endless = move || {
            let holder = dropped.lock().take();
            async move {
                let chunks = stream::unfold(holder, |holder| async move {
                    Some((Ok::<_, Infallible>(Bytes::from_static(&[b'x'; 16384])), holder))
                });
                Body::from_stream(chunks)
            }
        };
        let (address, _soft) = started(Router::new().fallback(endless), 8).await;
        let mut client = connected(address).await;
        client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("sent");
        // It never reads, so the buffers of the connection fill up, and time passes as soon as all tasks wait.
        assert!(is_dropped.await.is_err(), "the body is dropped");
        drop(client);
    }

    #[tokio::test(start_paused = true)]
    async fn an_unfinished_head_is_given_up() {
        let (address, _soft) = started(Router::new(), 8).await;
        let mut client = connected(address).await;
        client.write_all(b"GET / HTTP/1.1\r\nhost:").await.expect("sent");
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.expect("closed by the server");
    }

    #[tokio::test]
    async fn an_unused_connection_outlasts_that_of_a_proxy() {
        let (address, _soft) = started(Router::new(), 8).await;
        let mut client = connected(address).await;
        for _ in 0..2 {
            client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("sent");
            let mut answer = [0; 512];
            let length = client.read(&mut answer).await.expect("an answer");
            assert!(answer[..length].starts_with(b"HTTP/1.1 404"), "{:?}", answer[..length].escape_ascii());
            // Two minutes pass at once, and none while bytes are on their way.
            tokio::time::pause();
            tokio::time::advance(Duration::from_mins(2)).await;
            tokio::time::resume();
        }
    }

    #[tokio::test]
    async fn more_connections_than_allowed_wait() {
        let (address, _soft) = started(Router::new(), 1).await;
        let request = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        let first = connected(address).await;
        let mut second = connected(address).await;
        second.write_all(request).await.expect("sent");
        let mut answer = [0; 1];
        let early = tokio::time::timeout(Duration::from_millis(100), second.read(&mut answer)).await;
        assert!(early.is_err(), "the first connection is open");
        drop(first);
        assert_eq!(second.read(&mut answer).await.expect("an answer"), 1);
    }
}
