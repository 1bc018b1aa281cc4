//! Batching of texts that wait for the same graph.
//!
//! No text waits for others to arrive: a thread that finds an idle session takes along the waiting texts of similar length and runs them all.
//! If the graph has lanes, several batches run concurrently. A graph with dynamic quantization scales its numbers by everything in a run,
//! so that a result would depend on other texts: such a graph gets one text at a time.

use std::{collections::VecDeque, sync::Arc};

use island_runtimes_graph::{Feeds, Graph, lanes::Lane};
use island_runtimes_kit::{
    error::{EngineError, ErrorKind},
    job::Job,
    stop::Stop,
};
use ndarray::{Array2, ArrayD, ArrayViewD, Axis, Slice};
use parking_lot::{Condvar, Mutex};
use tokenizers::Encoding;

/// Maximum number of texts of one run.
const MAX_ROWS: usize = 64;

/// Limits of a batch.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// Tokens of one run, with padding.
    tokens: usize,
    /// Tenths of a run that may be padding.
    tenths: usize,
    /// Additional tokens of padding for each text after the first.
    each: usize,
}

/// In the session with all threads.
const WIDE: Limits = Limits { tokens: 2048, tenths: 1, each: 0 };
/// In a lane. Measured with MiniLM on one thread: a run costs as much as ten tokens besides its texts, so that more padding would cost
/// more than the run it saves; and with 1024 tokens each token takes a tenth longer, since they no longer fit the CPU's cache.
const LANE: Limits = Limits { tokens: 512, tenths: 0, each: 8 };
/// One text at a time.
const ALONE: Limits = Limits { tokens: 0, tenths: 0, each: 0 };

/// Networks that read beyond the end of a text, whatever the attention mask is: padding changes their results.
const READ_PADDING: [&str; 7] =
    ["canine", "convbert", "fnet", "funnel", "mobilebert", "nystromformer", "yoso"];

/// Inputs that texts are fed as.
pub const FED: [&str; 3] = ["input_ids", "attention_mask", "token_type_ids"];

/// Outputs that have one number per token.
const ALONG_TEXT: [&str; 2] = ["start_logits", "end_logits"];

/// A text as the input of a graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Token ids.
    pub ids: Vec<i64>,
    /// Segment of each token.
    pub types: Vec<i64>,
}

impl Row {
    /// The tokens of a text.
    pub fn of(encoding: &Encoding) -> Self {
        Self {
            ids: encoding.get_ids().iter().map(|&id| i64::from(id)).collect(),
            types: encoding.get_type_ids().iter().map(|&kind| i64::from(kind)).collect(),
        }
    }
}

/// The outputs of a graph for one text by name, without the batch dimension and without padding.
pub type RowResults = Vec<(String, ArrayD<f32>)>;

/// A graph for texts, and the texts that wait for it.
#[derive(Debug)]
pub struct Batcher {
    graph: Graph,
    pad_id: i64,
    alone: bool,
    pads: bool,
    queue: Mutex<Queue>,
    /// Texts were answered, or a lane became free.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    /// Threads that wait for a lane or for their results.
    idle: usize,
}

/// The result of a text.
type Answer = Arc<Mutex<Option<Result<RowResults, EngineError>>>>;

#[derive(Debug)]
struct Waiting {
    row: Row,
    job: Stop,
    answer: Answer,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // The thread that took the text did not finish.
        self.answer.lock().get_or_insert_with(|| {
            let message = "the batch that contained this text failed";
            Err(EngineError::new(ErrorKind::Crashed, message))
        });
    }
}

/// Wakes waiting threads when a run ends, also after a panic.
struct Announce<'b>(&'b Batcher);

impl Drop for Announce<'_> {
    fn drop(&mut self) {
        // While this is locked, no thread is between checking for a result and waiting.
        drop(self.0.queue.lock());
        self.0.changed.notify_all();
    }
}

