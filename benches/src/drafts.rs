//! Decode rate of one stream with tokens that are guessed from the text, against the same model without guesses, in turn.
//!
//! The first reply repeats its prompt, as an edit or a summary does in parts: a schema leaves nothing else. The second is free. The weights of the model
//! are random, so that its free text hardly repeats anything on purpose; where it does, both sides write the same tokens.

use std::path::Path;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::{
    load::{Target, decode_rate},
    report::{Better, Report},
    systems::{Network, Room},
};

/// One stream at a time: beside others nothing is guessed.
const ROOM: Room = Room { slots: 1, context: 2048, threads: 0 };
/// Tokens of a free reply.
const FREE: u64 = 96;

/// One side's figures, round by round.
#[derive(Debug)]
struct Side {
    target: Target,
    repeated: Vec<f64>,
    free: Vec<f64>,
}

impl Side {
    fn new(network: &Network, cargo: &str) -> Result<Self> {
        Ok(Self { target: network.target(cargo)?.unpooled()?, repeated: Vec::new(), free: Vec::new() })
    }

    /// Returns the numbers of tokens of both replies.
    async fn round(&mut self, round: usize) -> Result<(u64, u64)> {
        let text = text(round);
        let format =
            json!({ "type": "json_schema", "json_schema": { "name": "copy", "schema": { "const": text } } });
        let repeated =
            self.target.ask_in_format(prompt(&format!("Repeat: {text}")), 1024, Some(format)).await?;
        let free = self.target.ask(&format!("{round}: describe the way home."), FREE).await?;
        self.repeated.push(decode_rate(&repeated));
        self.free.push(decode_rate(&free));
        Ok((repeated.tokens, free.tokens))
    }
}

fn prompt(text: &str) -> Value {
    json!([{ "role": "user", "content": text }])
}

/// A text of another beginning in every round.
fn text(round: usize) -> String {
    format!(
        "{round} boats leave the harbor before the wind turns, and come back when the lamps along the quay are lit."
    )
}

pub(crate) async fn run(model: &Path, rounds: usize) -> Result<Report> {
    let network = Network::start_with_model(model, ROOM).await?;
    let (mut drafted, mut plain) = (Side::new(&network, "bench-model")?, Side::new(&network, "bench-plain")?);
    for round in 0..rounds {
        let (ours, theirs) = (drafted.round(round).await?, plain.round(round).await?);
        ensure!(ours == theirs, "the replies differ in length: {ours:?} and {theirs:?}");
    }
    for side in [&mut drafted, &mut plain] {
        side.repeated.remove(0);
        side.free.remove(0);
    }
    let setup = format!("one stream, {} rounds", rounds - 1);
    let mut report = Report::new("Guessed tokens", setup);
    let unit = ("tokens/s", Better::Higher);
    report.compare(
        "reply that repeats its prompt",
        unit,
        &drafted.repeated,
        "without guesses",
        &plain.repeated,
    );
    report.compare("free reply", unit, &drafted.free, "without guesses", &plain.free);
    Ok(report)
}
