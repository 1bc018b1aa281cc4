//! Pictures and sounds in a prompt, by llama.cpp's multimodal library: a projector file beside the model turns each into embeddings.

mod limits;
mod projector;

use std::{ffi::CString, path::Path, sync::Arc};

use island_protocol::job::{Failure, FailureCode};
use island_runtimes_kit::media::{picture, sound};
use llama_cpp_2::{
    context::LlamaContext,
    model::LlamaModel,
    mtmd::{
        MtmdBitmap, MtmdContext, MtmdContextParams, MtmdInputChunkType, MtmdInputChunks, MtmdInputText,
        mtmd_default_marker,
    },
    token::LlamaToken,
};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

use crate::{gguf::Header, model::rejected, request::Media};

/// The refusal of a picture.
pub const NO_PICTURES: &str = "the model does not take pictures";
/// The refusal of a sound.
pub const NO_SOUNDS: &str = "the model does not take sounds";

/// The projector of a model that takes pictures, sounds or both.
#[derive(Debug)]
pub struct Vision {
    context: Mutex<MtmdContext>,
    takes_pictures: bool,
    /// Samples in a second of a sound; `None` if the model takes none.
    sound_rate: Option<u32>,
    /// Whether the tokens of a picture see each other, so that one batch must hold all of them. Those of sounds do not.
    needs_one_batch: bool,
}

/// A picture or sound of a prompt, in the tokens of its model.
#[derive(Debug)]
pub struct Picture {
    chunks: MtmdInputChunks,
    /// In place of its tokens, where prompts are compared: the same for the same file, and no token of any vocabulary.
    pub placeholders: Vec<LlamaToken>,
    /// Number of positions that it takes; at most the number of its tokens.
    pub positions: usize,
}

impl Vision {
    /// Loads a projector for a model, to run on `threads` threads of the processor.
    pub fn load(path: &Path, model: &LlamaModel, threads: i32) -> Result<Self, Failure> {
        let header = Header::check(path).map_err(|error| rejected(&format!("the projector: {error}")))?;
        projector::check(&header)?;
        let path = path.to_str().ok_or_else(|| rejected("the path of the projector is not text"))?;
        let marker = CString::new(mtmd_default_marker())
            .map_err(|_| rejected("the marker of llama.cpp for pictures contains a zero byte"))?;
        let params = MtmdContextParams {
            use_gpu: false,
            print_timings: false,
            n_threads: threads,
            media_marker: marker,
            image_max_tokens: projector::most_tokens(&header),
            ..MtmdContextParams::default()
        };
        let context = MtmdContext::init_from_file(path, model, &params).map_err(|_| {
            rejected("llama.cpp cannot load the projector, or it does not belong to the model; see its log")
        })?;
        let takes_pictures = context.support_vision();
        let sound_rate = context.support_audio().then(|| context.get_audio_sample_rate()).flatten();
        if !takes_pictures && sound_rate.is_none() {
            return Err(rejected("the projector is neither for pictures nor for sounds"));
        }
        let needs_one_batch = context.decode_use_non_causal();
        Ok(Self { context: Mutex::new(context), takes_pictures, sound_rate, needs_one_batch })
    }

    /// Prepares a file; `most` is the maximum number of tokens of a batch.
    pub fn prepare(&self, file: &Media, most: usize) -> Result<Picture, Failure> {
        match file {
            Media::Picture(address) => self.prepare_picture(address, most),
            Media::Sound(address) => self.prepare_sound(address),
        }
    }

    fn prepare_picture(&self, address: &str, most: usize) -> Result<Picture, Failure> {
        if !self.takes_pictures {
            return Err(Failure::of_job(FailureCode::InvalidInput, NO_PICTURES));
        }
        let pixels = picture::read_within(address, "a picture of the conversation", limits::MAX_PIXELS)?;
        limits::check_shape(pixels.width(), pixels.height())
            .map_err(|problem| unusable("a picture", &problem))?;
        let bitmap = MtmdBitmap::from_image_data(pixels.width(), pixels.height(), pixels.as_raw())
            .map_err(|error| unusable("a picture", &error))?;
        let identity =
            Sha256::new().chain_update(pixels.width().to_le_bytes()).chain_update(pixels.as_raw()).finalize();
        let picture = self.tokens(&bitmap, identity.into(), "a picture")?;
        let largest = picture.largest();
        if self.needs_one_batch && largest > most {
            let problem = format!("it has {largest} tokens, more than the {most} of a batch");
            return Err(unusable("a picture", &problem));
        }
        Ok(picture)
    }

    fn prepare_sound(&self, address: &str) -> Result<Picture, Failure> {
        let Some(rate) = self.sound_rate else {
            return Err(Failure::of_job(FailureCode::InvalidInput, NO_SOUNDS));
        };
        let mut samples = sound::decode(address, rate)?;
        limits::check_samples(&samples, rate).map_err(|problem| unusable("a sound", &problem))?;
        limits::fill(&mut samples, rate);
        let bitmap = MtmdBitmap::from_audio_data(&samples).map_err(|error| unusable("a sound", &error))?;
        let mut hasher = Sha256::new_with_prefix(b"sound");
        samples.iter().for_each(|sample| hasher.update(sample.to_le_bytes()));
        self.tokens(&bitmap, hasher.finalize().into(), "a sound")
    }

