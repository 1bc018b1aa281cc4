//! The cache with a hub on loopback that fails in all ways of real ones.

mod hub;
mod lies;
mod raw;
mod stories;
