//! `island-bench`: every claim of speed, as a ratio against a peer or a floor in the same run.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `systems` | what is measured: an Island network, llama-server, a bare llama.cpp loop, a paced mock |
//! | `load` | streaming chat requests, and the times of their frames |
//! | `stats` | medians of per-round ratios |
//! | `report` | the results of one claim, as a table and as JSON |
//! | `chart` | one SVG of several results |
//! | `decode` | tokens per second and time to first token, 1 and 8 streams, against llama-server |
//! | `chats` | long conversations: first tokens with cached prefixes, gaps beside a long prompt, against llama-server |
//! | `conversations` | turns of conversations over several Islands, with and without the last Island in mind |
//! | `drafts` | replies that repeat their prompt, with and without guessed tokens |
//! | `mock` | a chat server that costs nothing |
//! | `gateway` | latency, rate and streams of the API, against nginx and litellm |
//! | `overhead` | what the network adds to a paced stream |
//! | `wasm` | wasm jobs through the engine, against a bare loop and one process per job |
//! | `onnx` | graphs and embeddings, against Python's onnxruntime of the same version, mosec and LitServe |
//! | `diffusers` | a step of Stable Diffusion, against torch and diffusers |
//! | `ends` | ends of jobs on PostgreSQL whose payments go to one account, against many |
//! | `ended` | lists, prices and statistics over a million ended jobs, against an empty database |
//! | `footprint` | memory and processor time of an idle Island, against node-exporter and boinc-client |
//! | `pages` | processor time of a coordinator with a hundred open pages of the console |
//! | `python` | a peer in Python |
//! | `tree` | paths of the source tree |
//! | `containers` | time from a job to the first output of its container, cold and started ahead, against curl |
//!
//! Rounds are interleaved (A, B, C, A, B, C, …). The ratio of each round is taken; the reported ratio is the median, with the minimum
//! and the maximum. Absolute figures depend on the machine and the hour; ratios are more stable.

#![expect(clippy::print_stdout, reason = "a report is what this program is for")]

mod chart;
mod chats;
mod containers;
mod conversations;
mod decode;
mod diffusers;
mod drafts;
mod ended;
mod ends;
mod footprint;
mod gateway;
mod load;
mod mock;
mod onnx;
mod overhead;
mod pages;
mod python;
mod report;
mod stats;
mod systems;
mod tree;
mod wasm;

use std::{fs, path::PathBuf};

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};

use report::Report;

