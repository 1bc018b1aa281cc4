//! A complete Cargo: writes a text several times.

use island_cargo::{Error, Output, run};
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    text: String,
    times: u32,
}

#[derive(Serialize)]
struct Answer {
    text: String,
}

fn repeat(input: Input, out: &mut Output<'_>) -> Result<Answer, Error> {
    if input.times > 100 {
        return Err(Error::invalid("times is at most 100"));
    }
    assert!(!input.text.is_empty(), "nothing to repeat");
    let mut text = String::new();
    for time in 0..input.times {
        text.push_str(&input.text);
        out.token(&input.text); // seen by the consumer at once
        out.progress(u64::from(time) + 1, u64::from(input.times));
    }
    Ok(Answer { text })
}

fn main() -> std::process::ExitCode {
    run(repeat)
}
