//! Programs in containers, run by Docker Engine or Podman for people who do not know each other.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`engine_config`] | the settings of a Cargo for its container |
//! | [`resource_limits`] | what a container gets: the bounds of its tier, within the rules of the owner |
//! | [`body`] | what the daemon is asked to create; nothing a Cargo says can loosen it |
//! | [`labels`], [`process`] | labels that tell our orphans from what others use |
//! | [`archive`] | image files, looked through and written anew before a daemon unpacks them |
//! | [`images`] | each image brought to the daemon once |
//! | [`daemon`] | the daemon and its socket; what it can do, and whether that is enough |
//! | [`start`] | from an image to a program that waits for its input |
//! | [`egress_mount`] | the forwarder through which a program connects to what its Cargo declares |
//! | [`warm_pool`] | containers started before their job arrives |
//! | [`run`], [`exit`] | one job: input, lines, and how it ended |
//! | [`remover`] | who takes containers away |
//! | [`runtime`] | the seam to the rest |
//! | [`worker`] | what the worker binary brings |
//! | `testing` | a Docker daemon of a test's own (feature `testing`) |

pub mod archive;
pub mod body;
pub mod daemon;
pub mod egress_mount;
pub mod engine_config;
pub mod exit;
pub mod images;
pub mod labels;
pub mod process;
pub mod remover;
pub mod resource_limits;
pub mod run;
pub mod runtime;
pub mod start;
#[cfg(feature = "testing")]
pub mod testing;
pub mod warm_pool;
pub mod worker;

pub use runtime::{Containers, Settings};
