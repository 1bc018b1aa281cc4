//! A connection that can be cut: bytes pass through a proxy, which holds them back on request, in one direction or in both, and delivers
//! them later. To the two sides this is a network that loses every packet for a time.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::atomic::{AtomicUsize, Ordering},
};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpStream, UnixStream},
    sync::watch,
    task::JoinSet,
};

use super::plan::Direction;

/// Where connections lead.
#[derive(Debug, Clone)]
pub enum Target {
    /// To the first of these that accepts, each time beginning with the next one, like a load balancer.
    AnyOf(Vec<SocketAddr>),
    /// To a socket of this machine.
    Socket(PathBuf),
}

/// Which directions pass.
#[derive(Debug, Clone, Copy)]
struct Open {
    there: bool,
    back: bool,
}

/// A proxy, which runs until it is dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    open: watch::Sender<Open>,
    /// Accepts connections; aborted with its set.
    _accepting: JoinSet<()>,
}

impl Proxy {
    /// Listens on a free port of this machine.
    pub async fn start(target: Target) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let (open, watched) = watch::channel(Open { there: true, back: true });
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, target, watched));
        Ok(Self { address, open, _accepting: accepting })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Holds back the bytes of one direction or of both, and new connections with those there.
    pub fn cut(&self, direction: Direction) {
        let (there, back) = match direction {
            Direction::Both => (false, false),
            Direction::There => (false, true),
            Direction::Back => (true, false),
        };
        self.open.send_replace(Open { there, back });
    }

    /// Lets everything pass, what was held back first.
    pub fn heal(&self) {
        self.open.send_replace(Open { there: true, back: true });
    }
}

async fn accept(listener: TcpListener, target: Target, open: watch::Receiver<Open>) {
    let mut connections = JoinSet::new();
    let turn = std::sync::Arc::new(AtomicUsize::new(0));
    loop {
        while connections.try_join_next().is_some() {}
        let Ok((client, _)) = listener.accept().await else { continue };
        let (target, open, turn) = (target.clone(), open.clone(), turn.clone());
        connections.spawn(async move {
            // An error of either side closes both, which is all that it means here.
            let _ = connect(client, &target, open, &turn).await;
        });
    }
}

async fn connect(
    client: TcpStream,
    target: &Target,
    mut open: watch::Receiver<Open>,
    turn: &AtomicUsize,
) -> io::Result<()> {
    passes(&mut open, |open| open.there).await?;
    client.set_nodelay(true)?;
    match target {
        Target::AnyOf(addresses) => {
            let first = turn.fetch_add(1, Ordering::Relaxed);
            let mut last = io::ErrorKind::NotFound.into();
            for offset in 0..addresses.len() {
                match TcpStream::connect(addresses[(first + offset) % addresses.len()]).await {
                    Ok(server) => {
                        server.set_nodelay(true)?;
                        return join(client, server, open).await;
                    }
                    Err(error) => last = error,
                }
            }
            Err(last)
        }
        Target::Socket(path) => join(client, UnixStream::connect(path).await?, open).await,
    }
}

async fn join<S: AsyncRead + AsyncWrite>(
    client: TcpStream,
    server: S,
    open: watch::Receiver<Open>,
) -> io::Result<()> {
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = tokio::io::split(server);
    let there = copy(from_client, to_server, open.clone(), |open| open.there);
    let back = copy(from_server, to_client, open, |open| open.back);
    tokio::try_join!(there, back).map(|_| ())
}

/// Copies until the end of the input, while the direction is open.
async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut open: watch::Receiver<Open>,
    direction: fn(&Open) -> bool,
) -> io::Result<()> {
    let mut bytes = vec![0; 64 << 10];
    loop {
        passes(&mut open, direction).await?;
        let read = from.read(&mut bytes).await?;
        // A cut may have begun meanwhile.
        passes(&mut open, direction).await?;
        if read == 0 {
            return to.shutdown().await;
        }
        to.write_all(&bytes[..read]).await?;
    }
}

async fn passes(open: &mut watch::Receiver<Open>, direction: fn(&Open) -> bool) -> io::Result<()> {
    open.wait_for(direction).await.map(|_| ()).map_err(|_| io::ErrorKind::ConnectionAborted.into())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A connection through a proxy, its other end, and the proxy.
    async fn through() -> (TcpStream, TcpStream, Proxy) {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let closed = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let unreachable = closed.local_addr().expect("an address");
        drop(closed);
        let targets = vec![unreachable, server.local_addr().expect("an address")];
        let proxy = Proxy::start(Target::AnyOf(targets)).await.expect("a proxy");
        let client = TcpStream::connect(proxy.address()).await.expect("a connection");
        let (accepted, _) = server.accept().await.expect("a connection");
        (client, accepted, proxy)
    }

    async fn receives(stream: &mut TcpStream, text: &str) -> bool {
        let mut bytes = vec![0; text.len()];
        let read = tokio::time::timeout(Duration::from_millis(300), stream.read_exact(&mut bytes)).await;
        read.is_ok_and(|read| read.is_ok()) && bytes == text.as_bytes()
    }

    #[tokio::test]
    async fn a_cut_holds_bytes_back_in_its_direction_and_healing_delivers_them() {
        let (mut client, mut server, proxy) = through().await;
        client.write_all(b"one").await.expect("sent");
        assert!(receives(&mut server, "one").await, "it passes to the server that accepts");
        proxy.cut(Direction::There);
        client.write_all(b"two").await.expect("sent");
        server.write_all(b"back").await.expect("sent");
        assert!(!receives(&mut server, "two").await, "held back");
        assert!(receives(&mut client, "back").await, "the other direction is open");
        proxy.heal();
        assert!(receives(&mut server, "two").await);
    }

    #[tokio::test]
    async fn an_end_passes_like_bytes() {
        let (client, mut server, proxy) = through().await;
        proxy.cut(Direction::Both);
        drop(client);
        let mut byte = [0];
        let end = tokio::time::timeout(Duration::from_millis(300), server.read(&mut byte)).await;
        assert!(end.is_err(), "nothing arrives through a cut");
        proxy.heal();
        assert_eq!(server.read(&mut byte).await.expect("the end"), 0);
    }
}
