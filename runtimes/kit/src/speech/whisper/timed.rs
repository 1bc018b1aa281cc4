//! The times of the words of a window.

use island_protocol::transcript::Span;
use ndarray::{Array3, Axis, stack};

use crate::{
    error::{EngineError, invalid_model},
    generate::Decoder,
    speech::{
        times::{STEP_S, Segment},
        words::{self, Word},
    },
    text::tokens::Tokens,
};

/// The tokens of a window, with the moments at which they begin.
#[derive(Debug)]
pub(super) struct TimedTokens<'w> {
    /// All tokens that were generated, with timestamps.
    pub(super) tokens: &'w [u32],
    /// A moment for each of them; for a text without an end for all but the last.
    pub(super) moments: Vec<usize>,
    /// When the window begins, seconds.
    pub(super) offset: f32,
}

impl TimedTokens<'_> {
    /// The words of a segment, of its tokens below `end`.
    pub(super) fn words(
        &self,
        segment: &Segment,
        end: u32,
        is_spaced: bool,
        tokens: &Tokens,
    ) -> Result<Vec<Span>, EngineError> {
        let places: Vec<usize> = segment.places.clone().filter(|&place| self.tokens[place] < end).collect();
        let ids: Vec<u32> = places.iter().map(|&place| self.tokens[place]).collect();
        let found = words::of(&ids, is_spaced, &|ids: &[u32]| tokens.decode(ids, false))?;
        let span = |word: &Word| {
            let (first, last) = (places[word.tokens.start], places[word.tokens.end - 1]);
            // A word begins where the token before it ends.
            let start = self.second(first.saturating_sub(1));
            Span { start, end: self.second(last), text: word.text.trim().to_owned() }
        };
        Ok(found.iter().map(span).filter(|word| !word.text.is_empty()).collect())
    }

    /// The time of a token in seconds, as the reference counts it: the last token of a text has that of the one before it.
    fn second(&self, place: usize) -> f64 {
        let moment = self.moments.get(place).or(self.moments.last()).copied().unwrap_or(0);
        hundredths(moment as f32 * STEP_S + self.offset)
    }
}

/// Seconds to the hundredth.
pub(super) fn hundredths(seconds: f32) -> f64 {
    (f64::from(seconds) * 100.0).round() / 100.0
}

/// What heads attended to at each token of a text but the last, behind which nothing was generated: `[heads, tokens, moments]`.
pub(super) fn attention(
    decoder: &dyn Decoder,
    heads: usize,
    begin: &[u32],
    written: &[u32],
) -> Result<Array3<f32>, EngineError> {
    let all = [begin, written].concat();
    let read = begin.len() + 1..all.len();
    if read.is_empty() {
        return Ok(Array3::zeros((heads, 0, 0)));
    }
    let at = |length: usize| {
        let known = decoder.attention(&all[..length]);
        known.ok_or_else(|| invalid_model("the decoder gives no attention for a token of its text"))
    };
    let rows = read.map(at).collect::<Result<Vec<_>, _>>()?;
    stack(Axis(1), &rows)
        .map_err(|error| invalid_model("the decoder's attention changes its shape").because(error))
}

#[cfg(test)]
mod tests {
    use ndarray::{Array2, ArrayView2};

    use super::*;

    /// Attends to as many moments as there are tokens.
    #[derive(Debug)]
    struct Read(Vec<(Vec<u32>, Array2<f32>)>);

    impl Decoder for Read {
        fn step(&mut self, tokens: ArrayView2<'_, i64>) -> Result<Array2<f32>, EngineError> {
            Ok(Array2::zeros((tokens.nrows(), 1)))
        }

        fn reorder(&mut self, _order: &[usize]) -> Result<(), EngineError> {
            Ok(())
        }

        fn attention(&self, tokens: &[u32]) -> Option<ArrayView2<'_, f32>> {
            self.0.iter().find(|(known, _)| known == tokens).map(|(_, kept)| kept.view())
        }
    }

    #[test]
    fn a_text_has_the_attention_of_its_own_beam() {
        let kept = |tokens: &[u32], weight: f32| (tokens.to_vec(), Array2::from_elem((2, 3), weight));
        let decoder = Read(vec![kept(&[1, 5], 0.1), kept(&[1, 6], 0.2), kept(&[1, 6, 7], 0.3)]);
        let found = attention(&decoder, 2, &[1], &[6, 7, 9]).expect("kept");
        assert_eq!(found.dim(), (2, 2, 3));
        assert_eq!((found[(1, 0, 2)], found[(1, 1, 2)]), (0.2, 0.3));
        assert_eq!(attention(&decoder, 2, &[1], &[9]).expect("nothing was read").dim(), (2, 0, 0));
        let lost = attention(&decoder, 2, &[1], &[8, 9]).expect_err("not read").message();
        assert!(lost.contains("attention"), "{lost}");
    }
}
