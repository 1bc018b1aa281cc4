//! From logits to a token. The random draw for a position depends only on the seed and that position, so that a reply can be continued on
//! another Island with the same result.

use std::collections::BTreeMap;

use llama_cpp_2::{
    context::LlamaContext,
    sampling::LlamaSampler,
    token::{LlamaToken, data::LlamaTokenData, data_array::LlamaTokenDataArray},
};

/// Number of tokens that the repetition penalty considers.
const REPETITION_WINDOW: i32 = 64;

/// How tokens are sampled.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampling {
    /// 0 always takes the most likely token.
    pub temperature: f32,
    /// Share of probability to draw from.
    pub top_p: f32,
    /// Number of tokens to draw from; 0 takes all.
    pub top_k: i32,
    /// Minimum probability, as a share of the most likely token's.
    pub min_p: f32,
    /// Seed of the draws.
    pub seed: u64,
    /// Divides the logits of recent tokens; 1 has no effect.
    pub repetition: f32,
    /// Lowers the logits of tokens written before.
    pub presence: f32,
    /// Lowers them once for each time they were written.
    pub frequency: f32,
    /// Numbers that are added to the logits of tokens.
    pub bias: BTreeMap<i32, f32>,
    /// Number of most likely tokens whose probabilities are reported beside that of each chosen one; `None` for no report.
    pub logprobs: Option<usize>,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            temperature: 0.8,
            top_p: 0.95,
            top_k: 40,
            min_p: 0.05,
            seed: 0,
            repetition: 1.0,
            presence: 0.0,
            frequency: 0.0,
            bias: BTreeMap::new(),
            logprobs: None,
        }
    }
}

/// A token and the natural logarithm of its probability.
pub type TokenProbability = (LlamaToken, f64);

/// The probabilities at the position of a chosen token, before settings and grammars change them.
#[derive(Debug, Clone, PartialEq)]
pub struct Probabilities {
    /// The chosen token.
    pub chosen: TokenProbability,
    /// The most likely tokens, the most likely one first.
    pub top: Vec<TokenProbability>,
}

/// Samples the tokens of one reply.
#[derive(Debug)]
pub struct Sampler {
    settings: Sampling,
    /// Penalizes recent tokens, prompt included.
    repetition: Option<LlamaSampler>,
    /// Penalizes written tokens.
    writing: Option<LlamaSampler>,
    filters: LlamaSampler,
    /// Restricts the tokens that may be chosen.
    grammar: Option<LlamaSampler>,
    drawn: u64,
}

impl Sampler {
    /// Creates a sampler for a vocabulary of `n_vocab` that has read `prompt`, of which an earlier attempt wrote the last `continued` tokens, and may
    /// write `max_tokens` more.
    pub fn new(
        settings: Sampling,
        n_vocab: i32,
        prompt: &[LlamaToken],
        continued: usize,
        max_tokens: u64,
        grammar: Option<LlamaSampler>,
    ) -> Self {
        let repetition = (settings.repetition - 1.0).abs() > f32::EPSILON;
        let writing = settings.presence != 0.0 || settings.frequency != 0.0;
        let window = i32::try_from(max_tokens.saturating_add(continued as u64)).unwrap_or(i32::MAX);
        let mut repetition = repetition
            .then(|| LlamaSampler::penalties(n_vocab, REPETITION_WINDOW, settings.repetition, 0.0, 0.0));
        if let Some(sampler) = &mut repetition {
            // The placeholders of pictures are not tokens.
            let tokens: Vec<LlamaToken> = prompt.iter().copied().filter(|token| token.0 >= 0).collect();
            sampler.accept_many(&tokens[tokens.len().saturating_sub(REPETITION_WINDOW as usize)..]);
        }
        let mut writing = writing
            .then(|| LlamaSampler::penalties(n_vocab, window, 1.0, settings.frequency, settings.presence));
        if let Some(sampler) = &mut writing {
            sampler.accept_many(&prompt[prompt.len().saturating_sub(continued)..]);
        }
        Self { repetition, writing, filters: filters(&settings), settings, grammar, drawn: continued as u64 }
    }

