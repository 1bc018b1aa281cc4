//! Images in and out.

mod preview;
mod read;
mod write;

pub use preview::preview;
pub use read::{Source, read, read_transparency};
pub use write::png;
