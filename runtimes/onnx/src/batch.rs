//! Texts that wait for the same graph go through it together.
//!
//! Nobody waits for company: whoever finds the graph free takes along whatever waits for it then, if its length is alike, and runs
//! it for all. A graph of dynamically quantised weights scales its numbers by everything in a run, so that an answer would
//! depend on who else asks: such a graph gets one text at a time.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use island_protocol::job::{Failure, FailureCode};
use ndarray::{Array2, ArrayD, ArrayViewD, Axis, Slice};

use crate::{
    graph::{Feeds, Graph},
    run::Job,
};

/// Most texts of one run.
const MAX_ROWS: usize = 64;
/// Most tokens of one run, padding included.
const MAX_TOKENS: usize = 2048;
/// Of ten tokens of a run, so many at least are text and not padding.
const FILLED_OF_10: usize = 9;

/// Outputs that have one number for each token.
const ALONG_TEXT: [&str; 2] = ["start_logits", "end_logits"];

/// A text as a graph reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Token ids.
    pub ids: Vec<i64>,
    /// Which of two texts each belongs to.
    pub types: Vec<i64>,
}

/// What a graph gives for one text, by the name of the output: without the batch's dimension and without padding.
pub type RowResults = Vec<(String, ArrayD<f32>)>;

/// A graph that reads texts, and those that wait for it.
#[derive(Debug)]
pub struct Batcher {
    graph: Graph,
    pad_id: i64,
    alone: bool,
    waiting: Mutex<VecDeque<Waiting>>,
    turn: Mutex<()>,
}

#[derive(Debug)]
struct Waiting {
    row: Row,
    answer: Arc<Mutex<Option<Result<RowResults, Failure>>>>,
}

impl Batcher {
    /// A graph whose shorter texts are filled up with `pad_id`.
    pub fn new(graph: Graph, pad_id: i64) -> Self {
        Self {
            alone: graph.scales_by_run(),
            graph,
            pad_id,
            waiting: Mutex::default(),
            turn: Mutex::default(),
        }
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// What the graph gives for each of these texts.
    pub fn run(&self, rows: Vec<Row>, job: &Job) -> Result<Vec<RowResults>, Failure> {
        let answers: Vec<_> = rows.iter().map(|_| Arc::new(Mutex::new(None))).collect();
        let waiting =
            rows.into_iter().zip(&answers).map(|(row, answer)| Waiting { row, answer: Arc::clone(answer) });
        lock(&self.waiting).extend(waiting);
        let mut results = Vec::with_capacity(answers.len());
        for answer in answers {
            loop {
                if let Some(done) = lock(&answer).take() {
                    results.push(done?);
                    break;
                }
                job.step()?;
                let _turn = lock(&self.turn);
                // Whoever had the turn before may have run it.
                if lock(&answer).is_none() {
                    self.run_some();
                    if lock(&answer).is_none() && !self.waits(&answer) {
                        let message = "the run that this text was part of broke down";
                        return Err(Failure::of_host(FailureCode::RuntimeCrashed, message));
                    }
                }
            }
        }
        Ok(results)
    }

    fn waits(&self, answer: &Arc<Mutex<Option<Result<RowResults, Failure>>>>) -> bool {
        lock(&self.waiting).iter().any(|one| Arc::ptr_eq(&one.answer, answer))
    }

    /// Runs what has waited longest, and what is like it.
    fn run_some(&self) {
        let chosen = {
            let mut waiting = lock(&self.waiting);
            // A job that was stopped has left texts that nobody wants any more.
            waiting.retain(|one| Arc::strong_count(&one.answer) > 1);
            let lengths: Vec<usize> = waiting.iter().map(|one| one.row.ids.len()).collect();
            let places = if self.alone { choose(&lengths[..lengths.len().min(1)]) } else { choose(&lengths) };
            let mut chosen: Vec<Waiting> =
                places.into_iter().rev().filter_map(|place| waiting.remove(place)).collect();
            chosen.reverse();
            chosen
        };
        if chosen.is_empty() {
            return;
        }
        let rows: Vec<&Row> = chosen.iter().map(|one| &one.row).collect();
        match self.run_together(&rows) {
            Ok(results) => {
                for (one, result) in chosen.iter().zip(results) {
                    *lock(&one.answer) = Some(Ok(result));
                }
            }
            Err(failure) => chosen.iter().for_each(|one| *lock(&one.answer) = Some(Err(failure.clone()))),
        }
    }

    fn run_together(&self, rows: &[&Row]) -> Result<Vec<RowResults>, Failure> {
        let longest = rows.iter().map(|row| row.ids.len()).max().unwrap_or(0);
        let shape = (rows.len(), longest);
        let at =
            |values: &[i64], place: usize, otherwise: i64| values.get(place).copied().unwrap_or(otherwise);
        let ids = Array2::from_shape_fn(shape, |(row, place)| at(&rows[row].ids, place, self.pad_id));
        let types = Array2::from_shape_fn(shape, |(row, place)| at(&rows[row].types, place, 0));
        let mask = Array2::from_shape_fn(shape, |(row, place)| i64::from(place < rows[row].ids.len()));
        let feeds = Feeds::new()
            .ints("input_ids", ids.into_dyn())
            .ints("attention_mask", mask.into_dyn())
            .ints("token_type_ids", types.into_dyn());
        let results = self.graph.run(feeds)?;
        let lengths: Vec<usize> = rows.iter().map(|row| row.ids.len()).collect();
        let mut apart: Vec<RowResults> = rows.iter().map(|_| Vec::new()).collect();
        for name in self.graph.outputs() {
            let own = split(name, &results.floats(name)?, &lengths);
            for (results, own) in apart.iter_mut().zip(own.into_iter().flatten()) {
                results.push((name.clone(), own));
            }
        }
        Ok(apart)
    }
}

/// Each text's part of an output, without padding. None where the output has no part for each: it must not become somebody's.
fn split(name: &str, all: &ArrayD<f32>, lengths: &[usize]) -> Option<Vec<ArrayD<f32>>> {
    if all.shape().first() != Some(&lengths.len()) {
        return None;
    }
    let longest = lengths.iter().copied().max().unwrap_or(0);
    let part = |(own, &length): (ArrayViewD<'_, f32>, &usize)| {
        // One number for each class is as long as the text only by chance.
        let follows = own.ndim() >= 2 || ALONG_TEXT.contains(&name);
        let is_padded = follows && own.shape().first() == Some(&longest);
        if is_padded { own.slice_axis(Axis(0), Slice::from(..length)).to_owned() } else { own.to_owned() }
    };
    Some(all.axis_iter(Axis(0)).zip(lengths).map(part).collect())
}

/// An output of one text.
pub fn output<'r>(results: &'r RowResults, names: &[&str]) -> Option<&'r ArrayD<f32>> {
    names.iter().find_map(|wanted| results.iter().find(|(name, _)| name == wanted).map(|(_, array)| array))
}

