//! A Docker daemon of a test's own, and images made on the spot.

mod dockerd;
mod image;

pub use dockerd::Dockerd;
pub use image::{Tar, busybox, docker_archive};
