//! With a context that is only a table: kept tokens exist, running sequences are never changed, cells never run out.

use proptest::prelude::*;

use super::*;
use crate::engine::kv_offload::{KvOffload, OffloadedSequence};

#[derive(Debug, Clone)]
enum Act {
    Place { scope: u8, prompt: Vec<i32>, reply: usize },
    Write { which: usize, token: i32 },
    End { which: usize },
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let prompt = prop_oneof![
        proptest::collection::vec(0..2_i32, 1..20),
        (1_usize..20).prop_map(|length| (0..length as i32).collect()),
    ];
    let act = prop_oneof![
        (0..2_u8, prompt, 1_usize..8).prop_map(|(scope, prompt, reply)| Act::Place { scope, prompt, reply }),
        (0_usize..4, 0..2_i32).prop_map(|(which, token)| Act::Write { which, token }),
        (0_usize..4).prop_map(|which| Act::End { which }),
    ];
    proptest::collection::vec(act, 1..60)
}

#[derive(Debug)]
struct Running {
    sequence: usize,
    left: usize,
}

const COUNT: usize = 4;
const CAPACITY: usize = 40;

fn place_of_idle() -> impl Strategy<Value = Idle> {
    prop_oneof![Just(Idle::Here), Just(Idle::PrefixMatch), Just(Idle::Nowhere)]
}

proptest! {
    #[test]
    fn kept_tokens_always_exist_in_the_context(acts in acts(), idle in place_of_idle()) {
        let mut sequences = Sequences::new(COUNT, CAPACITY, idle);
        let mut kv_offload = KvOffload::new(if idle == Idle::PrefixMatch { 30 } else { 0 });
        let mut context: Vec<(Vec<LlamaToken>, String)> = vec![Default::default(); COUNT];
        let mut running: Vec<Running> = Vec::new();
        for act in acts {
            match act {
                Act::Place { scope, prompt, reply } => {
                    let prompt: Vec<LlamaToken> = prompt.into_iter().map(LlamaToken).collect();
                    let scope = scope.to_string();
                    let offer = kv_offload.offers(&prompt, &scope);
                    let Some(placed) = sequences.place(&prompt, prompt.len() + reply, &scope, offer) else {
                        prop_assert!(!running.is_empty(), "an idle engine refused a job that fits");
                        continue;
                    };
                    let busy = |index: usize| running.iter().any(|job| job.sequence == index);
                    prop_assert!(!busy(placed.sequence) && !placed.leaving.iter().any(|one| busy(one.sequence)));
                    let brought = (placed.source == Source::PrefixMatch).then(|| kv_offload.take(&prompt, &scope)).flatten();
                    for leaving in placed.leaving {
                        let (tokens, scope) = &context[leaving.sequence];
                        prop_assert_eq!((&leaving.tokens, &leaving.scope), (tokens, scope));
                        let state = leaving.tokens.clone();
                        kv_offload.put(OffloadedSequence { tokens: leaving.tokens, scope: leaving.scope, state });
                        if leaving.sequence != placed.sequence {
                            context[leaving.sequence].0.clear();
                        }
                    }
                    match placed.source {
                        Source::Itself => {}
                        Source::Other(from) => {
                            let (tokens, scope) = &context[from];
                            context[placed.sequence] = (tokens[..placed.keep].to_vec(), scope.clone());
                        }
                        Source::PrefixMatch => {
                            let brought = brought.expect("the offered conversation exists");
                            context[placed.sequence] = (brought.state, brought.scope);
                        }
                    }
                    let cells: usize = context.iter().map(|(tokens, _)| tokens.len()).sum();
                    prop_assert!(cells <= CAPACITY, "{cells} cells in use when all of it is back");
                    prop_assert!(placed.keep == 0 || context[placed.sequence].1 == scope, "kept from another scope");
                    prop_assert!(placed.keep >= offer.keep.min(prompt.len() - 1) || placed.source != Source::PrefixMatch);
                    context[placed.sequence].0.truncate(placed.keep);
                    prop_assert_eq!(&context[placed.sequence].0[..], &prompt[..placed.keep]);
                    prop_assert!(placed.keep < prompt.len());
                    for &token in &prompt[placed.keep..] {
                        sequences.push(placed.sequence, token);
                    }
                    context[placed.sequence] = (prompt, scope);
                    running.push(Running { sequence: placed.sequence, left: reply });
                    let strangers = context.iter().enumerate().filter(|&(index, (tokens, _))| {
                        !tokens.is_empty() && !running.iter().any(|job| job.sequence == index)
                    });
                    prop_assert!(
                        idle == Idle::Here || strangers.count() <= usize::from(matches!(placed.source, Source::Other(_))),
                        "idle conversations stayed beside a job"
                    );
                }
                Act::Write { which, token } => {
                    if let Some(job) = running.get_mut(which).filter(|job| job.left > 0) {
                        job.left -= 1;
                        context[job.sequence].0.push(LlamaToken(token));
                        sequences.push(job.sequence, LlamaToken(token));
                    }
                }
                Act::End { which } => {
                    if which < running.len() {
                        sequences.release(running.remove(which).sequence);
                    }
                }
            }
            let cells: usize = context.iter().map(|(tokens, _)| tokens.len()).sum();
            prop_assert!(cells <= CAPACITY, "{cells} cells in use");
        }
    }
}

