use serde::Deserialize;
use serde_json::{Value, json};

use super::*;
use crate::{Image, Usage};

#[derive(Deserialize)]
struct Input {
    text: String,
}

/// What a Cargo writes for an input, and whether it ended well.
fn written<R: Serialize>(
    input: &str,
    cargo: impl FnOnce(Input, &mut Output<'_>) -> Result<R, Error>,
) -> (Vec<Value>, bool) {
    let mut bytes = Vec::new();
    let well = run_between(input.as_bytes(), &mut bytes, cargo);
    let text = String::from_utf8(bytes).expect("UTF-8");
    assert!(text.is_empty() || text.ends_with('\n'), "{text:?}");
    (text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect(), well)
}

#[test]
fn every_event_is_a_line_and_the_value_is_the_result() {
    let (lines, well) = written(r#"{"text": "two\nlines"}"#, |input, out| {
        out.status("ready");
        out.token(&input.text);
        out.progress(1, 2);
        out.progress_of("encode", 2, 2);
        out.image(Image { bytes: b"png", format: "png", width: Some(3), height: None });
        out.usage(Usage { completion_tokens: Some(2), ..Usage::default() });
        Ok(json!({ "length": input.text.len() }))
    });
    assert!(well);
    assert_eq!(
        lines,
        [
            json!({ "type": "status", "message": "ready" }),
            json!({ "type": "token", "content": "two\nlines" }),
            json!({ "type": "progress", "step": 1, "total": 2 }),
            json!({ "type": "progress", "step": 2, "total": 2, "phase": "encode" }),
            json!({ "type": "image", "data": "cG5n", "format": "png", "width": 3 }),
            json!({ "type": "result", "output": { "length": 9 } }),
            json!({ "type": "done", "usage": { "completion_tokens": 2 } }),
        ]
    );
}

#[test]
fn a_cargo_that_only_streams_has_no_result() {
    let (lines, well) = written(r#"{"text": "a"}"#, |input, out| {
        out.token(&input.text);
        Ok(())
    });
    assert!(well);
    assert_eq!(lines, [json!({ "type": "token", "content": "a" }), json!({ "type": "done", "usage": {} })]);
}

#[test]
fn input_that_does_not_fit_is_the_inputs_fault() {
    for input in ["", "{}", r#"{"text": 1}"#, "\u{fffd}", r#"{"text": "a"} more"#] {
        let (lines, well) = written(input, |_, _| -> Result<(), Error> { panic!("never called") });
        assert!(!well);
        assert_eq!(lines.len(), 1, "{input:?}");
        assert_eq!(lines[0]["type"], "error");
        assert_eq!(lines[0]["code"], "invalid_input");
        assert!(lines[0]["message"].as_str().expect("a text").starts_with("input: "), "{}", lines[0]);
    }
}

#[test]
fn errors_say_whose_fault_they_are() {
    let (lines, well) = written(r#"{"text": "x"}"#, |input, _| Ok(input.text.parse::<u8>()?));
    assert!(!well);
    assert_eq!(lines, [json!({ "type": "error", "message": "invalid digit found in string" })]);
    let (lines, _) = written(r#"{"text": "x"}"#, |input, _| input.text.parse::<u8>().or_invalid("text"));
    assert_eq!(
        lines,
        [
            json!({ "type": "error", "message": "text: invalid digit found in string", "code": "invalid_input" })
        ]
    );
}

#[test]
fn a_reader_that_has_gone_is_noticed() {
    struct Gone;
    impl Write for Gone {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let well = run_between(r#"{"text": ""}"#.as_bytes(), Gone, |_: Input, out| {
        assert!(!out.is_closed());
        out.token("a");
        assert!(out.is_closed());
        Ok(1)
    });
    assert!(!well);
}