    /// The tokens of a picture or sound, which is named `what`.
    fn tokens(&self, bitmap: &MtmdBitmap, identity: [u8; 32], what: &str) -> Result<Picture, Failure> {
        let text =
            MtmdInputText { text: mtmd_default_marker().to_owned(), add_special: false, parse_special: true };
        let chunks = self.context.lock().tokenize(text, &[bitmap]).map_err(|error| unusable(what, &error))?;
        let positions = usize::try_from(chunks.total_positions()).unwrap_or(0);
        Ok(Picture { placeholders: placeholders(&identity, chunks.total_tokens()), positions, chunks })
    }

    /// Computes the embeddings of a picture or sound and reads them into a sequence of the context, from `position` on.
    pub fn read(
        &self,
        picture: &Picture,
        context: &mut LlamaContext<'_>,
        position: usize,
        sequence: usize,
        batch: usize,
    ) -> Result<(), Failure> {
        let read = picture.chunks.eval_chunks(
            &mut self.context.lock(),
            context,
            position as i32,
            sequence as i32,
            batch as i32,
            false,
        );
        read.map(drop).map_err(|error| {
            Failure::of_host(
                FailureCode::InternalError,
                format!("llama.cpp cannot read a picture or sound: {error}"),
            )
        })
    }
}

impl Picture {
    /// Number of tokens of the largest piece of the file that is computed at once.
    fn largest(&self) -> usize {
        let pieces = (0..self.chunks.len()).filter_map(|index| self.chunks.get(index));
        let of_file = pieces.filter(|piece| piece.chunk_type() != MtmdInputChunkType::Text);
        of_file.map(|piece| piece.n_tokens()).max().unwrap_or(0)
    }
}

fn unusable(what: &str, why: &dyn std::fmt::Display) -> Failure {
    Failure::of_job(FailureCode::InvalidInput, format!("{what} cannot be prepared: {why}"))
}

/// Negative numbers that depend on the file and the index.
fn placeholders(identity: &[u8; 32], count: usize) -> Vec<LlamaToken> {
    let word = |index: usize| {
        let bytes = [0, 1, 2, 3].map(|byte| identity[(4 * index + byte) % identity.len()]);
        i32::from_le_bytes(bytes) | i32::MIN
    };
    (0..count).map(|index| LlamaToken(word(index))).collect()
}

/// Where a picture is in a prompt.
#[derive(Debug, Clone)]
pub struct Placed {
    /// Index of its first token in the prompt.
    pub at: usize,
    /// The picture.
    pub picture: Arc<Picture>,
}

impl Placed {
    /// The tokens and positions that it takes.
    pub fn span(&self) -> Span {
        Span { at: self.at, tokens: self.picture.placeholders.len(), positions: self.picture.positions }
    }
}

/// Where a picture is in a prompt, and what it takes. M-RoPE gives a picture fewer positions than tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Index of its first token in the prompt.
    pub at: usize,
    /// Number of its tokens.
    pub tokens: usize,
    /// Number of its positions.
    pub positions: usize,
}

impl Span {
    /// Number of positions that following tokens are behind their indices because of it.
    fn shift(self) -> usize {
        self.tokens.saturating_sub(self.positions)
    }
}

/// Number of tokens of a prompt that can be kept of `keep` common ones. A picture is kept whole or not at all. Nothing is kept from the first picture
/// on that moves positions: caches are cut and copied by position, and there a position is not an index.
pub fn keepable(spans: impl IntoIterator<Item = Span>, keep: usize) -> usize {
    let cut = |span: &Span| keep > span.at && (keep < span.at + span.tokens || span.shift() > 0);
    spans.into_iter().find(cut).map_or(keep, |span| span.at)
}

/// How many more tokens than positions a prompt has before index `index`.
pub fn position_shift(spans: impl IntoIterator<Item = Span>, index: usize) -> usize {
    spans.into_iter().filter(|span| span.at + span.tokens <= index).map(Span::shift).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_differ_between_pictures_and_are_no_tokens() {
        let (one, other) = (Sha256::digest(b"one").into(), Sha256::digest(b"other").into());
        assert_eq!(placeholders(&one, 40), placeholders(&one, 40));
        assert_ne!(placeholders(&one, 2), placeholders(&other, 2));
        assert!(placeholders(&one, 40).iter().all(|token| token.0 < 0));
    }

    #[test]
    fn pictures_are_kept_whole_and_not_where_positions_are_moved() {
        let plain = [(4, 36), (50, 36)].map(|(at, tokens)| Span { at, tokens, positions: tokens });
        for (keep, kept) in [(3, 3), (4, 4), (5, 4), (39, 4), (40, 40), (60, 50), (90, 90)] {
            assert_eq!(keepable(plain, keep), kept, "{keep}");
        }
        assert_eq!((position_shift(plain, 90), position_shift([], 5)), (0, 0));
        let moved = plain.map(|span| Span { positions: 6, ..span });
        for (keep, kept) in [(4, 4), (5, 4), (40, 4), (90, 4)] {
            assert_eq!(keepable(moved, keep), kept, "{keep}");
        }
        let shifts = [4, 39, 40, 85, 86].map(|index| position_shift(moved, index));
        assert_eq!(shifts, [0, 0, 30, 30, 60]);
    }
}
