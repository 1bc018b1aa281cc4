//! Running tools.

use std::{
    io::{BufRead, BufReader, Read, Write},
    process::{Child, Command, Output, Stdio},
    thread,
};

use island_cargo::Error;

use crate::scratch::Scratch;

/// Bytes of a tool's complaint that the consumer is shown.
const COMPLAINT: usize = 600;

/// A tool in the scratch folder, with an environment that reveals nothing about this machine.
pub(crate) fn tool(program: &str, scratch: &Scratch) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", "/usr/bin:/bin").env("LANG", "C.UTF-8");
    command.env("HOME", scratch.path()).env("TMPDIR", scratch.path()).current_dir(scratch.path());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs a tool to its end; what it wrote to standard output.
pub(crate) fn output(command: Command) -> Result<Vec<u8>, Error> {
    Ok(both(command)?.stdout)
}

/// Runs a tool to its end; what it wrote to standard output and standard error.
pub(crate) fn both(mut command: Command) -> Result<Output, Error> {
    let output = spawn(&mut command)?.wait_with_output()?;
    judge(&command, output)
}

/// Like [`output`], for a tool that reads `input`.
pub(crate) fn filter(mut command: Command, input: Vec<u8>) -> Result<Vec<u8>, Error> {
    let mut child = spawn(command.stdin(Stdio::piped()))?;
    let mut stdin = child.stdin.take();
    let output = thread::scope(|scope| {
        // A task of its own, because a tool may write before it has read everything. One that stops reading early reports it by its exit code.
        scope.spawn(move || stdin.take().map(|mut stdin| stdin.write_all(&input)));
        child.wait_with_output()
    })?;
    Ok(judge(&command, output)?.stdout)
}

/// Runs a tool to its end, and gives each line of standard output to `see` as it comes.
pub(crate) fn lines(mut command: Command, mut see: impl FnMut(&str)) -> Result<(), Error> {
    let mut child = spawn(&mut command)?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let complaint = thread::scope(|scope| {
        let complaint = scope.spawn(move || {
            let mut text = Vec::new();
            // What is missing of it is a worse message, nothing more.
            let _ = stderr.map(|mut stderr| stderr.read_to_end(&mut text));
            text
        });
        for line in stdout.into_iter().flat_map(|stdout| BufReader::new(stdout).lines()).map_while(Result::ok)
        {
            see(&line);
        }
        complaint.join().unwrap_or_default()
    });
    let output = Output { status: child.wait()?, stdout: Vec::new(), stderr: complaint };
    judge(&command, output).map(|_| ())
}

fn spawn(command: &mut Command) -> Result<Child, Error> {
    let program = command.get_program().to_string_lossy().into_owned();
    command.spawn().map_err(|error| Error::failed(format!("starting {program}: {error}")))
}

/// A tool that exits with an error has read the input; one that was killed has not.
fn judge(command: &Command, output: Output) -> Result<Output, Error> {
    if output.status.success() {
        return Ok(output);
    }
    let program = command.get_program().to_string_lossy();
    let complaint = String::from_utf8_lossy(&output.stderr);
    eprintln!("{program}: {}\n{complaint}", output.status);
    let words = tail(complaint.trim());
    Err(match output.status.code() {
        Some(code) if words.is_empty() => Error::invalid(format!("{program} ended with exit code {code}")),
        Some(_) => Error::invalid(format!("{program}: {words}")),
        None => Error::failed(format!("{program} was stopped: {}", output.status)),
    })
}

/// The end of a text, where tools print their error.
fn tail(text: &str) -> &str {
    let mut start = text.len().saturating_sub(COMPLAINT);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_that_says_no_blames_the_input_and_one_that_was_killed_does_not() {
        let scratch = Scratch::new().expect("success");
        let run = |script: &str| {
            let mut command = tool("sh", &scratch);
            command.args(["-c", script]);
            output(command)
        };
        let folder = format!("{0}\n{0}\n", scratch.path().display());
        assert_eq!(run("echo $HOME; pwd").expect("success"), folder.as_bytes());
        let no = run("echo no such page >&2; exit 3").expect_err("a failure");
        assert!(no.is_invalid());
        assert_eq!(no.message(), "sh: no such page");
        let killed = run("kill -9 $$").expect_err("a failure");
        assert!(!killed.is_invalid());
        assert!(!output(tool("no-such-tool", &scratch)).expect_err("a failure").is_invalid());

        let mut command = tool("cat", &scratch);
        command.arg("-");
        let much = vec![b'a'; 1 << 20];
        assert_eq!(filter(command, much.clone()).expect("success"), much);
    }

    #[test]
    fn the_end_of_a_complaint_is_whole_characters() {
        assert_eq!(tail("short"), "short");
        let long = "ü".repeat(1000);
        assert!(tail(&long).len() <= COMPLAINT && tail(&long).chars().all(|c| c == 'ü'));
    }
}
