//! Pictures and sounds in and out.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`base64`] | media as they stand in an input or output |
//! | [`sound`] | sounds in, as one channel at one rate, and out |
//! | [`picture`] | pictures in, within limits and the right way up |
//! | [`resize`] | pictures to another size, as Pillow does it |
//! | [`plane`] | planes of numbers to another size, as PyTorch does it |
//! | [`segment`] | segments of an image |
//! | [`gray`] | masks and depth maps out |

pub mod base64;
pub mod gray;
pub mod picture;
pub mod plane;
pub mod resize;
pub mod segment;
pub mod sound;
