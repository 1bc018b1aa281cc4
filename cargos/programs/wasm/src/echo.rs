//! Returns its input word by word: the smallest Cargo that streams.

use std::{process::ExitCode, thread::sleep, time::Duration};

use island_cargo::{Error, Output, run};
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
struct Input {
    text: String,
    #[serde(default = "once")]
    repeat: u32,
    /// Pause after each word.
    #[serde(default)]
    delay_ms: u64,
}

#[derive(Serialize)]
struct Echo {
    text: String,
}

fn once() -> u32 {
    1
}

fn echo(input: Input, out: &mut Output<'_>) -> Result<Echo, Error> {
    let mut text = String::new();
    for time in 0..input.repeat {
        if time > 0 {
            out.token("\n");
            text.push('\n');
        }
        for word in input.text.split_inclusive(char::is_whitespace) {
            out.token(word);
            text.push_str(word);
            if input.delay_ms > 0 && !out.is_closed() {
                sleep(Duration::from_millis(input.delay_ms));
            }
        }
    }
    Ok(Echo { text })
}

fn main() -> ExitCode {
    run(echo)
}
