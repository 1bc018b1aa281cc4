use island_protocol::{event::AttemptEvent, job::Fault};
use proptest::prelude::*;
use serde_json::json;

use super::*;

/// The result of a program's output that arrives in pieces of `size` bytes.
fn read(output: &[u8], size: usize, exit: Exit) -> (Vec<AttemptEvent>, JobLog, Outcome) {
    let (events, mut sent) = EventSink::channel();
    let log = JobLog::default();
    let mut lines = Lines::new(events, log.clone(), 1 << 20);
    let taken = output.chunks(size.max(1)).try_for_each(|piece| lines.take(piece));
    let outcome = lines.finish(taken.map_or_else(Exit::Failed, |()| exit));
    let mut all = Vec::new();
    while let Ok(event) = sent.try_recv() {
        all.push(event);
    }
    (all, log, outcome)
}

fn failure(outcome: Outcome) -> Failure {
    let Outcome::Failed { failure, .. } = outcome else { panic!("it must fail: {outcome:?}") };
    failure
}

const TALK: &str = r#"{"type":"status","message":"ready"}

{"type":"progress","step":1,"total":2,"phase":"encode"}
{"type":"token","content":"Grüße "}
{"type":"token","content":"dir","count":2}
{"type":"image","data":"aGk=","format":"png","width":1,"height":1}
{"type":"result","output":{"a":[1,2]}}
{"type":"done","usage":{"prompt_tokens":7}}"#;

#[test]
fn any_count_of_tokens_is_reported() {
    let output = format!(
        "{{\"type\":\"token\",\"content\":\"a\",\"count\":2}}\n{{\"type\":\"done\",\"usage\":{{\"prompt_tokens\":{}}}}}",
        u64::MAX
    );
    let (_, _, outcome) = read(output.as_bytes(), usize::MAX, Exit::Code(0));
    let Outcome::Completed { usage, .. } = outcome else { panic!("it completed: {outcome:?}") };
    assert_eq!((usage.prompt_tokens, usage.total_tokens), (u64::MAX, u64::MAX));
}

#[test]
fn every_type_of_line_is_converted() {
    let (events, log, outcome) = read(TALK.as_bytes(), usize::MAX, Exit::Code(0));
    assert_eq!(events.len(), 5, "{events:?}");
    assert_eq!(events[1], AttemptEvent::Progress { step: 1, total: 2, phase: Some("encode".into()) });
    assert_eq!(events[3], AttemptEvent::token("dir".into(), 2));
    let usage = Usage::tokens(7, 3);
    let output = Some(json!({"a": [1, 2]}));
    assert_eq!(outcome, Outcome::Completed { usage, output, finish_reason: None, stop_text: None });
    assert!(log.is_empty(), "{}", log.text());
}

proptest! {
    #[test]
    fn the_size_of_pieces_does_not_matter(size in 1..200_usize) {
        let (events, _, outcome) = read(TALK.as_bytes(), size, Exit::Code(0));
        let (expected, _, expected_outcome) = read(TALK.as_bytes(), usize::MAX, Exit::Code(0));
        prop_assert_eq!(events, expected);
        prop_assert_eq!(outcome, expected_outcome);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2000), size in 1..100_usize) {
        let (_, _, outcome) = read(&bytes, size, Exit::Code(0));
        if let Outcome::Failed { failure, .. } = outcome {
            prop_assert_eq!(failure.fault, Fault::Job);
        }
    }
}

#[test]
fn the_type_may_be_anywhere_in_a_line() {
    for line in [
        r#"{"type":"result","output":{"type":"error"}}"#,
        r#" { "type" : "result" , "output" : 1 } "#,
        r#"{"output":{"type":"error"},"type":"result"}"#,
        r#"{"ty\u0070e":"result","output":1}"#,
        r#"{"type":"res\u0075lt","output":1}"#,
    ] {
        let (_, log, outcome) = read(line.as_bytes(), 5, Exit::Code(0));
        assert!(matches!(outcome, Outcome::Completed { output: Some(_), .. }), "{line}: {}", log.text());
    }
    for line in [r#"{"type":"result,"output":1}"#, r#"{"type":"result","output":1"#, r#"{"type":"done""#] {
        assert_eq!(
            failure(read(line.as_bytes(), 5, Exit::Code(0)).2).code,
            FailureCode::InvalidOutput,
            "{line}"
        );
    }
}

