//! Egress of a container that has no network: a filtering proxy behind a Unix socket, one for each job.
//!
//! A container mounts a folder with that socket and a forwarder, which forwards connections from its loopback to the socket. The protocol
//! is that of HTTP proxies: `CONNECT`, or an absolute address for plain HTTP. A request is compared with the addresses that the Cargo
//! declares and the owner allows; the name is resolved here, each address is checked, and the connection is made to the checked address.
//! Redirects need no special treatment: they are further requests.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`target`] | parses the address of a request |
//! | [`address`] | which addresses may be connected to |
//! | `nearby` | networks of the owner with public addresses |
//! | [`outside`] | name resolution and network, replaceable in tests |
//! | [`bounds`] | limits of one job's connections |
//! | [`gate`] | the folder, the socket and its connections |
//! | [`refusal`] | why a request is refused, as HTTP status |
//! | `testing` | an artificial outside for tests (feature `testing`) |

pub mod bounds;
mod connection;
pub mod gate;
mod headers;
mod metered;
mod nearby;
pub mod outside;
pub mod refusal;
pub mod target;
#[cfg(feature = "testing")]
pub mod testing;

pub use bounds::Bounds;
pub use gate::{Gate, GateError};
pub use island_protocol::public_address as address;
pub use outside::{Internet, Outside};
