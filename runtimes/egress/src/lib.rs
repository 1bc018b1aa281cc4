//! The way out of a container that has no network: a filtering proxy behind a Unix socket, one for each job.
//!
//! A container sees a folder with that socket and with a forwarder, which carries connections from its loopback to the socket. What
//! comes through is HTTP as proxies speak it: `CONNECT`, or a whole address for plain HTTP. A request is compared with the places
//! that the Cargo declared and the owner allows; the name is resolved here, each address is looked at, and the connection is made to
//! the very address that was looked at. Redirects need no care: they are other requests.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`target`] | what a request asks for |
//! | [`address`] | which addresses may be connected to |
//! | [`outside`] | names and the network: the seam for tests |
//! | [`bounds`] | how much one job may connect and carry |
//! | [`gate`] | the folder, the socket and whoever comes through it |
//! | [`refusal`] | why not, in the words of HTTP |
//! | `testing` | an outside of a test's own (feature `testing`) |

pub mod address;
pub mod bounds;
mod connection;
pub mod gate;
mod headers;
mod metered;
pub mod outside;
pub mod refusal;
pub mod target;
#[cfg(feature = "testing")]
pub mod testing;

pub use bounds::Bounds;
pub use gate::{Gate, GateError};
pub use outside::{Internet, Outside};
