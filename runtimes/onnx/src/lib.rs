//! Models in ONNX form, run by ONNX Runtime, and everything around them that makes an answer of a text, a picture or a sound.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`library`] | finding and opening ONNX Runtime |
//! | [`devices`] | what it may compute on |
//! | [`repository`] | the files of a Cargo as a Hugging Face repository: settings, tokeniser, which graph of several |
//! | [`graph`] | one graph: what it asks for, what is made up for it, what it gives |
//! | [`batch`] | texts that wait for the same graph go through it together, in lanes side by side |
//! | [`task`] | the tasks, and which module answers each |
//! | [`text`] | tasks that read a text: labels, entities, answers, embeddings |
//! | [`generate`] | texts written token by token |
//! | [`vision`] | tasks that look at a picture: labels, boxes, masks, depth, what is written there |
//! | [`speech`] | tasks that hear or speak |
//! | [`media`] | pictures and sounds in and out |
//! | [`run`] | what a running job may say and must obey |
//! | [`runtime`], [`worker`] | the seams to the rest |
//!
//! A task is a [`task::Pipeline`]: loaded once from a repository, then asked by several jobs at once. Its answers are those of the
//! Python pipelines of `transformers`; `tests/fixtures` holds small models of each family with theirs.

pub mod batch;
pub mod runtime;
pub mod seq2seq;
pub mod speech;
pub mod task;
pub mod text;
pub mod vision;
pub mod worker;
