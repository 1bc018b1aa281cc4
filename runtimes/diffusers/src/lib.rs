//! The diffusers engine: Stable Diffusion, on the processor by candle's tensors and on GPUs as graphs in ONNX Runtime. Text to image, image to
//! image, and inpainting.
//!
//! | module | content |
//! | --- | --- |
//! | [`repository`] | the files of a Cargo as a diffusers repository: settings, and the choice of weights |
//! | [`weights`] | safetensors: headers are checked, tensors are read once |
//! | [`model`] | all parts of a repository, loaded, and their memory |
//! | [`compute`] | what the networks need of whatever computes them, and its form for the processor |
//! | [`lower`] | its form for GPUs: the networks written down as graphs |
//! | [`networks`] | the networks on a device |
//! | [`text`] | tokens, text encoders, a cache of encoded prompts |
//! | [`unet`] | the network that predicts noise |
//! | [`vae`] | the autoencoder between images and latents, in tiles for large images |
//! | [`schedule`] | schedulers: pure arithmetic |
//! | [`noise`] | noise of a seed |
//! | [`lora`] | adapters, added to the shared weights for one job |
//! | [`request`] | the input of a job, validated before any work |
//! | [`denoise`] | the denoising loop |
//! | [`picture`] | images in and out, and previews |
//! | [`ops`] | layers, each one pass over memory on the processor |
//! | [`error`] | errors of candle |
//! | [`runtime`], [`worker`] | the engine, and its loader in a worker process |
//!
//! Images equal those of diffusers for the same settings, weights and noise; `tests/fixtures` contains small models of each family with its
//! results. Noise itself is generated differently, so that a seed gives the same image on every Island.

pub mod compute;
pub mod denoise;
pub mod error;
pub mod lora;
pub mod lower;
pub mod model;
pub mod networks;
pub mod noise;
pub mod ops;
pub mod picture;
pub mod repository;
pub mod request;
pub mod runtime;
pub mod schedule;
pub mod text;
pub mod unet;
pub mod vae;
pub mod weights;
pub mod worker;
