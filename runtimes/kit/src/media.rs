//! Images and audio in and out.
//!
//! | module | content |
//! | --- | --- |
//! | [`base64`] | media as they appear in an input or output |
//! | [`sound`] | audio in, as one channel at one rate, and out |
//! | [`picture`] | images in, within limits and upright |
//! | [`resize`] | resizing as Pillow does |
//! | [`plane`] | resizing planes of numbers as PyTorch does |
//! | [`segment`] | segments of an image |
//! | [`gray`] | masks and depth maps out |

pub mod base64;
pub mod gray;
pub mod picture;
pub mod plane;
pub mod resize;
pub mod segment;
pub mod sound;
