//! Words for a gap in a text.

use island_runtimes_kit::{
    error::{EngineError, invalid_input, invalid_model},
    job::{Answer, Job, parse_input},
    pipeline::Pipeline,
    text::{
        scores,
        tokens::{self, Tokens},
    },
};
use ndarray::Ix2;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    batch::{Batcher, Row, output},
    task::Loader,
};

#[derive(Debug, Deserialize)]
struct Input {
    text: String,
    #[serde(default = "five")]
    top_k: usize,
}

fn five() -> usize {
    5
}

struct Filler {
    tokens: Tokens,
    graph: Batcher,
    mask: (String, u32),
}

/// Loads a model that fills gaps.
pub fn load(loader: &Loader<'_>) -> Result<Box<dyn Pipeline>, EngineError> {
    let tokens = Tokens::load(&loader.repository)?;
    let named = tokens.special("mask_token").or_else(|| {
        ["[MASK]", "<mask>"].map(str::to_owned).into_iter().find(|mask| tokens.id(mask).is_some())
    });
    let mask = named.and_then(|mask| tokens.id(&mask).map(|id| (mask, id)));
    let mask = mask.ok_or_else(|| invalid_model("tokenizer_config.json: mask_token is missing"))?;
    let graph = loader.text_graph(&tokens)?;
    graph.graph().require("logits")?;
    Ok(Box::new(Filler { tokens, graph, mask }))
}

impl Pipeline for Filler {
    fn answer(&self, input: &Value, job: &Job) -> Result<Answer, EngineError> {
        let Input { text, top_k } = parse_input(input)?;
        tokens::check(&text, "text")?;
        let encoding = self.tokens.encode_whole(&text)?;
        let ids = encoding.get_ids();
        let gaps: Vec<usize> = (0..ids.len()).filter(|&place| ids[place] == self.mask.1).collect();
        let &[gap] = gaps.as_slice() else {
            return Err(invalid_input(format!("text must have one {}, it has {}", self.mask.0, gaps.len())));
        };
        let results = self.graph.run(vec![Row::of(&encoding)], job)?;
        let logits =
            output(&results[0], &["logits"]).ok_or_else(|| invalid_model("the graph gives no logits"))?;
        let logits =
            logits.view().into_dimensionality::<Ix2>().ok().filter(|logits| logits.nrows() == ids.len());
        let logits =
            logits.ok_or_else(|| invalid_model("the graph's logits are not one row for each token"))?;
        let probabilities = scores::softmax(&logits.row(gap).to_vec());
        let mut order: Vec<usize> = (0..probabilities.len()).collect();
        order.sort_by(|&a, &b| probabilities[b].total_cmp(&probabilities[a]));
        order.truncate(top_k.clamp(1, 1000));
        let mut candidates = Vec::with_capacity(order.len());
        for token in order {
            let mut filled = ids.to_vec();
            filled[gap] = token as u32;
            candidates.push(json!({
                "token": self.tokens.decode(&[token as u32], false)?,
                "score": probabilities[token],
                "text": self.tokens.decode(&filled, true)?,
            }));
        }
        Ok(Answer::of(json!({ "candidates": candidates }), ids.len() as u64))
    }

    fn example(&self) -> Option<Value> {
        Some(json!({ "text": format!("The ship lies in the {}.", self.mask.0) }))
    }

    fn graphs(&self) -> Vec<String> {
        vec![self.graph.graph().name().to_owned()]
    }
}
