//! Decode rate and time to first token with 1 and 8 streams, on the same model file in the same minute. The rate of eight streams
//! counts all tokens from the first request to the end of the last reply, prompts included.

use std::{path::PathBuf, time::Instant};

use anyhow::{Result, ensure};

use crate::{
    load::{Reply, Target, decode_rate},
    report::{Better, Report},
    stats::Spread,
    systems::{LlamaServer, Network, Room, bare_loop},
};

/// What to measure.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) model: PathBuf,
    pub(crate) llama_server: PathBuf,
    pub(crate) tokens: u64,
    pub(crate) threads: u32,
    pub(crate) rounds: usize,
}

/// Streams at once in the second half.
const MANY: usize = 8;
/// Replies that each of them requests in sequence, so that prompts arrive while other streams decode.
const REPLIES: usize = 3;

/// One system's figures, round by round.
#[derive(Debug, Default)]
struct Series {
    single: Vec<f64>,
    aggregate: Vec<f64>,
    first_single: Vec<f64>,
    first_many: Vec<f64>,
}

impl Series {
    async fn round(&mut self, target: &Target, round: usize, tokens: u64) -> Result<()> {
        let alone = target.ask(&prompt(round, 0, 0), tokens).await?;
        let talk = |stream| (0..REPLIES).map(|reply| prompt(round, stream, reply)).collect();
        let talks: Vec<Vec<String>> = (1..=MANY).map(talk).collect();
        let began = Instant::now();
        let many = target.ask_many(&talks, tokens).await?;
        let took = began.elapsed();
        ensure!(alone.tokens == tokens, "a reply ended after {} of {tokens} tokens", alone.tokens);
        self.single.push(decode_rate(&alone));
        let written: u64 = many.iter().map(|reply| reply.tokens).sum();
        self.aggregate.push(written as f64 / took.as_secs_f64());
        self.first_single.push(alone.first_ms);
        self.first_many.push(Spread::of(many.iter().map(|reply: &Reply| reply.first_ms).collect()).median);
        Ok(())
    }

    fn drop_warm_up(&mut self) {
        for figures in [&mut self.single, &mut self.aggregate, &mut self.first_single, &mut self.first_many] {
            figures.remove(0);
        }
    }
}

pub(crate) async fn run(plan: &Plan) -> Result<Report> {
    let room = Room { slots: MANY as u32, context: 1024, threads: 0 };
    let network = Network::start_with_model(&plan.model, room).await?;
    let peer = LlamaServer::start(&plan.llama_server, &plan.model, plan.threads, room, &[]).await?;
    let (ours, theirs) = (network.target("bench-model")?.unpooled()?, peer.target()?.unpooled()?);
    let (mut island, mut server) = (Series::default(), Series::default());
    let (mut bare_single, mut bare_many) = (Vec::new(), Vec::new());
    for round in 0..plan.rounds {
        island.round(&ours, round, plan.tokens).await?;
        server.round(&theirs, round, plan.tokens).await?;
        bare_single.push(bare_loop(&plan.model, plan.threads, 1, plan.tokens)?);
        bare_many.push(bare_loop(&plan.model, plan.threads, MANY, plan.tokens)?);
    }
    island.drop_warm_up();
    server.drop_warm_up();
    bare_single.remove(0);
    bare_many.remove(0);

    let setup =
        format!("{} tokens a reply, {} threads, {} rounds", plan.tokens, plan.threads, plan.rounds - 1);
    let mut report = Report::new("Decoding", setup);
    for (figure, ours, theirs, bare) in [
        ("decode rate, 1 stream", &island.single, &server.single, &bare_single),
        ("decode rate, 8 streams", &island.aggregate, &server.aggregate, &bare_many),
    ] {
        report.compare(figure, ("tokens/s", Better::Higher), ours, "llama-server", theirs);
        report.headline();
        report.compare(figure, ("tokens/s", Better::Higher), ours, "bare llama.cpp loop", bare);
    }
    for (figure, ours, theirs) in [
        ("time to first token, 1 stream", &island.first_single, &server.first_single),
        ("time to first token, 8 streams", &island.first_many, &server.first_many),
    ] {
        report.compare(figure, ("ms", Better::Lower), ours, "llama-server", theirs);
        report.headline();
    }
    Ok(report)
}

/// A prompt that shares no prefix with any other.
fn prompt(round: usize, stream: usize, reply: usize) -> String {
    format!("{round}.{stream}.{reply}: describe the sea, the weather and the long way home.")
}
