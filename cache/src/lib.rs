//! Content-addressed store of models and modules: resolve, download, verify, pin, evict.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`store`] | [`Cache`] |
//! | `hub`, `pick` | which file of a repository an address means, and where to download it |
//! | `web`, `download`, `pieces` | parts of files over several connections, resumed after a kill, hashed meanwhile |
//! | `hosts`, `refusal`, `patience` | connections per host, what a refusal means, when a request is repeated |
//! | `size` | limits on the length of files and bodies |
//! | [`head`] | reads heads of answers without a connection, for fuzzing |
//! | `layout`, `index` | paths, and what each address resolved to |
//! | `local`, `foreign` | files used in place: on this machine, and in hub caches of other programs |
//! | [`pin`], `evict`, `space` | handles that keep a file, space for partial files, and what is removed for them |
//! | `lock` | locks between processes |
//! | `mismatch` | files whose hash is not the one that their Cargo states |
//!
//! The folder: `blobs/<sha256>` verified files, `refs/` what each address resolved to, `local/` which files were hashed in place and how
//! changes of them are detected, `partial/` partial files with their locks, `room.lock`, held while space is claimed, `mismatches.json` files that are not requested for
//! now.
//!
//! The one invariant: a returned path contains bytes whose SHA-256 was computed and, if the artifact or the hub names a digest, equals it.

mod download;
pub mod error;
mod evict;
mod foreign;
mod hash;
pub mod head;
mod hosts;
mod hub;
mod index;
mod layout;
mod local;
mod lock;
mod mismatch;
mod pace;
mod patience;
mod pick;
mod pieces;
pub mod pin;
mod refusal;
mod size;
mod space;
pub mod store;
mod web;

pub use error::{GetError, OpenError};
pub use hash::bytes as digest_of;
pub use hub::{CheckError, TokenStanding, check_hub};
pub use mismatch::Mismatch;
pub use pin::Pinned;
pub use space::Reservation;
pub use store::{Beside, Cache, CacheConfig, Entry, OwnFile, Progress, Transfer, verified_files};
pub use web::{Destinations, Learning, WebError};
