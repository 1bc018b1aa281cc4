//! Sound and moving pictures, by ffmpeg.

pub(crate) mod audio;
pub(crate) mod clip;
pub(crate) mod compress;
mod ffmpeg;
pub(crate) mod gif;
pub(crate) mod loudness;
pub(crate) mod merge;
pub(crate) mod thumbnail;
pub(crate) mod transcode;
