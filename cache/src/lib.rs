//! Content-addressed store of models and modules: resolve, fetch, verify, pin, evict.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`store`] | [`Cache`]: the way in |
//! | `hub`, `pick` | which file of a repository is meant, and where its bytes are |
//! | `web`, `download`, `pieces` | parts of files over several connections, resumed after a kill, hashed on the way |
//! | `size` | how long a file may be, and how much of an answer is taken |
//! | `layout`, `index` | where things lie, and what each address was found to be |
//! | `local`, `foreign` | files used where they lie: of this machine, and of other programs' hub caches |
//! | [`pin`], `evict`, `room` | handles that keep a file, space for files on their way, and what is removed for them |
//! | `lock` | locks between processes |
//!
//! The folder: `blobs/<sha256>` verified files, `refs/` what each address was found to be, `local/` which files were
//! hashed and what would show that they changed, `partial/` files on their way with their locks, `room.lock`, held while
//! space is claimed.
//!
//! The one invariant: a path handed out names bytes whose SHA-256 was computed and, where the artifact or the hub names
//! a digest, is that digest.

mod download;
pub mod error;
mod evict;
mod foreign;
mod hash;
mod hub;
mod index;
mod layout;
mod local;
mod lock;
mod pace;
mod pick;
mod pieces;
pub mod pin;
mod room;
mod size;
pub mod store;
mod web;

pub use error::{GetError, OpenError};
pub use hash::bytes as digest_of;
pub use pin::Pinned;
pub use store::{Cache, CacheConfig, Entry, OwnFile, Progress};
pub use web::WebError;
