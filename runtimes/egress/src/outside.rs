//! Name resolution and the network. Only this decides what a program may reach; tests use a replacement, which no setting can select.

use std::{
    io,
    net::{SocketAddr, UdpSocket},
};

use futures::future::BoxFuture;
use island_protocol::egress::HostName;

use crate::address::{Forbidden, may_connect};

/// Resolves names, and decides which addresses may be connected to.
pub trait Outside: Send + Sync + 'static {
    /// The addresses of a host, resolved once for each connection.
    fn resolve<'a>(&'a self, host: &'a HostName, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>>;

    /// Whether one of them may be connected to.
    fn check(&self, address: SocketAddr) -> Result<(), Forbidden>;
}

/// The public internet.
#[derive(Debug, Clone, Copy, Default)]
pub struct Internet;

impl Outside for Internet {
    fn resolve<'a>(&'a self, host: &'a HostName, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(async move {
            // With a trailing dot a name is absolute: no search list of this machine is applied to it.
            let found = tokio::net::lookup_host((format!("{}.", host.as_str()), port)).await?;
            Ok(found.collect())
        })
    }

    fn check(&self, address: SocketAddr) -> Result<(), Forbidden> {
        may_connect(address.ip())?;
        // Services that a firewall hides from the internet may listen on this machine's public address. Only an address of this machine can
        // be bound.
        match UdpSocket::bind((address.ip(), 0)) {
            Ok(_) => Err(Forbidden("this host")),
            Err(_) => Ok(()),
        }
    }
}
