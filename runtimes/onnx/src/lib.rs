//! The ONNX engine: the tasks of `transformers` pipelines on models in ONNX form.
//!
//! | module | content |
//! | --- | --- |
//! | [`batch`] | batching of texts that wait for the same graph |
//! | [`task`] | the tasks, and the module of each |
//! | [`text`] | tasks on text: labels, entities, answers, embeddings |
//! | [`vision`] | tasks on images: labels, boxes, masks, depth, text |
//! | [`speech`] | speech to text, and text to speech |
//! | [`seq2seq`] | decoders that attend to an encoder's states, with their caches |
//! | [`runtime`], [`worker`] | the engine, and its loader in a worker process |
//!
//! A task is a [`Pipeline`](island_runtimes_kit::pipeline::Pipeline): loaded once from a repository, then shared by concurrent jobs. Its outputs are
//! those of the Python pipelines of `transformers`; `tests/fixtures` contains small models of each family with the outputs of those.

pub mod batch;
pub mod runtime;
pub mod seq2seq;
pub mod speech;
pub mod task;
pub mod text;
pub mod vision;
pub mod worker;
