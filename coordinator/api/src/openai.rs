//! Operations in the form of OpenAI's API, and those of other providers that its clients use (reranking).

pub(crate) mod audio;
pub(crate) mod chat;
pub(crate) mod embeddings;
pub(crate) mod files;
pub(crate) mod images;
pub(crate) mod models;
pub(crate) mod moderations;
pub(crate) mod one_job;
pub(crate) mod openai_form;
pub(crate) mod rerank;
pub(crate) mod responses;
pub(crate) mod speech;
