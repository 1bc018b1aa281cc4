//! Tasks that hear or speak.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`recognise`] | speech to text: which kind of model a repository holds |
//! | [`mel`] | what Whisper hears of a sound |
//! | [`whisper`], [`times`] | Whisper, sound of any length, and the times it writes |
//! | [`ctc`] | models that label every moment: wav2vec2, HuBERT |
//! | [`raw`] | models that hear samples and write text: Moonshine |
//! | [`tts`] | text to speech: VITS, SpeechT5 |

pub mod ctc;
pub mod mel;
pub mod raw;
pub mod recognise;
pub mod times;
pub mod tts;
pub mod whisper;
