//! Programs of tests without the usual harness, because they start themselves again as something else, or have one setting for all tests.

use std::{env, process::ExitCode};

/// Returns the tests that the command line names, all if it names none; `None` if it only lists them.
#[expect(clippy::print_stdout, reason = "what a test runner expects of a test program")]
pub fn select<T>(tests: impl IntoIterator<Item = (&'static str, T)>) -> Option<Vec<(&'static str, T)>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let has = |option: &str| arguments.iter().any(|argument| argument == option);
    if has("--list") {
        for (name, _) in tests.into_iter().filter(|_| !has("--ignored")) {
            println!("{name}: test");
        }
        return None;
    }
    let parts: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let is_named = |name: &str| {
        parts.iter().any(|part| if has("--exact") { name == *part } else { name.contains(part.as_str()) })
    };
    Some(tests.into_iter().filter(|(name, _)| parts.is_empty() || is_named(name)).collect())
}

/// Runs the tests that the command line names, one after another. The first that fails ends the program.
#[expect(clippy::print_stdout, reason = "what a test runner expects of a test program")]
pub fn run(tests: impl IntoIterator<Item = (&'static str, fn())>) -> ExitCode {
    let Some(tests) = select(tests) else { return ExitCode::SUCCESS };
    for (name, test) in &tests {
        test();
        println!("test {name} ... ok");
    }
    end(tests.len(), 0)
}

/// Prints the line that ends the report of a test program, which `scripts/test.sh` adds up.
#[expect(clippy::print_stdout, reason = "what a test runner expects of a test program")]
pub fn end(passed: usize, failed: usize) -> ExitCode {
    let verdict = if failed == 0 { "ok" } else { "FAILED" };
    println!(
        "test result: {verdict}. {passed} passed; {failed} failed; 0 ignored; 0 measured; 0 filtered out"
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
