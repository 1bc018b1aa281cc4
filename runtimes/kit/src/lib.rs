//! What the engines share: the shell around a blocking model, errors, media, and generation. Independent of the library that runs a model.
//!
//! | module | content |
//! | --- | --- |
//! | [`error`] | the error of engines, and how it appears on the wire |
//! | [`job`], [`jobs`] | a running job as engine code sees it; running blocking code as asynchronous jobs |
//! | [`stop`] | cancellation within a step |
//! | [`pipeline`] | what every task implements |
//! | [`repository`] | the files of a Cargo, read with size limits |
//! | [`keys`] | keys of settings files, and what the engines do with each |
//! | [`values`] | values of settings files: one of another kind is refused |
//! | [`media`] | images and audio in and out |
//! | [`noise`] | noise of a key |
//! | [`text`] | tokenizers, and logits to labels |
//! | [`generate`] | text generation token by token |
//! | [`speech`] | speech to text around any acoustic model |

pub mod error;
pub mod generate;
pub mod job;
pub mod jobs;
pub mod keys;
pub mod media;
pub mod noise;
pub mod pipeline;
pub mod repository;
pub mod speech;
pub mod stop;
pub mod text;
pub mod values;