    /// Samples the next token from row `row` of the batch that was just decoded. The grammar applies if `in_answer`.
    pub fn choose(&mut self, context: &LlamaContext<'_>, row: i32, in_answer: bool) -> LlamaToken {
        let logits = context.get_logits_ith(row);
        self.choose_by(logits, in_answer)
    }

    /// The probabilities of `token` and its alternatives in row `row` of the batch that was just decoded; `None` if they are not reported.
    pub fn probabilities(
        &self,
        context: &LlamaContext<'_>,
        row: i32,
        token: LlamaToken,
    ) -> Option<Probabilities> {
        let count = self.settings.logprobs?;
        Some(probabilities(context.get_logits_ith(row), token, count))
    }

    fn choose_by(&mut self, logits: &[f32], in_answer: bool) -> LlamaToken {
        let biased = biased(logits, &self.settings.bias);
        let logits = biased.as_deref().unwrap_or(logits);
        let mut token = if self.is_plain() { likeliest(logits) } else { self.choose_among(logits, false) };
        if in_answer {
            // A grammar checks one token first: checking a whole vocabulary takes longer than decoding.
            if self.grammar.is_some() && !self.allows(token) {
                token = self.choose_among(logits, true);
            }
            if let Some(grammar) = &mut self.grammar {
                grammar.accept(token);
            }
        }
        self.accept(token)
    }

    /// Takes a token that was not sampled, and returns it. It is not a part of what the grammar describes.
    pub fn accept(&mut self, token: LlamaToken) -> LlamaToken {
        self.drawn += 1;
        for penalties in [&mut self.repetition, &mut self.writing].into_iter().flatten() {
            penalties.accept(token);
        }
        token
    }

    fn is_greedy(&self) -> bool {
        self.settings.temperature <= 0.0
    }

    fn is_plain(&self) -> bool {
        self.is_greedy() && self.repetition.is_none() && self.writing.is_none()
    }

    fn allows(&mut self, token: LlamaToken) -> bool {
        let Some(grammar) = &mut self.grammar else { return true };
        let mut alone = LlamaTokenDataArray::new(vec![LlamaTokenData::new(token, 0.0, 0.0)], false);
        alone.apply_sampler(grammar);
        alone.data.first().is_some_and(|token| token.logit() > f32::NEG_INFINITY)
    }

    fn choose_among(&mut self, logits: &[f32], by_grammar: bool) -> LlamaToken {
        let untouched = !by_grammar && self.repetition.is_none() && self.writing.is_none();
        let top_k = usize::try_from(self.settings.top_k).ok().filter(|&count| count > 0 && untouched);
        let top_k = top_k.map(|count| count.min(logits.len()));
        let candidate = |(id, logit)| LlamaTokenData::new(LlamaToken(id), logit, 0.0);
        let mut candidates = match top_k {
            // A list of a whole vocabulary for each token would take longer than everything else.
            Some(count) => {
                LlamaTokenDataArray::from_iter(top(count, logits).into_iter().map(candidate), false)
            }
            None => LlamaTokenDataArray::from_iter((0..).zip(logits.iter().copied()).map(candidate), false),
        };
        if let Some(grammar) = self.grammar.as_mut().filter(|_| by_grammar) {
            candidates.apply_sampler(grammar);
        }
        for penalties in [&mut self.repetition, &mut self.writing].into_iter().flatten() {
            candidates.apply_sampler(penalties);
        }
        if self.is_greedy() {
            let best = candidates.data.iter().max_by(|a, b| a.logit().total_cmp(&b.logit()));
            return best.map_or(LlamaToken(0), LlamaTokenData::id);
        }
        candidates.apply_sampler(&mut self.filters);
        let logits: Vec<f32> = candidates.data.iter().map(LlamaTokenData::logit).collect();
        let at = pick(&logits, draw(self.settings.seed, self.drawn));
        candidates.data.get(at).map_or(LlamaToken(0), LlamaTokenData::id)
    }
}

