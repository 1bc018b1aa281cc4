//! Names and the network. What a program may reach is decided here and nowhere else; tests bring an outside of their own, which no
//! setting can.

use std::{
    io,
    net::{SocketAddr, UdpSocket},
};

use futures::future::BoxFuture;
use island_protocol::egress::HostName;

use crate::address::{Forbidden, may_connect};

/// Where names lead, and which addresses may be connected to.
pub trait Outside: Send + Sync + 'static {
    /// The addresses of a host, asked for once for each connection.
    fn resolve<'a>(&'a self, host: &'a HostName, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>>;

    /// Whether one of them may be connected to.
    fn check(&self, address: SocketAddr) -> Result<(), Forbidden>;
}

/// The public internet, and nothing that is nearer.
#[derive(Debug, Clone, Copy, Default)]
pub struct Internet;

impl Outside for Internet {
    fn resolve<'a>(&'a self, host: &'a HostName, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(async move {
            // With a dot at its end a name is whole: no search list of this machine is added to it.
            let found = tokio::net::lookup_host((format!("{}.", host.as_str()), port)).await?;
            Ok(found.collect())
        })
    }

    fn check(&self, address: SocketAddr) -> Result<(), Forbidden> {
        may_connect(address.ip())?;
        // Services that a firewall hides from the internet may well listen at this machine's public address. Only an address of its
        // own can be bound to.
        match UdpSocket::bind((address.ip(), 0)) {
            Ok(_) => Err(Forbidden("this host")),
            Err(_) => Ok(()),
        }
    }
}
