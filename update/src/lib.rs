//! Keeps an Island's packages up to date, for owners who turn it on.
//!
//! A release is one signed list of files ([`manifest`]). Whether it may be installed is a pure question ([`judge`]): who signed it, for
//! what, whether it is fresh, and whether it goes forward. What passes is fetched and compared with its hash ([`fetch`]), and installed
//! once the Island has nothing to do ([`apply`]); what does not come up is taken back and never tried again. What the machine does
//! for that is behind one trait ([`machine`]), of which [`debian`] is the real one; what must be remembered is in [`record`].
//!
//! It runs as root from a timer and ends; the agent itself never can replace its own program.

pub mod apply;
pub mod config;
pub mod debian;
pub mod fetch;
pub mod judge;
pub mod machine;
pub mod manifest;
pub mod record;