impl Batcher {
    /// Pads shorter texts with `pad_id`, unless the results of a model of this type depend on it.
    pub fn new(graph: Graph, pad_id: i64, model_type: &str) -> Self {
        Self {
            alone: graph.scales_by_run(),
            pads: !READ_PADDING.contains(&model_type),
            graph,
            pad_id,
            queue: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Runs the graph on these texts.
    pub fn run(&self, rows: Vec<Row>, job: &Job) -> Result<Vec<RowResults>, EngineError> {
        let answers: Vec<Answer> = rows.iter().map(|_| Answer::default()).collect();
        let waiting = rows.into_iter().zip(&answers).map(|(row, answer)| Waiting {
            row,
            job: job.stop().clone(),
            answer: Arc::clone(answer),
        });
        self.queue.lock().waiting.extend(waiting);
        answers.iter().map(|answer| self.answer(answer, job)).collect()
    }

    /// Runs waiting texts, of any job, until this one is answered.
    fn answer(&self, answer: &Answer, job: &Job) -> Result<RowResults, EngineError> {
        loop {
            job.step()?;
            let mut queue = self.queue.lock();
            if let Some(done) = answer.lock().take() {
                return done;
            }
            if let Some((lane, chosen)) = self.take_some(&mut queue) {
                let more = !queue.waiting.is_empty();
                drop(queue);
                if more {
                    self.changed.notify_one();
                }
                let _announce = Announce(self);
                self.run_some(lane, chosen);
            } else {
                queue.idle += 1;
                self.changed.wait(&mut queue);
                queue.idle -= 1;
            }
        }
    }

    /// The text that has waited longest and texts of similar length, with a lane to run them in.
    fn take_some(&self, queue: &mut Queue) -> Option<(Lane<'_>, Vec<Waiting>)> {
        let Queue { waiting, idle } = queue;
        // A cancelled job has left its texts.
        waiting.retain(|one| Arc::strong_count(&one.answer) > 1);
        if waiting.is_empty() {
            return None;
        }
        let lane = self.graph.lanes().try_enter(*idle > 0 && waiting.len() > 1)?;
        let lengths: Vec<usize> = waiting.iter().map(|one| one.row.ids.len()).collect();
        let limits = if lane.is_wide() { WIDE } else { LANE };
        let limits = if self.alone { ALONE } else { limits };
        let mut places = choose(&lengths, if self.pads { limits } else { limits.without_padding() });
        // Leaves texts for the other idle threads.
        let sharers = 1 + lane.free_beside().min(*idle);
        places.truncate(lengths.len().div_ceil(sharers));
        let mut chosen: Vec<Waiting> =
            places.into_iter().rev().filter_map(|place| waiting.remove(place)).collect();
        chosen.reverse();
        Some((lane, chosen))
    }

    /// The lane and the texts are dropped in here, so that a thread woken afterwards finds the lane free and the texts answered.
    fn run_some(&self, mut lane: Lane<'_>, chosen: Vec<Waiting>) {
        let rows: Vec<&Row> = chosen.iter().map(|one| &one.row).collect();
        // A run goes on as long as one of its texts is wanted, also if the job of this thread is cancelled.
        let jobs: Vec<Stop> = chosen.iter().map(|one| one.job.clone()).collect();
        match self.run_together(&mut lane, &rows, &jobs) {
            Ok(results) => {
                for (one, result) in chosen.iter().zip(results) {
                    *one.answer.lock() = Some(Ok(result));
                }
            }
            // A text may be at fault, with a token that the network lacks, for instance: the others are of other jobs.
            Err(failure) if chosen.len() > 1 && !ends_all(failure.kind()) => {
                for one in &chosen {
                    *one.answer.lock() = Some(self.run_alone(&mut lane, one));
                }
            }
            Err(failure) => chosen.iter().for_each(|one| *one.answer.lock() = Some(Err(failure.clone()))),
        }
    }

    fn run_alone(&self, lane: &mut Lane<'_>, one: &Waiting) -> Result<RowResults, EngineError> {
        let results = self.run_together(lane, &[&one.row], std::slice::from_ref(&one.job))?;
        Ok(results.into_iter().next().unwrap_or_default())
    }

    fn run_together(
        &self,
        lane: &mut Lane<'_>,
        rows: &[&Row],
        jobs: &[Stop],
    ) -> Result<Vec<RowResults>, EngineError> {
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
        let results = self.graph.run_in(lane, feeds, jobs)?;
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

/// Whether no text of a run that failed so can be answered: the device no longer computes, or nobody waits.
fn ends_all(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Crashed | ErrorKind::Interrupted)
}

/// Each text's part of an output, without padding. Returns `None` if the output has no part per text: no text may get all of it.
fn split(name: &str, all: &ArrayD<f32>, lengths: &[usize]) -> Option<Vec<ArrayD<f32>>> {
    if all.shape().first() != Some(&lengths.len()) {
        return None;
    }
    let longest = lengths.iter().copied().max().unwrap_or(0);
    let part = |(own, &length): (ArrayViewD<'_, f32>, &usize)| {
        // An output with one number per class has the length of the text only by chance.
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

/// Which waiting texts, by their lengths, the next run takes: the first one, and those of similar length.
fn choose(lengths: &[usize], limits: Limits) -> Vec<usize> {
    let Some(&first) = lengths.first() else { return Vec::new() };
    let (mut longest, mut text, mut places) = (first, first, vec![0]);
    for (place, &length) in lengths.iter().enumerate().skip(1) {
        let (rows, with_it) = (places.len() + 1, longest.max(length));
        let whole = rows * with_it;
        let fits = rows <= MAX_ROWS && whole <= limits.tokens;
        if fits && limits.allow(whole - text - length, whole, rows) {
            places.push(place);
            (longest, text) = (with_it, text + length);
        }
    }
    places
}

impl Limits {
    /// The same for texts of equal length.
    fn without_padding(self) -> Self {
        Self { tenths: 0, each: 0, ..self }
    }

    /// Whether the padding of a run is within the limits.
    fn allow(self, padding: usize, whole: usize, rows: usize) -> bool {
        padding * 10 <= whole * self.tenths + (rows - 1) * self.each * 10
    }
}

#[cfg(test)]
mod tests {
    use island_runtimes_graph::{Resources, files::GraphFiles, library};
    use proptest::prelude::*;
    use tokio_util::sync::CancellationToken;

    use super::*;

    #[test]
    fn a_text_that_cannot_be_read_fails_alone() {
        let name = "onnx/model.onnx".to_owned();
        let model = island_testing::workspace().join("runtimes/onnx/tests/fixtures/minilm/model");
        let files = GraphFiles { path: model.join(&name), name, weights: Vec::new() };
        let library = library::open().expect("the library");
        let graph = Graph::load(library, &files, Resources::cpu(1)).expect("the graph");
        let batcher = Batcher::new(graph, 0, "bert");
        let answers: [Answer; 3] = std::array::from_fn(|_| Answer::default());
        // The network has 126 tokens.
        let texts = [vec![5, 6, 7], vec![5, 9000, 7], vec![8, 9, 10]];
        let waiting = texts.into_iter().zip(&answers).map(|(ids, answer)| Waiting {
            row: Row { types: vec![0; ids.len()], ids },
            job: Stop::new(CancellationToken::new()),
            answer: Arc::clone(answer),
        });
        batcher.run_some(batcher.graph().lanes().enter(), waiting.collect());
        let [first, odd, last] = answers.map(|answer| answer.lock().take().expect("answered"));
        assert_eq!(odd.expect_err("there is no such token").kind(), ErrorKind::InvalidModel);
        for neighbor in [first, last] {
            let results = neighbor.expect("it is not at fault");
            assert_eq!(results[0].1.shape()[0], 3, "{results:?}");
        }
    }

    #[test]
    fn long_texts_are_not_batched_with_padded_short_ones() {
        let lengths = [100, 10, 95, 500, 104];
        assert_eq!(choose(&lengths, WIDE), [0, 2, 4]);
        assert_eq!(choose(&lengths, Limits { tokens: 250, ..WIDE }), [0, 2]);
        assert_eq!(choose(&lengths, LANE), [0, 2, 4]);
        assert_eq!(choose(&lengths, ALONE), [0]);
        assert_eq!(choose(&[], WIDE), Vec::<usize>::new());
        // A tenth of a long run costs more than another run; a tenth of a short one costs less.
        let (long, short) = ([100, 90], [12, 6]);
        assert_eq!((choose(&long, WIDE), choose(&short, WIDE)), (vec![0, 1], vec![0]));
        assert_eq!((choose(&long, LANE), choose(&short, LANE)), (vec![0], vec![0, 1]));
    }

    #[test]
    fn texts_of_equal_length_are_batched_where_padding_changes_results() {
        for limits in [WIDE, LANE] {
            assert_eq!(choose(&[20, 19, 20, 21], limits.without_padding()), [0, 2]);
        }
    }

    #[test]
    fn each_text_gets_its_own_part_only() {
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
        fn padding_is_limited(lengths in proptest::collection::vec(1_usize..600, 1..200)) {
            for limits in [WIDE, LANE, ALONE, WIDE.without_padding()] {
                let places = choose(&lengths, limits);
                prop_assert_eq!(places[0], 0);
                prop_assert!(places.windows(2).all(|pair| pair[0] < pair[1]));
                let longest = places.iter().map(|&place| lengths[place]).max().unwrap_or(0);
                let text: usize = places.iter().map(|&place| lengths[place]).sum();
                let (rows, whole) = (places.len(), longest * places.len());
                prop_assert!(rows <= MAX_ROWS);
                prop_assert!(rows == 1 || whole <= limits.tokens);
                prop_assert!(whole - text <= whole * limits.tenths / 10 + (rows - 1) * limits.each);
            }
        }
    }
}