fn filters(settings: &Sampling) -> LlamaSampler {
    let chain = [
        (settings.top_k > 0).then(|| LlamaSampler::top_k(settings.top_k)),
        (settings.top_p < 1.0).then(|| LlamaSampler::top_p(settings.top_p, 1)),
        (settings.min_p > 0.0).then(|| LlamaSampler::min_p(settings.min_p, 1)),
        Some(LlamaSampler::temp(settings.temperature)),
    ];
    LlamaSampler::chain(chain.into_iter().flatten(), true)
}

/// The logits with the bias of single tokens; `None` without any.
fn biased(logits: &[f32], bias: &BTreeMap<i32, f32>) -> Option<Vec<f32>> {
    if bias.is_empty() {
        return None;
    }
    let mut logits = logits.to_vec();
    for (&token, bias) in bias {
        if let Some(logit) = usize::try_from(token).ok().and_then(|token| logits.get_mut(token)) {
            *logit += bias;
        }
    }
    Some(logits)
}

fn probabilities(logits: &[f32], token: LlamaToken, count: usize) -> Probabilities {
    let highest = f64::from(greatest(logits));
    let weights =
        logits.iter().filter(|logit| !logit.is_nan()).map(|&logit| (f64::from(logit) - highest).exp());
    let total = highest + weights.sum::<f64>().ln();
    let chosen = usize::try_from(token.0).ok().and_then(|token| logits.get(token)).copied();
    let top = top(count.max(1), logits).into_iter().take(count);
    Probabilities {
        chosen: (token, f64::from(chosen.unwrap_or(f32::NEG_INFINITY)) - total),
        top: top.map(|(id, logit)| (LlamaToken(id), f64::from(logit) - total)).collect(),
    }
}

/// Number of logits that are compared together: most blocks contain no candidate, which their maximum shows.
const BLOCK: usize = 1024;

/// The first of the most likely tokens. NaN is never chosen.
fn likeliest(logits: &[f32]) -> LlamaToken {
    let (mut best, mut highest) = (0, f32::NEG_INFINITY);
    for (start, block) in blocks(logits) {
        if greatest(block) <= highest {
            continue;
        }
        for (id, &logit) in (start..).zip(block) {
            if logit > highest {
                (best, highest) = (id, logit);
            }
        }
    }
    LlamaToken(best)
}

