//! Restrictions on the next token. Each processor changes the scores of one row's next token; a forbidden token gets minus infinity.
//! The order is that of `transformers`.

use super::options::Options;

/// What the restrictions of a row's next token depend on.
#[derive(Debug, Clone, Copy)]
pub struct Context<'p> {
    /// The tokens so far, with the prompt.
    pub tokens: &'p [u32],
    /// Number of tokens of the prompt.
    pub begun: usize,
    /// Maximum number of tokens in total.
    pub longest: usize,
    /// The tokens of the input, if it is text.
    pub source: &'p [u32],
}

/// Applies every processor except those of sampling.
pub fn apply(options: &Options, place: Context<'_>, scores: &mut [f32]) {
    let Context { tokens, begun, longest, source } = place;
    for (sequence, bias) in options.sequence_bias.iter().flatten() {
        if let Some(last) = completed(sequence, tokens)
            && let Some(score) = scores.get_mut(last as usize)
        {
            *score += bias;
        }
    }
    if options.encoder_repetition_penalty != 1.0 {
        penalise(1.0 / options.encoder_repetition_penalty, source, scores);
    }
    if options.repetition_penalty != 1.0 {
        penalise(options.repetition_penalty, tokens, scores);
    }
    forbid_ngrams(options.no_repeat_ngram_size, tokens, tokens, scores);
    forbid_ngrams(options.encoder_no_repeat_ngram_size, source, tokens, scores);
    for word in options.bad_words_ids.iter().flatten() {
        // An end that is listed alone is allowed all the same.
        let is_end = word.len() == 1 && options.ends().contains(&word[0]);
        if let Some(last) = completed(word, tokens).filter(|_| !is_end) {
            forbid(last, scores);
        }
    }
    let too_short = tokens.len() < options.min_length
        || options.min_new_tokens.is_some_and(|least| tokens.len() - begun < least);
    if too_short {
        options.ends().iter().for_each(|&end| forbid(end, scores));
    }
    if tokens.len() == 1
        && let Some(first) = options.forced_bos_token_id
    {
        only(&[first], scores);
    }
    if tokens.len() + 1 == longest
        && let Some(last) = &options.forced_eos_token_id
    {
        only(last.all(), scores);
    }
    if let Some((start, factor)) = options.exponential_decay_length_penalty {
        let beyond = tokens.len().saturating_sub(start + begun);
        for &end in options.ends().iter().filter(|_| beyond > 0) {
            if let Some(score) = scores.get_mut(end as usize) {
                *score += score.abs() * (factor.powi(beyond as i32) - 1.0);
            }
        }
    }
    let suppressed = |ids: &Option<Vec<i64>>, scores: &mut [f32]| {
        for &id in ids.iter().flatten() {
            if let Ok(id) = u32::try_from(id) {
                forbid(id, scores);
            }
        }
    };
    suppressed(&options.suppress_tokens, scores);
    let first = begun + usize::from(begun == 1 && options.forced_bos_token_id.is_some());
    if tokens.len() == first {
        suppressed(&options.begin_suppress_tokens, scores);
    }
    // Sampling compares the tokens of one step only, for which this changes nothing.
    if options.renormalize_logits && !options.do_sample {
        normalize(scores);
    }
}

/// The last token of a sequence, if the tokens so far end with the others. A sequence of several tokens counts from its own length on.
fn completed(sequence: &[u32], tokens: &[u32]) -> Option<u32> {
    let (&last, before) = sequence.split_last()?;
    let counts = before.is_empty() || (tokens.len() >= sequence.len() && tokens.ends_with(before));
    counts.then_some(last)
}

/// Subtracts the logarithm of the sum of all powers, so that the powers sum to 1.
fn normalize(scores: &mut [f32]) {
    let most = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if most.is_finite() {
        let sum: f32 = scores.iter().map(|score| (score - most).exp()).sum();
        let whole = most + sum.ln();
        scores.iter_mut().for_each(|score| *score -= whole);
    }
}

