//! Tasks that read or generate speech.
//!
//! | module | content |
//! | --- | --- |
//! | [`transcribe`] | speech to text: the kind of model that a repository holds |
//! | [`whisper`], [`ctc`] | Whisper and models that label every frame, as ONNX graphs |
//! | [`raw`] | models that read samples and generate text: Moonshine |
//! | [`tts`] | text to speech: VITS, SpeechT5, Supertonic |

pub mod ctc;
pub mod raw;
pub mod transcribe;
pub mod tts;
pub mod whisper;