/// The `count` tokens with the highest logits, highest first, equals by the lowest number. NaN is never among them.
fn top(count: usize, logits: &[f32]) -> Vec<(i32, f32)> {
    let by_rank = |a: &(i32, f32), b: &(i32, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
    let mut kept = Vec::with_capacity(2 * count);
    // Tokens below it, and later ones that are not higher, cannot be candidates.
    let mut floor = f32::NEG_INFINITY;
    for (start, block) in blocks(logits) {
        if greatest(block) <= floor {
            continue;
        }
        for (id, &logit) in (start..).zip(block) {
            if logit > floor {
                kept.push((id, logit));
                if kept.len() == 2 * count {
                    floor = kept.select_nth_unstable_by(count - 1, by_rank).1.1;
                    kept.truncate(count);
                }
            }
        }
    }
    kept.sort_unstable_by(by_rank);
    kept.truncate(count);
    kept
}

/// The logits in blocks, each with the number of its first token.
fn blocks(logits: &[f32]) -> impl Iterator<Item = (i32, &[f32])> {
    (0..).step_by(BLOCK).zip(logits.chunks(BLOCK))
}

/// The maximum of some logits without NaN. In lanes, because processors compare many at once.
fn greatest(logits: &[f32]) -> f32 {
    const LANES: usize = 32;
    let higher = |a: f32, b: f32| if b > a { b } else { a };
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (whole, rest) = logits.as_chunks::<LANES>();
    for row in whole {
        for (lane, &logit) in lanes.iter_mut().zip(row) {
            *lane = higher(*lane, logit);
        }
    }
    lanes.iter().chain(rest).copied().fold(f32::NEG_INFINITY, higher)
}

/// Index of the entry that contains `point`, from 0 to 1, if the entries divide the line by their probability.
fn pick(logits: &[f32], point: f64) -> usize {
    let highest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weight = |logit: &f32| f64::from(logit - highest).exp();
    let mut left = point * logits.iter().map(weight).sum::<f64>();
    for (index, logit) in logits.iter().enumerate() {
        left -= weight(logit);
        if left < 0.0 {
            return index;
        }
    }
    logits.len().saturating_sub(1)
}

/// A number in [0, 1) computed from seed and position (two rounds of splitmix64).
fn draw(seed: u64, position: u64) -> f64 {
    let mixed = mix(mix(seed).wrapping_add(position));
    (mixed >> 11) as f64 / (1_u64 << 53) as f64
}

fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Few or many, so that there are complete and incomplete blocks; many equal; some NaN.
    fn vocabulary() -> impl Strategy<Value = Vec<f32>> {
        let logit = || prop_oneof![(-5_i8..5).prop_map(f32::from), Just(f32::NAN)];
        let many =
            (proptest::collection::vec(logit(), 1..50), 0_usize..4 * BLOCK, any::<prop::sample::Index>());
        prop_oneof![
            proptest::collection::vec(logit(), 0..200),
            many.prop_map(|(some, length, high)| {
                let mut logits: Vec<f32> = some.iter().copied().cycle().take(length).collect();
                if !logits.is_empty() {
                    logits[high.index(length)] = 9.0;
                }
                logits
            }),
        ]
    }

    proptest! {
        #[test]
        fn draws_are_in_range_and_deterministic(seed: u64, position: u64) {
            let point = draw(seed, position);
            prop_assert!((0.0..1.0).contains(&point));
            prop_assert_eq!(point.to_bits(), draw(seed, position).to_bits());
        }

        #[test]
        fn the_top_equals_that_of_sorting(logits in vocabulary(), count in 1_usize..20) {
            let mut sorted: Vec<(i32, f32)> = (0..).zip(logits.iter().copied()).collect();
            sorted.retain(|(_, logit)| !logit.is_nan());
            sorted.sort_by(|a, b| b.1.total_cmp(&a.1));
            sorted.truncate(count);
            prop_assert_eq!(likeliest(&logits).0, sorted.first().map_or(0, |(id, _)| *id));
            prop_assert_eq!(top(count, &logits), sorted);
        }

        #[test]
        fn a_pick_is_always_an_entry(logits in proptest::collection::vec(-50_f32..50.0, 1..50), point in 0_f64..1.0) {
            prop_assert!(pick(&logits, point) < logits.len());
        }
    }

    #[test]
    fn picks_follow_the_probabilities() {
        let logits = [0.0, 1.0_f32.exp().ln(), f32::NEG_INFINITY];
        let mut counts = [0_u32; 3];
        for position in 0..20_000 {
            counts[pick(&logits, draw(7, position))] += 1;
        }
        let share = f64::from(counts[1]) / 20_000.0;
        assert!((share - 0.731).abs() < 0.02, "{share}");
        assert_eq!(counts[2], 0);
    }

    fn chosen(settings: Sampling, prompt: &[LlamaToken]) -> Vec<i32> {
        let mut sampler = Sampler::new(settings, 3, prompt, 0, 100, None);
        (0..4).map(|_| sampler.choose_by(&[2.0, 1.5, 1.0], true).0).collect()
    }

    #[test]
    fn penalties_count_what_was_written() {
        let greedy = Sampling { temperature: 0.0, ..Sampling::default() };
        assert_eq!(chosen(greedy.clone(), &[]), [0, 0, 0, 0]);
        assert_eq!(chosen(Sampling { presence: 1.6, ..greedy.clone() }, &[LlamaToken(0)]), [0, 1, 2, 0]);
        assert_eq!(chosen(Sampling { frequency: 0.6, ..greedy.clone() }, &[LlamaToken(0)]), [0, 1, 0, 2]);
        assert_eq!(
            chosen(Sampling { repetition: 1.5, ..greedy }, &[LlamaToken(0)])[0],
            1,
            "the prompt counts too"
        );
    }

    #[test]
    fn a_continued_reply_is_drawn_and_penalized_as_a_whole_one() {
        let settings =
            Sampling { temperature: 1.0, presence: 0.3, frequency: 0.2, seed: 9, ..Sampling::default() };
        let choose = |sampler: &mut Sampler| sampler.choose_by(&[2.0, 1.5, 1.0], true);
        let prompt = [LlamaToken(2)];
        let mut sampler = Sampler::new(settings.clone(), 3, &prompt, 0, 40, None);
        let whole: Vec<LlamaToken> = (0..40).map(|_| choose(&mut sampler)).collect();
        for cut in 0..40 {
            let read = [&prompt[..], &whole[..cut]].concat();
            let mut sampler = Sampler::new(settings.clone(), 3, &read, cut, 40 - cut as u64, None);
            let rest: Vec<LlamaToken> = (cut..40).map(|_| choose(&mut sampler)).collect();
            assert_eq!(rest, whole[cut..], "{cut}");
        }
    }

    #[test]
    fn one_candidate_is_always_chosen() {
        let hot = Sampling { temperature: 2.0, seed: 9, ..Sampling::default() };
        assert_eq!(chosen(Sampling { top_k: 1, ..hot.clone() }, &[]), [0, 0, 0, 0]);
        assert_eq!(chosen(Sampling { top_p: 0.0, ..hot }, &[]), [0, 0, 0, 0]);
    }

    #[test]
    fn a_bias_raises_and_forbids_tokens() {
        let greedy = Sampling { temperature: 0.0, ..Sampling::default() };
        let with = |bias: &[(i32, f32)]| Sampling { bias: bias.iter().copied().collect(), ..greedy.clone() };
        assert_eq!(chosen(with(&[(2, 5.0)]), &[])[0], 2);
        assert_eq!(chosen(with(&[(0, -100.0)]), &[])[0], 1);
        assert_eq!(chosen(with(&[(99, 5.0), (-1, 5.0)]), &[])[0], 0, "unknown tokens have no effect");
        let hot = Sampling { temperature: 1.0, top_k: 2, ..with(&[(0, -100.0)]) };
        assert!(!chosen(hot, &[]).contains(&0));
    }

    #[test]
    fn probabilities_are_those_of_the_softmax() {
        let reported = probabilities(&[2.0, 1.5, f32::NAN, 1.0], LlamaToken(3), 2);
        let total = (2.0_f64.exp() + 1.5_f64.exp() + 1.0_f64.exp()).ln();
        let close = |(token, logprob): TokenProbability, id: i32, logit: f64| {
            assert_eq!(token.0, id);
            assert!((logprob - (logit - total)).abs() < 1e-6, "{logprob}");
        };
        close(reported.chosen, 3, 1.0);
        assert_eq!(reported.top.len(), 2);
        close(reported.top[0], 0, 2.0);
        close(reported.top[1], 1, 1.5);
        assert_eq!(probabilities(&[1.0], LlamaToken(0), 0).top, []);
    }

    #[test]
    fn nan_is_never_chosen() {
        assert_eq!(likeliest(&[f32::NAN, -1.0, 2.0, f32::NAN, 2.0]), LlamaToken(2));
    }
}
