//! Speech to text around any acoustic model.
//!
//! | module | content |
//! | --- | --- |
//! | [`transcribe`] | the input of a transcription, and the pipeline around a [`Transcriber`](transcribe::Transcriber) |
//! | [`mel`] | log-mel features |
//! | [`whisper`], [`times`] | Whisper on audio of any length, and its timestamps |
//! | [`ctc`] | models that label every frame: wav2vec2, HuBERT |

pub mod ctc;
pub mod mel;
pub mod times;
pub mod transcribe;
pub mod whisper;
