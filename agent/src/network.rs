//! Addresses that may be reached: by containers, and for downloads.
//!
//! | module | what it decides |
//! | --- | --- |
//! | [`egress`] | where the programs of containers may connect |
//! | [`destinations`] | where models may be downloaded from |

pub mod destinations;
pub mod egress;
