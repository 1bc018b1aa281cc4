//! Models as protobuf. Only what this crate reads is declared; the numbers are those of Core ML's published format.
//!
//! | module | content |
//! | --- | --- |
//! | [`model`] | a model and its description of inputs and outputs |
//! | [`mil`] | its program |
//! | [`read`] | messages to a [`crate::program::Program`] |

pub mod mil;
pub mod model;
pub mod read;
