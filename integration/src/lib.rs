//! Stories about a whole network: real NATS, a real coordinator, real Islands, each test with its own.
//!
//! A [`Network`] is an `island dev` in a temporary folder. Scripted jobs (`sim-chat`) give volume and exact text; the
//! shipped model gives the real engine. [`processes`] finds and kills the parts.

pub mod chaos;
pub mod examples;
pub mod expect;
pub mod fixture_cargos;
pub mod guide;
pub mod namespace;
pub mod network;
pub mod processes;
pub mod scripted_island;

pub use network::{Network, Options, has_postgres, program};
