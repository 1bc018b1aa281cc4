//! Pictures in and out.

mod preview;
mod read;
mod resize;
mod write;

pub use preview::preview;
pub use read::{Source, read};
pub use write::{base64, png};
