//! Turns of conversations over several Islands that have the model loaded: chosen with the conversation's last Island in mind, against chosen without.
//!
//! Both sides send the same tokens. On the side without, the first message has another `name` in every turn: the chat template does not contain it, but the
//! coordinator takes the conversation for a new one.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Value, json};

use crate::{
    load::Target,
    report::{Better, Report},
    stats::median,
    systems::{Network, Room},
};

/// What to measure.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) model: PathBuf,
    pub(crate) islands: usize,
    pub(crate) rounds: usize,
}

/// Places for jobs on each Island.
const ROOM: Room = Room { slots: 4, context: 4096 };
const CONVERSATIONS: usize = 12;
const TURNS: usize = 10;
/// Tokens, about, of the first message, and of each later one.
const FIRST: usize = 900;
const LATER: usize = 40;
const REPLY: u64 = 4;

/// Medians of the time to the first token of turns 2 to 10.
async fn round(target: &Target, round: usize, is_known: bool, at_once: usize) -> Result<f64> {
    let conversations = stream::iter(0..CONVERSATIONS).map(|number| {
        let name = format!("{is_known} {round} {number}");
        converse(target, name, is_known)
    });
    let times: Vec<Vec<f64>> = conversations.buffer_unordered(at_once).try_collect().await?;
    Ok(median(times.into_iter().flatten().collect()))
}

async fn converse(target: &Target, name: String, is_known: bool) -> Result<Vec<f64>> {
    let mut messages = vec![message("system", &text(&name, FIRST)), message("user", "What is it about?")];
    let mut times = Vec::new();
    for turn in 1..=TURNS {
        let mut sent = messages.clone();
        if !is_known {
            sent[0]["name"] = json!(format!("turn-{turn}"));
        }
        let reply = target.ask_messages(json!(sent), REPLY).await?;
        if turn > 1 {
            times.push(reply.first_ms);
        }
        messages.push(message("assistant", "I see."));
        messages.push(message("user", &text(&format!("turn {turn}"), LATER)));
    }
    Ok(times)
}

fn message(role: &str, content: &str) -> Value {
    json!({ "role": role, "content": content })
}

/// A text of about this number of tokens, with a unique beginning.
fn text(name: &str, tokens: usize) -> String {
    const WORDS: [&str; 8] = [" the", " sea", " and", " wind", " way", " home", " is", " long"];
    // The synthetic vocabulary takes three to four tokens for one of them.
    let words = WORDS.iter().cycle().take(tokens * 2 / 7).copied();
    [name].into_iter().chain(words).collect()
}

pub(crate) async fn run(plan: &Plan) -> Result<Report> {
    let mut network = Network::start_with_model(&plan.model, ROOM).await?;
    network.add_islands(plan.islands - 1, ROOM).await?;
    let target = network.target("bench-model")?.unpooled()?;
    // Every Island loads the model: as many requests as all of them together have places.
    let places = plan.islands * ROOM.slots as usize;
    for _ in 0..3 {
        let ask = |number: usize| {
            let target = target.clone();
            async move { target.ask(&format!("Load the model, {number}."), 64).await }
        };
        stream::iter(0..places).map(ask).buffer_unordered(places).try_collect::<Vec<_>>().await?;
    }
    let warm = network.warm_islands()?;
    ensure!(warm == plan.islands, "{warm} of {} Islands have the model loaded", plan.islands);
    let (mut known, mut unknown) = (Vec::new(), Vec::new());
    for number in 0..plan.rounds {
        known.push(round(&target, number, true, plan.islands).await?);
        unknown.push(round(&target, number, false, plan.islands).await?);
    }
    known.remove(0);
    unknown.remove(0);
    let setup =
        format!("{} Islands, {CONVERSATIONS} conversations, {} rounds", plan.islands, plan.rounds - 1);
    let mut report = Report::new("Conversations over several Islands", setup);
    report.compare(
        "first token of turns 2 to 10",
        ("ms", Better::Lower),
        &known,
        "chosen without the conversation",
        &unknown,
    );
    report.headline();
    Ok(report)
}
