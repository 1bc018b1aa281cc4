//! Turns of conversations over several Islands that have the model loaded: chosen with the conversation's last Island in mind, against chosen without.
//!
//! Both sides send the same tokens. On the side without, the first message has another `name` in every turn: the chat template does not contain it, but the
//! coordinator takes the conversation for a new one.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use rand::{SeedableRng as _, rngs::StdRng, seq::SliceRandom as _};
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

/// One thread for each Island: they share this machine, and threads that wait for each other in a step take the processor from other workers.
const ROOM: Room = Room { slots: 4, context: 4096, threads: 1 };
/// Two for each of four Islands.
const CONVERSATIONS: usize = 8;
const TURNS: usize = 10;
/// Tokens, about, of the first message, and of each later one.
const FIRST: usize = 900;
const LATER: usize = 40;
const REPLY: u64 = 4;

/// One conversation.
#[derive(Debug)]
struct Conversation {
    messages: Vec<Value>,
    /// Whether the coordinator recognizes it from turn to turn.
    is_known: bool,
}

impl Conversation {
    fn new(name: &str, is_known: bool) -> Self {
        let messages = vec![message("system", &text(name, FIRST)), message("user", "What is it about?")];
        Self { messages, is_known }
    }

    /// Requests the reply of this turn, and adds the next question. Returns the time to its first token in milliseconds.
    async fn turn(&mut self, target: &Target, turn: usize) -> Result<f64> {
        let mut sent = self.messages.clone();
        if !self.is_known {
            sent[0]["name"] = json!(format!("turn-{turn}"));
        }
        let reply = target.ask_messages(json!(sent), REPLY).await?;
        self.messages.push(message("assistant", "I see."));
        self.messages.push(message("user", &text(&format!("turn {turn}"), LATER)));
        Ok(reply.first_ms)
    }
}

/// Times to the first token of turns 2 to 10. Each turn of all conversations comes before the next one, in another order, and `at_once` of
/// them at a time: people read and think between turns, while others use the Islands. With as many at a time as Islands, the one that is free
/// has nothing to do with the conversation that comes next.
async fn round(target: &Target, round: usize, is_known: bool, at_once: usize) -> Result<Vec<f64>> {
    let mut conversations: Vec<Conversation> = (0..CONVERSATIONS)
        .map(|number| Conversation::new(&format!("{is_known} {round} {number}"), is_known))
        .collect();
    let mut random = StdRng::seed_from_u64(round as u64);
    let mut times = Vec::new();
    for turn in 1..=TURNS {
        conversations.shuffle(&mut random);
        let turns = conversations.iter_mut().map(|conversation| conversation.turn(target, turn));
        let firsts: Vec<f64> = stream::iter(turns).buffer_unordered(at_once).try_collect().await?;
        if turn > 1 {
            times.extend(firsts);
        }
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

fn mean(times: Vec<f64>) -> f64 {
    times.iter().sum::<f64>() / times.len() as f64
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
    let at_once = plan.islands;
    let (mut known, mut unknown) = (Vec::new(), Vec::new());
    for number in 0..plan.rounds {
        known.push(round(&target, number, true, at_once).await?);
        unknown.push(round(&target, number, false, at_once).await?);
    }
    known.remove(0);
    unknown.remove(0);
    let setup = format!(
        "{} Islands, {CONVERSATIONS} conversations, {at_once} at a time, {} rounds",
        plan.islands,
        plan.rounds - 1
    );
    let mut report = Report::new("Conversations over several Islands", setup);
    for (name, of) in [
        ("first token of turns 2 to 10, median", median as fn(Vec<f64>) -> f64),
        ("first token of turns 2 to 10, mean", mean),
    ] {
        let of = |rounds: &[Vec<f64>]| rounds.iter().cloned().map(of).collect::<Vec<_>>();
        let other = "chosen without the conversation";
        report.compare(name, ("ms", Better::Lower), &of(&known), other, &of(&unknown));
    }
    Ok(report)
}