/// Keeps only the tokens that sampling may draw.
pub fn narrow(options: &Options, scores: &mut [f32]) {
    if options.temperature != 1.0 {
        scores.iter_mut().for_each(|score| *score /= options.temperature);
    }
    let kept = options.top_k.unwrap_or(50);
    if kept > 0 && kept < scores.len() {
        let mut sorted = scores.to_vec();
        sorted.sort_by(|a, b| b.total_cmp(a));
        let least = sorted[kept - 1];
        scores.iter_mut().filter(|score| **score < least).for_each(|score| *score = f32::NEG_INFINITY);
    }
    if options.top_p < 1.0 {
        let probabilities = crate::text::scores::softmax(scores);
        let mut order: Vec<usize> = (0..scores.len()).collect();
        order.sort_by(|&a, &b| probabilities[b].total_cmp(&probabilities[a]));
        let mut sum = 0.0;
        for token in order {
            // The token that crosses the bound is kept.
            if sum >= options.top_p {
                scores[token] = f32::NEG_INFINITY;
            }
            sum += probabilities[token];
        }
    }
    if let Some(least) = options.min_p {
        let probabilities = crate::text::scores::softmax(scores);
        let most = probabilities.iter().copied().fold(0.0, f32::max);
        for (score, probability) in scores.iter_mut().zip(probabilities) {
            if probability < least * most {
                *score = f32::NEG_INFINITY;
            }
        }
    }
}

fn penalise(penalty: f32, tokens: &[u32], scores: &mut [f32]) {
    let mut seen: Vec<u32> = tokens.to_vec();
    seen.sort_unstable();
    seen.dedup();
    for token in seen {
        if let Some(score) = scores.get_mut(token as usize) {
            *score = if *score < 0.0 { *score * penalty } else { *score / penalty };
        }
    }
}

/// Forbids tokens that would repeat a sequence of `size` tokens of `text`.
fn forbid_ngrams(size: usize, text: &[u32], tokens: &[u32], scores: &mut [f32]) {
    if size == 0 || tokens.len() + 1 < size {
        return;
    }
    let begun = &tokens[tokens.len() + 1 - size..];
    for ngram in text.windows(size) {
        if &ngram[..size - 1] == begun {
            forbid(ngram[size - 1], scores);
        }
    }
}

fn forbid(token: u32, scores: &mut [f32]) {
    if let Some(score) = scores.get_mut(token as usize) {
        *score = f32::NEG_INFINITY;
    }
}

