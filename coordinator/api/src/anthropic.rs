//! Operations in the form of Anthropic's API.

pub(crate) mod messages;
