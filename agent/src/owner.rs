//! The owner of this machine: the rules that they set, and the information that they get.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`policy`] | the owner's rules and orders, and what follows from them; pure |
//! | [`earnings`] | what this Island earned, day by day |
//! | [`notices`] | what the operators of the network want owners to know |

pub mod earnings;
pub mod notices;
pub mod policy;