/// Measures Island against peers and floors in the same run.
#[derive(Debug, Parser)]
struct Cli {
    /// Rounds; the first one warms up and is not counted
    #[arg(long, default_value_t = 8, global = true)]
    rounds: usize,
    /// Write the results to this file, for `chart`
    #[arg(long, global = true, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Decode speed through the whole network, against llama-server and a bare llama.cpp loop
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
    /// Long conversations: first tokens with cached prefixes, and replies beside long prompts, against llama-server
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
    /// Turns of conversations over several Islands, against Islands chosen without the conversation
    Conversations {
        /// The model file
        #[arg(long)]
        model: PathBuf,
        /// Islands, all on this machine
        #[arg(long, default_value_t = 4)]
        islands: usize,
    },
    /// Replies that repeat their prompt, and free ones, with guessed tokens against the same without
    Drafts {
        /// The model file, the same for both
        #[arg(long)]
        model: PathBuf,
    },
    /// What the network adds to a stream paced at 20 ms, against the same stream served directly
    Overhead,
    /// Latency alone, requests a second and streams held, against nginx and litellm
    Gateway {
        /// litellm program (see benches/peers.sh)
        #[arg(long)]
        litellm: Option<PathBuf>,
    },
    /// Wasm jobs through the engine, against a bare loop of the same instances and a fresh process for each
    Wasm {
        /// A program that takes JSON, with its input: measured besides those built in
        #[arg(long, num_args = 2, value_names = ["PROGRAM", "INPUT"])]
        program: Vec<String>,
        /// Jobs in a round
        #[arg(long, default_value_t = 1000)]
        jobs: usize,
    },
    /// One graph at a time, and embeddings for sixteen clients, against Python's onnxruntime, mosec and LitServe
    Onnx {
        /// Folder with the graphs (see benches/peers.sh)
        #[arg(long)]
        models: PathBuf,
        /// Python with onnxruntime, tokenizers, mosec and litserve
        #[arg(long)]
        python: PathBuf,
    },
    /// A step of Stable Diffusion 1.5 on a processor, against torch in f32 and bf16
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
    /// Time from a job to the first output of its container, cold and started ahead, against the daemon's API by curl
    Containers,
    /// Lists, prices and statistics over a database with many ended jobs, against an empty one
    Ended {
        /// Ended jobs
        #[arg(long, default_value_t = 1_000_000)]
        jobs: u64,
    },
    /// Ends of jobs a second whose payments go to one account, against as many accounts as jobs that end at once
    Ends {
        /// An empty PostgreSQL database, `postgres://user@host/name`
        #[arg(long)]
        database_url: String,
        /// Jobs in a round, for each side
        #[arg(long, default_value_t = 2_000)]
        jobs: usize,
        /// Jobs that end at one time
        #[arg(long, default_value_t = 16)]
        at_once: usize,
    },
    /// Memory and processor time of an idle Island, against node-exporter and boinc-client
    Footprint {
        /// How long to measure
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
    /// Processor time of a coordinator at rest with open pages of the console, against none
    Pages {
        /// Open pages
        #[arg(long, default_value_t = 100)]
        pages: usize,
        /// How long to measure each kind of page in a round
        #[arg(long, default_value_t = 60)]
        seconds: u64,
    },
    /// Draw the headline ratios of some results as one SVG, on standard output
    Chart {
        /// Files that `--json` wrote, in the order of the chart
        #[arg(required = true)]
        results: Vec<PathBuf>,
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
    let report = match cli.what {
        What::Chart { results } => {
            print!("{}", chart::run(&results)?);
            return Ok(());
        }
        What::WasmProcess { compiled } => return wasm::process::run(&compiled),
        What::Wasm { program, jobs } => wasm::run(cli.rounds, jobs, &program)?,
        what => tokio::runtime::Runtime::new()?.block_on(measure(what, cli.rounds))?,
    };
    print!("{}", report.table());
    if let Some(path) = &cli.json {
        let text = serde_json::to_string_pretty(&report.json())?;
        fs::write(path, format!("{text}\n")).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}

async fn measure(what: What, rounds: usize) -> Result<Report> {
    match what {
        What::Decode { model, llama_server, tokens, threads } => {
            decode::run(&decode::Plan { model, llama_server, tokens, threads, rounds }).await
        }
        What::Chats { model, llama_server, threads } => {
            chats::run(&chats::Plan { model, llama_server, threads, rounds }).await
        }
        What::Conversations { model, islands } => {
            conversations::run(&conversations::Plan { model, islands, rounds }).await
        }
        What::Drafts { model } => drafts::run(&model, rounds).await,
        What::Overhead => overhead::run(rounds).await,
        What::Gateway { litellm } => gateway::run(rounds, litellm).await,
        What::Onnx { models, python } => onnx::run(rounds, &models, &python).await,
        What::Diffusers { model, python, sides } => diffusers::run(rounds, &model, &python, &sides).await,
        What::Footprint { minutes, agent, node_exporter, boinc } => {
            footprint::run(minutes, agent.as_deref(), &node_exporter, &boinc).await
        }
        What::Containers => containers::run(rounds).await,
        What::Pages { pages, seconds } => pages::run(rounds, pages, seconds).await,
        What::Ended { jobs } => ended::run(rounds, jobs).await,
        What::Ends { database_url, jobs, at_once } => ends::run(rounds, &database_url, jobs, at_once).await,
        What::Wasm { .. } | What::WasmProcess { .. } | What::Chart { .. } => {
            unreachable!("they run without this runtime")
        }
    }
}
