//! A Docker daemon of a test's own, and images made on the spot.

mod dockerd;
mod image;

pub use dockerd::{BRIDGE_ADDRESS, Dockerd, HOST_ADDRESSES};
pub use image::{Tar, busybox, docker_archive};
