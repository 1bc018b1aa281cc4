//! Committed help of every command.

use std::fmt::Write as _;

use crate::program::alone;

#[test]
fn help_of_every_command() {
    let commands: &[&[&str]] = &[
        &[],
        &["dev"],
        &["auth"],
        &["auth", "login"],
        &["auth", "status"],
        &["auth", "logout"],
        &["account"],
        &["account", "ledger"],
        &["chat"],
        &["jobs"],
        &["jobs", "submit"],
        &["jobs", "list"],
        &["jobs", "get"],
        &["jobs", "stream"],
        &["jobs", "cancel"],
        &["workloads"],
        &["workloads", "list"],
        &["workloads", "get"],
        &["hosts"],
        &["hosts", "list"],
        &["hosts", "get"],
        &["api-keys"],
        &["api-keys", "list"],
        &["api-keys", "create"],
        &["api-keys", "delete"],
        &["market"],
        &["market", "rates"],
        &["market", "history"],
        &["sail"],
        &["sail", "subscribe"],
        &["completion"],
        &["man"],
    ];
    let mut all = String::new();
    for command in commands {
        let mut arguments = command.to_vec();
        arguments.push("--help");
        let ran = alone(&arguments);
        assert_eq!(ran.code, Some(0), "{arguments:?}");
        let _ = writeln!(all, "$ island {}\n{}", arguments.join(" "), ran.out);
    }
    insta::assert_snapshot!(all);
}

#[test]
fn short_help_fits_a_screen() {
    let ran = alone(&["-h"]);
    assert!(ran.out.lines().count() < 40, "{}", ran.out);
    insta::assert_snapshot!(ran.out);
}
