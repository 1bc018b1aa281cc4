//! The baseline of the decode benchmark: only llama.cpp's decode calls and an argmax.
//!
//! `bare_loop MODEL THREADS STREAMS TOKENS [gpu [PROMPT]]` prints tokens per second over all streams, without the prompt; with `gpu`, of the first GPU. With
//! the length of a prompt, a second line contains the tokens per second with which one of that length is read.

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
    context::{LlamaContext, params::LlamaContextParams},
    llama_batch::LlamaBatch,
    model::{LlamaModel, params::LlamaModelParams},
    token::LlamaToken,
};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, threads, streams, tokens, device @ ..] = arguments.as_slice() else {
        panic!("usage: bare_loop MODEL THREADS STREAMS TOKENS [gpu [PROMPT]]");
    };
    let (threads, streams, tokens): (i32, usize, usize) =
        (threads.parse().unwrap(), streams.parse().unwrap(), tokens.parse().unwrap());
    let Started { llama, folder } = backend::start().unwrap();
    let mut place = LlamaModelParams::default();
    if !device.is_empty() {
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
    if let Some(prompt) = device.get(1) {
        println!("{:.3}", prompt_speed(&mut context, prompt.parse().unwrap()));
    }
}

/// Tokens per second with which a prompt of this length is read, in steps of 512.
fn prompt_speed(context: &mut LlamaContext<'_>, length: usize) -> f64 {
    let mut batch = LlamaBatch::new(512, 1);
    let mut read = || {
        context.clear_kv_cache();
        let start = Instant::now();
        let positions: Vec<usize> = (0..length).collect();
        for step in positions.chunks(512) {
            batch.clear();
            for position in step {
                let token = LlamaToken::new(100 + (position % 256) as i32);
                batch.add(token, *position as i32, &[0], position + 1 == length).unwrap();
            }
            context.decode(&mut batch).unwrap();
        }
        // A GPU computes behind the call; reading its result waits for it.
        best(context.get_logits_ith(batch.n_tokens() - 1));
        length as f64 / start.elapsed().as_secs_f64()
    };
    // The first one compiles what the driver needs.
    read();
    read()
}

fn best(logits: &[f32]) -> LlamaToken {
    let best = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
    LlamaToken::new(best.map_or(0, |(index, _)| index as i32))
}