const NONE: PrefixMatch = PrefixMatch { keep: 0, cells: 0 };

fn tokens(range: std::ops::Range<i32>) -> Vec<LlamaToken> {
    range.map(LlamaToken).collect()
}

fn write(sequences: &mut Sequences, sequence: usize, range: std::ops::Range<i32>) {
    for token in tokens(range) {
        sequences.push(sequence, token);
    }
}

#[test]
fn a_conversation_continues_in_its_sequence() {
    let mut sequences = Sequences::new(2, 100, Idle::Here);
    let first = sequences.place(&tokens(0..10), 20, "a", NONE).expect("room");
    assert_eq!((first.keep, first.source), (0, Source::Itself));
    write(&mut sequences, first.sequence, 0..15);
    sequences.release(first.sequence);
    let second = sequences.place(&tokens(0..18), 30, "a", NONE).expect("room");
    assert_eq!((second.sequence, second.keep, second.source), (first.sequence, 15, Source::Itself));
    let stranger = sequences.place(&tokens(0..18), 30, "b", NONE).expect("room");
    assert_eq!((stranger.keep, stranger.source), (0, Source::Itself));
}

#[test]
fn a_running_jobs_beginning_is_copied() {
    let mut sequences = Sequences::new(2, 100, Idle::Here);
    let first = sequences.place(&tokens(0..10), 20, "a", NONE).expect("room");
    write(&mut sequences, first.sequence, 0..10);
    let second = sequences.place(&tokens(0..10), 20, "a", NONE).expect("room");
    assert_eq!((second.keep, second.source), (9, Source::Other(first.sequence)));
}

#[test]
fn an_idle_conversation_is_moved_for_another_accounts_job_and_restored() {
    let mut sequences = Sequences::new(2, 100, Idle::PrefixMatch);
    let first = sequences.place(&tokens(0..10), 20, "a", NONE).expect("room");
    write(&mut sequences, first.sequence, 0..15);
    sequences.release(first.sequence);
    let stranger = sequences.place(&tokens(50..60), 20, "b", NONE).expect("room");
    let left = Leaving { sequence: first.sequence, tokens: tokens(0..15), scope: "a".to_owned() };
    assert_eq!(stranger.leaving, [left]);
    let offer = PrefixMatch { keep: 15, cells: 15 };
    let back = sequences.place(&tokens(0..18), 30, "a", offer).expect("room");
    assert_eq!((back.keep, back.source), (15, Source::PrefixMatch));
    assert_ne!(back.sequence, stranger.sequence);
}

#[test]
fn a_conversation_that_would_not_fit_is_read_again() {
    let mut sequences = Sequences::new(2, 40, Idle::PrefixMatch);
    sequences.place(&tokens(50..60), 20, "b", NONE).expect("room");
    let long = PrefixMatch { keep: 8, cells: 30 };
    let placed = sequences.place(&tokens(0..10), 20, "a", long).expect("room without it");
    assert_eq!((placed.keep, placed.source), (0, Source::Itself));
}
