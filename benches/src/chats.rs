//! Long conversations: the time to first token with a cached prefix and with more conversations than slots, and the gaps between
//! the tokens of one reply while a long prompt of another is processed.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::{
    load::{Reply, Target},
    report::{Better, Report},
    stats::{Spread, median, percentile},
    systems::{LlamaServer, Network, Room},
};

/// What to measure.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) model: PathBuf,
    pub(crate) llama_server: PathBuf,
    pub(crate) threads: u32,
    pub(crate) rounds: usize,
}

/// Places for jobs, fewer than people.
const ROOM: Room = Room { slots: 4, context: 6144, threads: 0 };
/// People who talk in turn.
const CHATS: usize = 16;
/// Tokens, about, of what each of them talks about.
const ABOUT: usize = 400;
/// The same of a beginning that two questions share.
const SHARED: usize = 1024;
/// The same of a prompt that takes long to read.
const LONG: usize = 4096;
/// Tokens of a reply where only its beginning matters.
const SHORT: u64 = 4;
/// Tokens of the reply that flows meanwhile.
const FLOWING: u64 = 256;
/// How long it flows before the long prompt comes.
const BEFORE: Duration = Duration::from_secs(1);

/// One system's figures, round by round.
#[derive(Debug, Default)]
struct Series {
    cold: Vec<f64>,
    warm: Vec<f64>,
    back: Vec<f64>,
    gap: Vec<f64>,
    long: Vec<f64>,
}

impl Series {
    async fn round(&mut self, target: &Target, round: usize) -> Result<()> {
        self.shared_beginning(target, round).await?;
        self.talks_in_turn(target, round).await?;
        self.flow_beside_a_long_prompt(target, round).await
    }

    /// A prefix of a thousand tokens, uncached and then cached, with another question.
    async fn shared_beginning(&mut self, target: &Target, round: usize) -> Result<()> {
        let about = text(&format!("shared {round}"), SHARED);
        self.cold.push(first(target, &about, "What is it about?").await?);
        self.warm.push(first(target, &about, "And what comes next?").await?);
        Ok(())
    }

    /// More conversations than slots; each continues when all others have had their turn.
    async fn talks_in_turn(&mut self, target: &Target, round: usize) -> Result<()> {
        let abouts: Vec<String> =
            (0..CHATS).map(|chat| text(&format!("talk {round} {chat}"), ABOUT)).collect();
        for about in &abouts {
            first(target, about, "What is it about?").await?;
        }
        let mut back = Vec::new();
        for about in &abouts {
            back.push(first(target, about, "And what comes after that?").await?);
        }
        self.back.push(median(back));
        Ok(())
    }

    /// The gaps between the tokens of one reply while a prompt of four thousand tokens is processed for another.
    async fn flow_beside_a_long_prompt(&mut self, target: &Target, round: usize) -> Result<()> {
        let flowing = target.ask_messages(messages(&format!("flow {round}"), "Go on and on."), FLOWING);
        let interrupting = async {
            tokio::time::sleep(BEFORE).await;
            first(target, &text(&format!("long {round}"), LONG), "What is it about?").await
        };
        let (flowed, took): (Result<Reply>, Result<f64>) = tokio::join!(flowing, interrupting);
        let (flowed, took) = (flowed?, took?);
        let (began, ended) = (BEFORE.as_secs_f64() * 1e3, BEFORE.as_secs_f64() * 1e3 + took);
        ensure!(flowed.total_ms > ended, "the reply ended before the long prompt was read");
        let mut gaps: Vec<f64> = (flowed.frames_ms.windows(2))
            .filter(|pair| pair[1] > began && pair[0] < ended)
            .map(|pair| pair[1] - pair[0])
            .collect();
        gaps.sort_by(f64::total_cmp);
        ensure!(!gaps.is_empty(), "no reply flowed beside the long prompt");
        self.gap.push(percentile(&gaps, 99.0));
        self.long.push(took);
        Ok(())
    }

    fn drop_warm_up(&mut self) {
        for figures in [&mut self.cold, &mut self.warm, &mut self.back, &mut self.gap, &mut self.long] {
            figures.remove(0);
        }
    }
}

pub(crate) async fn run(plan: &Plan) -> Result<Report> {
    let network = Network::start_with_model(&plan.model, ROOM).await?;
    let start = |options: &'static [&'static str]| {
        LlamaServer::start(&plan.llama_server, &plan.model, plan.threads, ROOM, options)
    };
    let (peer, bare) = (start(&[]).await?, start(&["--cache-ram", "0"]).await?);
    let targets = [network.target("bench-model")?, peer.target()?, bare.target()?];
    let [ours, theirs, without] = targets.map(Target::unpooled);
    let targets = [ours?, theirs?, without?];
    let mut all: [Series; 3] = Default::default();
    for round in 0..plan.rounds {
        for (series, target) in all.iter_mut().zip(&targets) {
            series.round(target, round).await.with_context(|| format!("ask {}", target.url))?;
        }
    }
    all.iter_mut().for_each(Series::drop_warm_up);
    let [island, server, bare] = all;

    let setup = format!("{} slots, {} threads, {} rounds", ROOM.slots, plan.threads, plan.rounds - 1);
    let mut report = Report::new("Long conversations", setup);
    for (figure, series) in [
        ("first token, 1,024 tokens uncached", [&island.cold, &server.cold, &bare.cold]),
        ("first token, 1,024 tokens cached", [&island.warm, &server.warm, &bare.warm]),
        ("first token, 16 conversations in turn", [&island.back, &server.back, &bare.back]),
        ("p99 token gap beside a 4,096-token prompt", [&island.gap, &server.gap, &bare.gap]),
        ("first token of that prompt", [&island.long, &server.long, &bare.long]),
    ] {
        let [ours, theirs, without] = series;
        report.compare(figure, ("ms", Better::Lower), ours, "llama-server", theirs);
        report.headline();
        report.compare(figure, ("ms", Better::Lower), ours, "llama-server --cache-ram 0", without);
    }
    report.note(format!("cached / uncached, Island: {}", Spread::of_ratios(&island.warm, &island.cold)));
    report
        .note(format!("cached / uncached, llama-server: {}", Spread::of_ratios(&server.warm, &server.cold)));
    Ok(report)
}

/// Milliseconds to the first token of a reply.
async fn first(target: &Target, about: &str, question: &str) -> Result<f64> {
    Ok(target.ask_messages(messages(about, question), SHORT).await?.first_ms)
}

fn messages(about: &str, question: &str) -> Value {
    json!([{ "role": "system", "content": about }, { "role": "user", "content": question }])
}

/// A text of about this number of tokens, with a unique beginning.
fn text(name: &str, tokens: usize) -> String {
    const WORDS: [&str; 8] = [" the", " sea", " and", " wind", " way", " home", " is", " long"];
    // The synthetic vocabulary takes three to four tokens for one of them.
    let words = WORDS.iter().cycle().take(tokens * 2 / 7).copied();
    [name].into_iter().chain(words).collect()
}
