//! Committed help of every command.

use std::fmt::Write as _;

use crate::program::alone;

/// Commands that a help lists, but for `help` itself.
fn subcommands(help: &str) -> Vec<String> {
    let listed =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    // Continued descriptions are indented further.
    let names = listed.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help");
    names.map(str::to_owned).collect()
}

#[test]
fn help_of_every_command() {
    let (mut all, mut waiting) = (String::new(), vec![Vec::<String>::new()]);
    let mut commands = 0;
    while let Some(command) = waiting.pop() {
        let mut arguments: Vec<&str> = command.iter().map(String::as_str).collect();
        arguments.push("--help");
        let ran = alone(&arguments);
        assert_eq!(ran.code, Some(0), "{arguments:?}");
        let _ = writeln!(all, "$ island {}\n{}", arguments.join(" "), ran.out);
        commands += 1;
        let inner = subcommands(&ran.out).into_iter().rev();
        waiting.extend(inner.map(|name| [command.clone(), vec![name]].concat()));
    }
    assert!(commands > 30, "only {commands} commands were found");
    insta::assert_snapshot!(all);
}

#[test]
fn short_help_fits_a_screen() {
    let ran = alone(&["-h"]);
    assert!(ran.out.lines().count() < 40, "{}", ran.out);
    insta::assert_snapshot!(ran.out);
}
