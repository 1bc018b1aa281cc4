//! Updates an Island's packages, for owners who enable it.
//!
//! A release is a signed list of files ([`manifest`]). A pure function decides whether it may be installed ([`judge`]): by signatures,
//! product, freshness and version. An accepted release is downloaded and compared with its hash ([`fetch`]), and installed once the Island
//! runs no job ([`apply`]); a version that does not start is reverted and never tried again. The machine is behind a trait ([`machine`]),
//! which [`debian`] implements; what must be remembered is in [`record`].
//!
//! It runs as root from a timer and exits; the agent cannot replace its own program.

pub mod apply;
pub mod config;
pub mod debian;
pub mod fetch;
pub mod judge;
pub mod machine;
pub mod manifest;
pub mod record;