fn only(tokens: &[u32], scores: &mut [f32]) {
    scores.fill(f32::NEG_INFINITY);
    for &token in tokens {
        if let Some(score) = scores.get_mut(token as usize) {
            *score = 0.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::generate::options::Ids;

    fn place(tokens: &[u32]) -> Context<'_> {
        Context { tokens, begun: 1, longest: 10, source: &[] }
    }

    #[test]
    fn end_is_forbidden_below_the_minimum_length() {
        let options =
            Options { min_length: 4, eos_token_id: Some(Ids::Many(vec![1, 2])), ..Options::default() };
        let mut scores = vec![0.0; 4];
        apply(&options, place(&[0, 3, 3]), &mut scores);
        assert_eq!(scores, [0.0, f32::NEG_INFINITY, f32::NEG_INFINITY, 0.0]);
        let mut scores = vec![0.0; 4];
        apply(&options, place(&[0, 3, 3, 3]), &mut scores);
        assert_eq!(scores, [0.0; 4]);
    }

    #[test]
    fn forced_first_and_last_tokens_are_the_only_choice() {
        let options = Options {
            forced_bos_token_id: Some(2),
            forced_eos_token_id: Some(Ids::One(1)),
            ..Options::default()
        };
        let mut scores = vec![5.0; 4];
        apply(&options, place(&[0]), &mut scores);
        assert_eq!(scores[2], 0.0);
        assert_eq!(scores[3], f32::NEG_INFINITY);
        let mut scores = vec![5.0; 4];
        apply(&options, place(&[0, 2, 3, 3, 3, 3, 3, 3, 3]), &mut scores);
        assert_eq!(scores[1], 0.0);
    }

    #[test]
    fn bad_words_are_forbidden_only_after_their_prefix() {
        let options = Options {
            bad_words_ids: Some(vec![vec![3], vec![1, 2], vec![0]]),
            eos_token_id: Some(Ids::One(0)),
            ..Options::default()
        };
        let mut scores = vec![0.0; 4];
        apply(&options, place(&[0, 1]), &mut scores);
        assert_eq!(scores, [0.0, 0.0, f32::NEG_INFINITY, f32::NEG_INFINITY]);
        let mut scores = vec![0.0; 4];
        apply(&options, place(&[1]), &mut scores);
        assert_eq!(scores, [0.0, 0.0, 0.0, f32::NEG_INFINITY], "shorter than the word");
    }

    #[test]
    fn sequences_become_more_likely_by_their_bias() {
        let sequence_bias = Some(vec![(vec![3], 1.5), (vec![1, 2], -2.0), (vec![9], 1.0)]);
        let options = Options { sequence_bias, ..Options::default() };
        let mut scores = vec![1.0; 4];
        apply(&options, place(&[0, 1]), &mut scores);
        assert_eq!(scores, [1.0, 1.0, -1.0, 2.5]);
    }

    #[test]
    fn the_end_becomes_more_likely_with_every_token_beyond_the_start() {
        let options = Options {
            exponential_decay_length_penalty: Some((2, 2.0)),
            eos_token_id: Some(Ids::One(1)),
            ..Options::default()
        };
        let end = |tokens: &[u32]| {
            let mut scores = vec![0.0, -1.0];
            apply(&options, place(tokens), &mut scores);
            scores[1]
        };
        assert_eq!([end(&[0, 0, 0]), end(&[0; 4]), end(&[0; 5])], [-1.0, 0.0, 2.0]);
    }

    #[test]
    fn tokens_of_the_input_become_more_likely() {
        let options = Options { encoder_repetition_penalty: 2.0, ..Options::default() };
        let mut scores = vec![1.0, 1.0, -1.0];
        apply(&options, Context { source: &[1, 2], ..place(&[0]) }, &mut scores);
        assert_eq!(scores, [1.0, 2.0, -0.5]);
    }

    #[test]
    fn normalized_scores_are_probabilities_again() {
        let options =
            Options { renormalize_logits: true, bad_words_ids: Some(vec![vec![0]]), ..Options::default() };
        let mut scores = vec![5.0, -1.0, -1.0];
        apply(&options, place(&[1]), &mut scores);
        assert_eq!(scores[0], f32::NEG_INFINITY);
        assert!((scores[1] - 0.5_f32.ln()).abs() < 1e-6, "{scores:?}");
    }

    #[test]
    fn tokens_far_less_likely_than_the_most_likely_are_not_sampled() {
        let mut scores = vec![1.0, 0.5, -3.0];
        narrow(&Options { min_p: Some(0.1), ..Options::default() }, &mut scores);
        assert_eq!(scores, [1.0, 0.5, f32::NEG_INFINITY]);
    }

    proptest! {
        /// No allowed token repeats a sequence of three tokens.
        #[test]
        fn ngrams_do_not_repeat(tokens in proptest::collection::vec(0_u32..5, 3..40)) {
            let options = Options { no_repeat_ngram_size: 3, ..Options::default() };
            let mut scores = vec![0.0; 5];
            apply(&options, place(&tokens), &mut scores);
            for token in 0..5_u32 {
                let ngram = [tokens[tokens.len() - 2], tokens[tokens.len() - 1], token];
                let was_there = tokens.windows(3).any(|window| window == ngram);
                prop_assert_eq!(scores[token as usize] == f32::NEG_INFINITY, was_there);
            }
        }

        #[test]
        fn sampling_keeps_at_least_one_token(
            mut scores in proptest::collection::vec(-20.0_f32..20.0, 1..60),
            top_k in 0_usize..70,
            top_p in 0.01_f32..=1.0,
        ) {
            narrow(&Options { top_k: Some(top_k), top_p, ..Options::default() }, &mut scores);
            prop_assert!(scores.iter().any(|score| score.is_finite()));
        }
    }
}
