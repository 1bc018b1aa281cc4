//! Stable Diffusion on candle's tensors: pictures of a prompt, of a given picture, or of a part of one.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`repository`] | the files of a Cargo as a diffusers repository: settings, and which weights of several |
//! | [`weights`] | safetensors: headers that are checked, tensors that are read once |
//! | [`model`] | all parts of a repository, loaded, and what they may ask of memory |
//! | [`text`] | tokens, the text encoders, prompts that were encoded lately |
//! | [`unet`] | the network that predicts noise |
//! | [`vae`] | the autoencoder between pictures and latents, in tiles where they are large |
//! | [`schedule`] | how noise is taken away step by step: pure arithmetic |
//! | [`noise`] | noise of a seed |
//! | [`lora`] | adapters, added beside the shared weights for one job |
//! | [`request`] | the input of a job, checked before any work |
//! | [`pipeline`] | the walk from noise to a picture |
//! | [`picture`] | pictures in and out, and previews |
//! | [`ops`] | the layers, each one pass over memory on processors |
//! | [`error`] | errors of candle |
//! | [`runtime`], [`worker`] | the seams to the rest |
//!
//! A picture is what diffusers makes of the same settings, weights and noise; `tests/fixtures` holds small models of each family with its
//! answers. Noise itself is drawn otherwise, so that a seed means the same picture on every Island.

pub mod error;
pub mod lora;
pub mod model;
pub mod noise;
pub mod ops;
pub mod picture;
pub mod pipeline;
pub mod repository;
pub mod request;
pub mod runtime;
pub mod schedule;
pub mod text;
pub mod unet;
pub mod vae;
pub mod weights;
pub mod worker;
