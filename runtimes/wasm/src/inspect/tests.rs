use island_protocol::job::Fault;

use super::*;

fn verdict(wat: &str) -> Result<Kind, Failure> {
    inspect(&wat::parse_str(wat).expect("sound text"))
}

fn refusal(wat: &str) -> (FailureCode, String) {
    let failure = verdict(wat).expect_err("it is refused");
    assert_eq!(failure.fault, Fault::Job);
    (failure.code, failure.message)
}

const COMMAND: &str = r#"(module (memory (export "memory") 1) (func (export "_start")))"#;

#[test]
fn commands_of_both_kinds() {
    assert_eq!(verdict(COMMAND), Ok(Kind::Module));
    assert_eq!(verdict("(component)"), Ok(Kind::Component));
}

#[test]
fn what_is_no_program() {
    for bytes in [&b""[..], b"\0asm", b"#!/bin/sh", b"\x7fELF\x02\x01\x01"] {
        assert_eq!(inspect(bytes).expect_err("no program").code, FailureCode::ModelRejected);
    }
    let mut cut = wat::parse_str(COMMAND).expect("sound text");
    cut.truncate(cut.len() - 3);
    let failure = inspect(&cut).expect_err("half a program");
    assert!(failure.message.contains("malformed"), "{}", failure.message);
}

#[test]
fn imports_beyond_wasi_are_named() {
    let (code, message) = refusal(r#"(module (import "env" "system" (func)))"#);
    assert_eq!(code, FailureCode::ModelRejected);
    assert!(message.contains("`env.system`"), "{message}");
    let (_, message) = refusal(r#"(component (import "evil:host/door" (instance)))"#);
    assert!(message.contains("`evil:host/door`"), "{message}");
}

#[test]
fn memories_that_are_not_offered() {
    for (memory, why) in [("(memory 1 2 shared)", "threads"), ("(memory i64 1)", "64 bits")] {
        let (code, message) = refusal(&format!("(module {memory})"));
        assert_eq!(code, FailureCode::ModelRejected);
        assert!(message.contains(why), "{message}");
    }
}

#[test]
fn what_is_no_command() {
    assert!(refusal(r#"(module (memory (export "memory") 1))"#).1.contains("_start"));
    assert!(refusal(r#"(module (func (export "_start")))"#).1.contains("memory"));
}

#[test]
fn too_many_functions_and_too_many_bytes() {
    let functions = "(func)".repeat(MAX_FUNCTIONS as usize + 1);
    assert_eq!(refusal(&format!("(module {functions})")).0, FailureCode::CompileLimit);
    assert_eq!(check_size(MAX_BYTES + 1).expect_err("too large").code, FailureCode::CompileLimit);
    let half = "(func)".repeat(MAX_FUNCTIONS as usize / 2 + 1);
    let split = format!("(component (core module {half}) (core module {half}))");
    assert_eq!(refusal(&split).0, FailureCode::CompileLimit);
}