/// Which of the texts that wait, by their lengths, the next run takes: the first, and those that go well with it.
fn choose(lengths: &[usize]) -> Vec<usize> {
    let Some(&first) = lengths.first() else { return Vec::new() };
    let (mut longest, mut text, mut places) = (first, first, vec![0]);
    for (place, &length) in lengths.iter().enumerate().skip(1) {
        let (rows, with_it) = (places.len() + 1, longest.max(length));
        let fits = rows <= MAX_ROWS && rows * with_it <= MAX_TOKENS;
        if fits && (text + length) * 10 >= rows * with_it * FILLED_OF_10 {
            places.push(place);
            (longest, text) = (with_it, text + length);
        }
    }
    places
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn long_texts_do_not_wait_for_short_ones_filled_up() {
        assert_eq!(choose(&[100, 10, 95, 500, 104]), [0, 2, 4]);
        assert_eq!(choose(&[]), Vec::<usize>::new());
    }

    #[test]
    fn each_text_gets_its_own_part_and_nobody_elses() {
        let shapes = |name: &str, shape: &[usize]| {
            let parts = split(name, &ArrayD::zeros(shape), &[6, 4])?;
            Some(parts.iter().map(|part| part.shape().to_vec()).collect::<Vec<_>>())
        };
        assert_eq!(shapes("last_hidden_state", &[2, 6, 8]), Some(vec![vec![6, 8], vec![4, 8]]));
        assert_eq!(shapes("start_logits", &[2, 6]), Some(vec![vec![6], vec![4]]));
        // Six classes, and by chance six tokens.
        assert_eq!(shapes("logits", &[2, 6]), Some(vec![vec![6], vec![6]]));
        for shape in [&[1, 6, 8][..], &[], &[0, 6], &[3, 6]] {
            assert_eq!(shapes("logits", shape), None, "{shape:?}");
        }
    }

    proptest! {
        #[test]
        fn a_run_is_mostly_text(lengths in proptest::collection::vec(1_usize..600, 1..200)) {
            let places = choose(&lengths);
            prop_assert_eq!(places[0], 0);
            prop_assert!(places.windows(2).all(|pair| pair[0] < pair[1]));
            let longest = places.iter().map(|&place| lengths[place]).max().unwrap_or(0);
            let text: usize = places.iter().map(|&place| lengths[place]).sum();
            prop_assert!(places.len() <= MAX_ROWS);
            prop_assert!(places.len() == 1 || longest * places.len() <= MAX_TOKENS);
            prop_assert!(text * 10 >= longest * places.len() * FILLED_OF_10);
        }
    }
}
