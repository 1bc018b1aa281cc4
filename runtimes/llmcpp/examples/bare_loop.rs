//! The baseline of the decode benchmark: only llama.cpp's decode calls and an argmax.
//!
//! `bare_loop MODEL THREADS STREAMS TOKENS [gpu]` prints tokens per second over all streams, without the prompt; with `gpu`, of the first GPU.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a measuring program prints its figure and stops at the first error"
)]

use std::{num::NonZeroU32, path::Path, time::Instant};

use island_runtimes_llmcpp::{
    backend::{self, Started},
    gpu,
};
use llama_cpp_2::{
    context::params::LlamaContextParams,
    llama_batch::LlamaBatch,
    model::{LlamaModel, params::LlamaModelParams},
    token::LlamaToken,
};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let ([path, threads, streams, tokens] | [path, threads, streams, tokens, _]) = arguments.as_slice()
    else {
        panic!("usage: bare_loop MODEL THREADS STREAMS TOKENS [gpu]");
    };
    let (threads, streams, tokens): (i32, usize, usize) =
        (threads.parse().unwrap(), streams.parse().unwrap(), tokens.parse().unwrap());
    let Started { llama, folder } = backend::start().unwrap();
    let mut place = LlamaModelParams::default();
    if arguments.len() == 5 {
        gpu::load(folder);
        place = place.with_devices(&[gpu::all().first().expect("a GPU").index]).unwrap();
    }
    let model = LlamaModel::load_from_file(llama, Path::new(path), &place).unwrap();
    let params = LlamaContextParams::default()
        .with_n_ctx(NonZeroU32::new(1024 * streams as u32))
        .with_n_seq_max(streams as u32)
        .with_kv_unified(true)
        .with_n_threads(threads)
        .with_n_threads_batch(threads);
    let mut context = model.new_context(llama, params).unwrap();
    let prompt: Vec<LlamaToken> = (100..132).map(LlamaToken::new).collect();
    let mut batch = LlamaBatch::new(512, streams as i32);
    let mut next = Vec::new();
    for stream in 0..streams {
        batch.clear();
        for (position, token) in prompt.iter().enumerate() {
            batch.add(*token, position as i32, &[stream as i32], position + 1 == prompt.len()).unwrap();
        }
        context.decode(&mut batch).unwrap();
        next.push(best(context.get_logits_ith(batch.n_tokens() - 1)));
    }
    let start = Instant::now();
    for step in 0..tokens {
        batch.clear();
        for (stream, token) in next.iter().enumerate() {
            batch.add(*token, (prompt.len() + step) as i32, &[stream as i32], true).unwrap();
        }
        context.decode(&mut batch).unwrap();
        for (stream, token) in next.iter_mut().enumerate() {
            *token = best(context.get_logits_ith(stream as i32));
        }
    }
    println!("{:.3}", (streams * tokens) as f64 / start.elapsed().as_secs_f64());
}

fn best(logits: &[f32]) -> LlamaToken {
    let best = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
    LlamaToken::new(best.map_or(0, |(index, _)| index as i32))
}
