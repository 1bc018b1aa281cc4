//! Running processes: a worker distinguishes what a dead one left behind from what a live one uses.

use std::{collections::HashSet, fs};

/// This process, identified uniquely even if its id is reused.
pub fn own() -> String {
    mark(&boot(), "self").unwrap_or_else(|| format!("{}-{}", boot(), std::process::id()))
}

/// All running processes. Must be called before the sandbox is applied.
pub fn alive() -> HashSet<String> {
    let boot = boot();
    let entries = fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let processes = names.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
    processes.filter_map(|process| mark(&boot, &process)).collect()
}

fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

fn mark(boot: &str, process: &str) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (pid, started) = parse(&stat)?;
    Some(format!("{boot}-{pid}-{started}"))
}

/// Id and start of a process, in ticks since boot; the name between them may contain anything.
fn parse(stat: &str) -> Option<(&str, &str)> {
    let (pid, rest) = stat.split_once(' ')?;
    let (_, rest) = rest.rsplit_once(')')?;
    Some((pid, rest.split_whitespace().nth(19)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_is_skipped() {
        let stat = "42 (a) 1 2 (b)) S 1 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 777 0 0";
        assert_eq!(parse(stat), Some(("42", "777")));
        assert_eq!(parse("42 (x"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_is_alive() {
        assert!(alive().contains(&own()));
    }
}
