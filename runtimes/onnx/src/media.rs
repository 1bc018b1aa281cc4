//! Pictures and sounds in and out.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`base64`] | media as they stand in an input or output |
//! | [`sound`] | sounds in, as one channel at one rate, and out |

pub mod base64;
pub mod sound;
