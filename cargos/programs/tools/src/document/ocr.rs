//! Reads the letters on a picture, by Tesseract.

use island_cargo::{Blob, Error, OrInvalid, Output};
use serde::{Deserialize, Serialize};

use crate::{process, scratch::Scratch};

/// The languages whose data is in the image.
const LANGUAGES: [&str; 1] = ["eng"];

#[derive(Deserialize)]
pub(crate) struct Input {
    image: Blob,
    #[serde(default = "english")]
    languages: Vec<String>,
    /// Also gives each line's place.
    #[serde(default)]
    detail: bool,
}

#[derive(Serialize)]
pub(crate) struct Answer {
    text: String,
    confidence: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    blocks: Option<Vec<Block>>,
    languages: Vec<String>,
}

/// A line of text.
#[derive(Serialize, Debug, PartialEq)]
struct Block {
    text: String,
    /// From 0 to 1.
    confidence: f64,
    /// Corners from the top left, clockwise.
    #[serde(rename = "box")]
    corners: [[u32; 2]; 4],
}

/// A word, as a row of Tesseract's table.
struct Word<'a> {
    /// Page, block, paragraph and line.
    line: [u32; 4],
    left: u32,
    top: u32,
    right: u32,
    bottom: u32,
    confidence: f64,
    text: &'a str,
}

fn english() -> Vec<String> {
    vec!["eng".to_owned()]
}

/// A row: level, page, block, paragraph, line, word, left, top, width, height, confidence, text. Level 5 is a word.
fn word(row: &str) -> Option<Word<'_>> {
    let cells: Vec<&str> = row.split('\t').collect();
    let number = |at: usize| cells.get(at).and_then(|cell| cell.parse::<u32>().ok());
    if number(0)? != 5 {
        return None;
    }
    let (left, top) = (number(6)?, number(7)?);
    let text = cells.get(11)?.trim();
    (!text.is_empty()).then_some(Word {
        line: [number(1)?, number(2)?, number(3)?, number(4)?],
        left,
        top,
        right: left + number(8)?,
        bottom: top + number(9)?,
        confidence: cells.get(10)?.parse::<f64>().ok()? / 100.0,
        text,
    })
}

fn block(words: &[Word<'_>]) -> Block {
    let least = |of: fn(&Word<'_>) -> u32| words.iter().map(of).min().unwrap_or(0);
    let most = |of: fn(&Word<'_>) -> u32| words.iter().map(of).max().unwrap_or(0);
    let (left, top) = (least(|word| word.left), least(|word| word.top));
    let (right, bottom) = (most(|word| word.right), most(|word| word.bottom));
    let texts: Vec<&str> = words.iter().map(|word| word.text).collect();
    Block {
        text: texts.join(" "),
        confidence: mean(words),
        corners: [[left, top], [right, top], [right, bottom], [left, bottom]],
    }
}

fn mean(words: &[Word<'_>]) -> f64 {
    let sum: f64 = words.iter().map(|word| word.confidence).sum();
    (sum / words.len().max(1) as f64 * 1000.0).round() / 1000.0
}

pub(crate) fn recognise(input: Input, out: &mut Output<'_>) -> Result<Answer, Error> {
    if let Some(other) = input.languages.iter().find(|name| !LANGUAGES.contains(&name.as_str())) {
        return Err(Error::invalid(format!("language {other:?} is not one of {}", LANGUAGES.join(", "))));
    }
    let scratch = Scratch::new()?;
    scratch.put("in", &input.image.0)?;
    out.status("reading");
    let mut command = process::tool("tesseract", &scratch);
    // One thread: its helpers would only wait for each other on one processor.
    command.env("OMP_THREAD_LIMIT", "1").args(["in", "-", "-l", &input.languages.join("+"), "tsv"]);
    let table = String::from_utf8(process::output(command)?).or_invalid("image")?;
    let words: Vec<Word<'_>> = table.lines().filter_map(word).collect();
    let blocks: Vec<Block> = words.chunk_by(|a, b| a.line == b.line).map(block).collect();
    let lines: Vec<&str> = blocks.iter().map(|block| block.text.as_str()).collect();
    Ok(Answer {
        text: lines.join("\n"),
        confidence: mean(&words),
        blocks: input.detail.then_some(blocks),
        languages: input.languages,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_line_are_one_block() {
        let rows = [
            "level\tpage_num\tblock_num\tpar_num\tline_num\tword_num\tleft\ttop\twidth\theight\tconf\ttext",
            "4\t1\t1\t1\t1\t0\t5\t5\t80\t10\t-1\t",
            "5\t1\t1\t1\t1\t1\t5\t6\t30\t9\t90.5\tHello",
            "5\t1\t1\t1\t1\t2\t40\t5\t45\t10\t80.5\tyou",
        ];
        let words: Vec<Word<'_>> = rows.iter().filter_map(|row| word(row)).collect();
        assert_eq!(words.len(), 2);
        let expected = Block {
            text: "Hello you".to_owned(),
            confidence: 0.855,
            corners: [[5, 5], [85, 5], [85, 15], [5, 15]],
        };
        assert_eq!(block(&words), expected);
    }
}
