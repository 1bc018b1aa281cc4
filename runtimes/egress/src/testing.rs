//! An artificial outside for tests: a few names, and addresses of this machine that count as public. Only code can select it, no setting.

use std::{collections::HashMap, io, net::SocketAddr};

use futures::future::BoxFuture;
use island_protocol::egress::HostName;
use parking_lot::{Mutex, MutexGuard};

use crate::{
    Outside,
    address::{Forbidden, may_connect},
};

/// A small outside.
#[derive(Debug, Default)]
pub struct Town(Mutex<Registers>);

#[derive(Debug, Default)]
struct Registers {
    names: HashMap<String, Vec<Vec<SocketAddr>>>,
    public: Vec<SocketAddr>,
    queried: Vec<String>,
}

impl Town {
    /// Defines a name: the first list answers the first query, the last one all later queries.
    pub fn name(&self, host: &str, answers: &[&[SocketAddr]]) {
        let answers = answers.iter().map(|answer| answer.to_vec()).collect();
        self.registers().names.insert(host.to_owned(), answers);
    }

    /// Makes an address count as public.
    pub fn publish(&self, address: SocketAddr) {
        self.registers().public.push(address);
    }

    /// The names that were queried.
    pub fn queried(&self) -> Vec<String> {
        self.registers().queried.clone()
    }

    fn registers(&self) -> MutexGuard<'_, Registers> {
        self.0.lock()
    }

    fn answer(&self, host: &str) -> io::Result<Vec<SocketAddr>> {
        let mut registers = self.registers();
        registers.queried.push(host.to_owned());
        let answers = registers.names.get_mut(host).ok_or_else(|| io::Error::other("no such name"))?;
        let first = answers.first().cloned().unwrap_or_default();
        if answers.len() > 1 {
            answers.remove(0);
        }
        Ok(first)
    }
}

impl Outside for Town {
    fn resolve<'a>(&'a self, host: &'a HostName, _port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(async move { self.answer(host.as_str()) })
    }

    fn check(&self, address: SocketAddr) -> Result<(), Forbidden> {
        if self.registers().public.contains(&address) { Ok(()) } else { may_connect(address.ip()) }
    }
}
