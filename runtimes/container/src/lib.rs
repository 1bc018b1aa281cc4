//! Runs programs in containers of Docker Engine or Podman, for consumers that do not trust each other.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`engine_config`] | the settings of a Cargo for its container |
//! | [`resource_limits`] | what a container gets: the limits of its tier, within the owner's rules |
//! | [`body`] | the request to create a container; no Cargo can weaken it |
//! | [`labels`], [`orphans`] | labels by which containers of workers that have ended are found and removed |
//! | [`archive`] | checks image files and writes them anew before a daemon unpacks them |
//! | [`images`] | loads each image into the daemon once |
//! | [`daemon`] | the daemon and its socket; what it supports, and whether that suffices |
//! | [`start`] | from an image to a program that waits for its input |
//! | [`egress_mount`] | the forwarder through which a program connects to what its Cargo declares |
//! | [`warm_pool`] | containers started before their job arrives |
//! | [`run`], [`exit`] | one job: input, lines, and how it ended |
//! | [`remover`] | removes containers |
//! | [`runtime`] | the engine interface |
//! | [`worker`] | the loader for the worker binary |
//! | `testing` | a Docker daemon for one test (feature `testing`) |

pub mod archive;
pub mod body;
pub mod daemon;
pub mod egress_mount;
pub mod engine_config;
pub mod exit;
pub mod images;
pub mod labels;
pub mod orphans;
pub mod remover;
pub mod resource_limits;
pub mod run;
pub mod runtime;
pub mod start;
#[cfg(feature = "testing")]
pub mod testing;
mod toolkit;
pub mod warm_pool;
pub mod worker;

pub use runtime::{Containers, Settings};