#[test]
fn invalid_lines_go_to_the_log_within_a_limit() {
    let mut output = b"loading...\n\xff\xfe\n{\"type\":\"dance\"}\n[1]\n{\"type\":1}\n".repeat(100);
    output.extend_from_slice(br#"{"type":"result","output":1}"#);
    let (events, log, outcome) = read(&output, 64, Exit::Code(0));
    assert!(events.is_empty());
    assert!(matches!(outcome, Outcome::Completed { output: Some(_), .. }));
    let text = log.text();
    assert!(text.contains("loading...") && text.contains("dance"), "{text}");
    assert_eq!(text.lines().count(), SHOWN_STRAYS as usize);
}

#[test]
fn the_engines_reason_overrides_the_programs_and_its_exit_code() {
    let error = br#"{"type":"error","message":"no such column","code":"invalid_input"}"#;
    let failed = failure(read(error, 9, Exit::Code(0)).2);
    assert_eq!((failed.code, failed.message.as_str()), (FailureCode::InvalidInput, "no such column"));
    let failed = failure(read(br#"{"type":"error","message":"x"}"#, 9, Exit::Code(3)).2);
    assert_eq!((failed.code, failed.message.as_str()), (FailureCode::CargoFailed, "x"));
    let result = br#"{"type":"result","output":1}"#;
    assert_eq!(failure(read(result, 9, Exit::Code(3)).2).code, FailureCode::CargoFailed);
    assert!(failure(read(result, 9, Exit::Signal(11)).2).message.contains("signal 11"));
    let trap = Failure::of_job(FailureCode::OutOfMemory, "no memory");
    assert_eq!(failure(read(error, 9, Exit::Failed(trap.clone())).2), trap);
}

#[test]
fn a_program_needs_exactly_one_result() {
    assert_eq!(failure(read(b"", 1, Exit::Code(0)).2).code, FailureCode::InvalidOutput);
    let twice = b"{\"type\":\"result\",\"output\":1}\n{\"type\":\"result\",\"output\":2}\n";
    assert_eq!(failure(read(twice, 7, Exit::Code(0)).2).code, FailureCode::InvalidOutput);
    assert!(matches!(
        read(br#"{"type":"done"}"#, 7, Exit::Code(0)).2,
        Outcome::Completed { output: None, .. }
    ));
    let late = b"{\"type\":\"done\"}\n{\"type\":\"token\",\"content\":\"x\"}";
    let (events, log, outcome) = read(late, 7, Exit::Code(0));
    assert!(events.is_empty() && matches!(outcome, Outcome::Completed { .. }));
    assert!(log.text().contains("it follows the line `done` or `error`"));
}

#[test]
fn too_much_output_and_long_lines_are_limited() {
    let giant = vec![b'x'; 2 << 20];
    assert_eq!(failure(read(&giant, 64 << 10, Exit::Code(0)).2).code, FailureCode::OutputLimit);
    let flood = b"{\"type\":\"token\",\"content\":\"x\"}\n".repeat(100_000);
    let failed = failure(read(&flood, 64 << 10, Exit::Code(0)).2);
    assert_eq!((failed.code, failed.fault), (FailureCode::OutputLimit, Fault::Job));
}

/// The failure of a program that writes a token and then `line`.
fn failure_of(line: &[u8]) -> Failure {
    let output = [b"{\"type\":\"token\",\"content\":\"a\"}\n\n", line, b"\nlast"].concat();
    failure(read(&output, 16, Exit::Code(0)).2)
}

#[test]
fn a_known_line_that_is_invalid_fails_the_job() {
    let deep = |levels: usize| {
        format!(r#"{{"type":"result","output":{}1{}}}"#, "[".repeat(levels), "]".repeat(levels)).into_bytes()
    };
    for (line, reason) in [
        (br#"{"type":"result","output":{"x":NaN}}"#.as_slice(), "result: NaN is not JSON"),
        (br#"{"output": -Infinity, "type" : "result"}"#, "result: Infinity is not JSON"),
        (br#"{"output":"\ud800","type":"result"}"#, "result: unexpected end of hex escape at byte 18"),
        (br#"{"type":"token","content":"\udc80"}"#, "token: lone leading surrogate in hex escape at byte 33"),
        (b"{\"type\":\"token\",\"content\":\"gr\xe4\"}", "token: byte 30 is not UTF-8"),
        (
            br#"{"type":"token","content":"x","count":-1}"#,
            "token: invalid value: integer `-1`, expected u32 at byte 40",
        ),
        (br#"{"type":"token"}"#, "token: missing field `content` at byte 16"),
        (b"\xef\xbb\xbf{\"type\":\"result\",\"output\":1}", "result: a byte order mark is before the object"),
        (&deep(200), "result: recursion limit exceeded at byte 153"),
        (&deep(MAX_DEPTH + 1), "result: its output is nested more than 100 levels deep"),
        (br#"{"type":"result","output":1e400}"#, "result: number out of range at byte 31"),
        (br#"{"type":"error"}"#, "error: missing field `message` at byte 16"),
        (
            br#"{"type":"done","usage":{"prompt_tokens":-1}}"#,
            "done: invalid value: integer `-1`, expected u64 at byte 42",
        ),
        (br#"{"type":"progress","step":1}"#, "progress: missing field `total` at byte 28"),
        (br#"{"type":"status","message":null}"#, "status: invalid type: null, expected a string at byte 31"),
        (br#"{"type":"image","data":"aGk="}"#, "image: missing field `format` at byte 30"),
        (br#"{"type":"result","output":1}{"type":"done"}"#, "result: trailing characters at byte 29"),
        (br#"{"type":"result","output":1"#, "result: EOF while parsing an object at byte 27"),
        (br"{'type': 'result', 'output': 1}", "result: key must be a string at byte 2"),
        (br#"{"ty\u0070e":"res\u0075lt","output":NaN}"#, "result: NaN is not JSON"),
    ] {
        let failed = failure_of(line);
        assert_eq!((failed.code, failed.fault), (FailureCode::InvalidOutput, Fault::Job), "{failed:?}");
        assert_eq!(failed.message, format!("line 3, {reason}"));
    }
}

#[test]
fn half_a_line_of_a_failed_program_is_no_cause() {
    let half = br#"{"type":"token","cont"#;
    for exit in [Exit::Code(3), Exit::Signal(9)] {
        assert_eq!(failure(read(half, 9, exit).2).code, FailureCode::CargoFailed);
    }
    let failed = failure(read(half, 9, Exit::Code(0)).2);
    assert_eq!(failed.message, "line 1, token: EOF while parsing a string at byte 21");
    let ended = b"{\"type\":\"result\",\"output\":null}\n{\"type\":\"done\"}\n{\"type\":\"token\"}";
    let (_, _, outcome) = read(ended, 9, Exit::Code(0));
    assert!(matches!(outcome, Outcome::Completed { output: Some(Value::Null), .. }), "{outcome:?}");
}

#[test]
fn a_line_without_a_known_type_stays_noise() {
    for line in [
        r#"{"level":"info","fields":{"type":"result"},"x":NaN}"#,
        r#"{"kind":"type","value":"result"}"#,
        r#"{"type":"metric","value":NaN}"#,
        r#"{"type":["token"]}"#,
        r#"["type":"token"]"#,
        r#"sent {"type":"token"}"#,
        r#"{"type"#,
        r#"{"type":"tok\"#,
        "{\"type\":\"\\ud800\"}",
    ] {
        let output = format!("{{\"type\":\"token\",\"content\":\"a\"}}\n{line}");
        let (_, log, outcome) = read(output.as_bytes(), 7, Exit::Code(0));
        assert!(matches!(outcome, Outcome::Completed { .. }), "{line}: {outcome:?}");
        assert!(log.text().contains(line), "{}", log.text());
    }
}
