//! `island-bench`: every claim of speed, as a ratio against a peer or a floor in the same run.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `systems` | what is measured: an Island network, llama-server, a bare llama.cpp loop, a paced mock |
//! | `load` | streaming chat requests, and the times of their frames |
//! | `stats` | medians of per-round ratios |
//! | `decode` | a1, a2: tokens per second and time to first token, 1 and 8 streams |
//! | `chats` | a4, a5, a6: when replies of long conversations begin, and whether others flow on meanwhile |
//! | `mock` | a chat server that costs nothing |
//! | `gateway` | b1, b2, b4: the API beside nginx and litellm |
//! | `overhead` | b3: what the network adds to a paced stream |
//! | `wasm` | d1, d2: wasm jobs through the engine, against a bare loop and a process for each |
//! | `onnx` | e1, e2: graphs and embeddings, against Python's onnxruntime of the same version, mosec and LitServe |
//! | `diffusers` | f1, f2: a step of Stable Diffusion, against torch and diffusers |
//! | `footprint` | i1, i2: what an idle Island takes, against node-exporter and boinc-client |
//! | `python` | a peer in Python |
//! | `containers` | h1, h2: from a job to the first output of its container, cold and started ahead, against curl |
//!
//! Rounds are interleaved (A, B, C, A, B, C, …); the ratio of each round is taken, then the median of the ratios, with
//! the least and the greatest beside it. Absolute figures belong to the machine and the minute; ratios travel better.

#![expect(clippy::print_stdout, reason = "a report is what this program is for")]

mod chats;
mod containers;
mod decode;
mod diffusers;
mod footprint;
mod gateway;
mod load;
mod mock;
mod onnx;
mod overhead;
mod python;
mod stats;
mod systems;
mod wasm;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Measures Island against peers and floors in the same run.
#[derive(Debug, Parser)]
struct Cli {
    /// Rounds; the first one warms up and is not counted
    #[arg(long, default_value_t = 8, global = true)]
    rounds: usize,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Decode speed through the whole network, against llama-server and a bare llama.cpp loop (a1, a2)
    Decode {
        /// The model file, the same for all three
        #[arg(long)]
        model: PathBuf,
        /// llama-server program (see benches/peers.sh)
        #[arg(long)]
        llama_server: PathBuf,
        /// Tokens per reply
        #[arg(long, default_value_t = 64)]
        tokens: u64,
        /// Processor threads for each
        #[arg(long, default_value_t = 2)]
        threads: u32,
    },
    /// Long conversations: first tokens of what was met before, and replies beside long prompts (a4, a5, a6)
    Chats {
        /// The model file, the same for all
        #[arg(long)]
        model: PathBuf,
        /// llama-server program (see benches/peers.sh)
        #[arg(long)]
        llama_server: PathBuf,
        /// Processor threads for each
        #[arg(long, default_value_t = 2)]
        threads: u32,
    },
    /// What the network adds to a stream paced at 20 ms, against the same stream served directly (b3)
    Overhead,
    /// Latency alone, requests a second and streams held, against nginx and litellm (b1, b2, b4)
    Gateway {
        /// litellm program (see benches/peers.sh)
        #[arg(long)]
        litellm: Option<PathBuf>,
    },
    /// Wasm jobs through the engine, against a bare loop of the same instances and a fresh process for each (d1, d2)
    Wasm {
        /// A program that takes JSON, with its input: measured besides those built in
        #[arg(long, num_args = 2, value_names = ["PROGRAM", "INPUT"])]
        program: Vec<String>,
        /// Jobs in a round
        #[arg(long, default_value_t = 1000)]
        jobs: usize,
    },
    /// One graph at a time, and embeddings for sixteen clients, against Python's onnxruntime, mosec and LitServe (e1, e2)
    Onnx {
        /// Folder with the graphs (see benches/peers.sh)
        #[arg(long)]
        models: PathBuf,
        /// Python with onnxruntime, tokenizers, mosec and litserve
        #[arg(long)]
        python: PathBuf,
    },
    /// A step of Stable Diffusion 1.5 on a processor, against torch in f32 and bf16 (f1, f2)
    Diffusers {
        /// Folder with a repository (see benches/diffusers/models.py)
        #[arg(long)]
        model: PathBuf,
        /// Python with torch and diffusers
        #[arg(long)]
        python: PathBuf,
        /// Sides of the pictures, pixels
        #[arg(long, num_args = 1.., default_values_t = [256, 512])]
        sides: Vec<usize>,
    },
    /// From a job to the first output of its container, cold and started ahead, against the daemon's API by curl (h1, h2)
    Containers,
    /// Memory and processor time of an Island with nothing to do, against node-exporter and boinc-client (i1, i2)
    Footprint {
        /// How long to look
        #[arg(long, default_value_t = 10)]
        minutes: u64,
        /// island-agent program, as packages have it [default: the one that tests run]
        #[arg(long)]
        agent: Option<PathBuf>,
        /// prometheus-node-exporter program
        #[arg(long, default_value = "prometheus-node-exporter")]
        node_exporter: PathBuf,
        /// boinc program
        #[arg(long, default_value = "boinc")]
        boinc: PathBuf,
    },
    /// One program in a process of its own, as the peer of `wasm`
    #[command(hide = true)]
    WasmProcess {
        /// The compiled program
        compiled: PathBuf,
    },
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    // Those of wasm bring their own async runtimes, as the worker and the peer do.
    match cli.what {
        What::Wasm { program, jobs } => wasm::run(cli.rounds, jobs, &program),
        What::WasmProcess { compiled } => wasm::process::run(&compiled),
        what => tokio::runtime::Runtime::new()?.block_on(measure(what, cli.rounds)),
    }
}

async fn measure(what: What, rounds: usize) -> Result<()> {
    match what {
        What::Decode { model, llama_server, tokens, threads } => {
            decode::run(&decode::Plan { model, llama_server, tokens, threads, rounds }).await
        }
        What::Chats { model, llama_server, threads } => {
            chats::run(&chats::Plan { model, llama_server, threads, rounds }).await
        }
        What::Overhead => overhead::run(rounds).await,
        What::Gateway { litellm } => gateway::run(rounds, litellm).await,
        What::Onnx { models, python } => onnx::run(rounds, &models, &python).await,
        What::Diffusers { model, python, sides } => diffusers::run(rounds, &model, &python, &sides).await,
        What::Footprint { minutes, agent, node_exporter, boinc } => {
            footprint::run(minutes, agent.as_deref(), &node_exporter, &boinc).await
        }
        What::Containers => containers::run(rounds).await,
        What::Wasm { .. } | What::WasmProcess { .. } => unreachable!("measured without this runtime"),
    }
}
