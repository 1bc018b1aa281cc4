//! The cache against a hub on loopback that behaves as badly as real ones do.

mod hub;
mod lies;
mod raw;
mod stories;
