//! Cargos as processes: what a panic looks like from outside.

use std::{
    io::Write,
    process::{Command, Stdio},
};

/// Runs the example program with `input`; its exit code and what it wrote.
fn repeat(input: &str) -> (i32, String) {
    let path = std::env::current_exe().expect("this program");
    let program =
        path.parent().and_then(|deps| deps.parent()).expect("the target directory").join("examples/repeat");
    let mut child = Command::new(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the example, which cargo builds for tests");
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("a reader");
    let output = child.wait_with_output().expect("its output");
    (output.status.code().expect("an exit code"), String::from_utf8(output.stdout).expect("UTF-8"))
}

#[test]
fn a_cargo_that_works_exits_with_zero() {
    let (code, lines) = repeat(r#"{"text": "ha", "times": 2}"#);
    assert_eq!(code, 0);
    let end = r#"{"type":"result","output":{"text":"haha"}}
{"type":"done","usage":{}}
"#;
    assert!(lines.ends_with(end), "{lines}");
}

#[test]
fn an_error_exits_with_one() {
    let (code, lines) = repeat(r#"{"text": "ha", "times": 101}"#);
    assert_eq!(code, 1);
    assert_eq!(
        lines,
        "{\"type\":\"error\",\"message\":\"times is at most 100\",\"code\":\"invalid_input\"}\n"
    );
}

#[test]
fn a_panic_is_an_error_line_too() {
    let (code, lines) = repeat(r#"{"text": "", "times": 1}"#);
    assert_eq!(code, 101);
    assert_eq!(lines, "{\"type\":\"error\",\"message\":\"the Cargo panicked: nothing to repeat\"}\n");
}
