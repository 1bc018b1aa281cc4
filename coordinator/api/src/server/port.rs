//! The port of a server that is starting: taken from the beginning, and open only when there is someone to answer.

use std::{io, net::SocketAddr};

use tokio::net::{TcpListener, TcpSocket};

/// Maximum connections that wait to be accepted, as in the standard library.
const BACKLOG: u32 = 128;

/// A port that no other process can take, on which nothing listens yet: connections are refused.
#[derive(Debug)]
pub struct Port(TcpSocket);

impl Port {
    /// Takes the port of `address`, or a free one if that is 0.
    pub fn take(address: SocketAddr) -> io::Result<Self> {
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        // Connections of an earlier process may still be closing.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        // Of two sockets with this option that do not listen, Linux gives the port to both.
        socket.set_reuseaddr(false)?;
        Ok(Self(socket))
    }

    /// Accepts connections from now on.
    pub fn listen(self) -> io::Result<TcpListener> {
        // Listening takes the port once more, by the rules of the same option.
        self.0.set_reuseaddr(true)?;
        self.0.listen(BACKLOG)
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use tokio::{io::AsyncReadExt as _, net::TcpStream};

    use super::*;

    #[tokio::test]
    async fn a_port_that_is_taken_refuses_connections_until_it_listens() {
        let port = Port::take(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a port");
        let address = port.0.local_addr().expect("an address");
        let refused = TcpStream::connect(address).await.expect_err("nothing listens");
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{refused}");
        let listener = port.listen().expect("it is free");
        TcpStream::connect(address).await.expect("a connection");
        listener.accept().await.expect("the same connection");
    }

    #[tokio::test]
    async fn a_port_is_taken_once_and_again_after_its_server_has_ended() {
        let first = Port::take(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a port");
        let address = first.0.local_addr().expect("an address");
        let listener = first.listen().expect("it is free");
        let second = Port::take(address).expect_err("another one listens");
        assert_eq!(second.kind(), ErrorKind::AddrInUse, "{second}");
        // The side that closes first keeps the connection in the port's table for some time.
        let mut client = TcpStream::connect(address).await.expect("a connection");
        drop(listener.accept().await.expect("the same connection"));
        assert_eq!(client.read(&mut [0]).await.expect("the end"), 0);
        drop((client, listener));
        Port::take(address).expect("it is free again").listen().expect("it is free again");
    }

    #[test]
    fn a_port_of_a_server_that_is_starting_is_not_taken_by_another() {
        let first = Port::take(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a port");
        let address = first.0.local_addr().expect("an address");
        let second = Port::take(address).expect_err("the first one is starting");
        assert_eq!(second.kind(), ErrorKind::AddrInUse, "{second}");
    }
}
