//! Commands that need no NATS server, and what they print where something is missing.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    net::TcpListener,
    path::Path,
    process::{Command, Output, Stdio},
};

fn program(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_island-coordinator"));
    command.current_dir(folder).args(arguments);
    command
}

/// Exit status, standard output and standard error.
fn run(folder: &Path, arguments: &[&str]) -> (bool, String, String) {
    let Output { status, stdout, stderr } = program(folder, arguments).output().expect("run");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (status.success(), text(stdout), text(stderr))
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("readable").map(|entry| entry.expect("readable").file_name());
    entries.map(|name| name.to_string_lossy().into_owned()).collect()
}

/// An address at which nothing listens.
fn closed_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    listener.local_addr().expect("an address").port()
}

#[test]
fn a_command_in_another_folder_creates_no_database() {
    let folder = tempfile::tempdir().expect("a folder");
    for arguments in [
        &["admin", "account", "list"][..],
        &["admin", "audit"],
        &["admin", "key", "create", "--account", "a@example.org", "--name", "a"],
        &["backup", "copy.db"],
    ] {
        let (is_done, _, error) = run(folder.path(), arguments);
        assert!(!is_done && error.contains("island.db"), "{arguments:?}: {error}");
        assert_eq!(names(folder.path()), Vec::<String>::new(), "{arguments:?}");
    }
}

#[test]
fn every_mistake_in_the_settings_is_named_on_one_line_without_the_form_of_a_log() {
    let folder = tempfile::tempdir().expect("a folder");
    for (text, mistakes) in [
        (
            "[htp]\nlisten = 1\n[jobs]\nlease_m = 3\nretries = -1\n",
            &["htp", "jobs.lease_m", "jobs.retries"][..],
        ),
        ("[jobs]\nheartbeat_ms = 1\n[nats]\nreplicas = 2\n", &["jobs.heartbeat_ms", "nats.replicas"][..]),
    ] {
        fs::write(folder.path().join("a.toml"), text).expect("written");
        let (is_done, _, error) = run(folder.path(), &["--config", "a.toml", "config", "check"]);
        assert!(!is_done && error.starts_with("island-coordinator: bad configuration: "), "{error}");
        assert!(mistakes.iter().all(|mistake| error.contains(mistake)), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn accounts_are_listed_in_columns_and_named_by_their_address() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    for more in
        [&["--email", "op@example.org", "--operator"][..], &["--email", "a@example.org", "--credits", "7"]]
    {
        let (is_done, id, error) = run(path, &[&["admin", "account", "create"], more].concat());
        assert!(is_done && id.trim().len() == 36, "{id}: {error}");
    }
    let (_, list, _) = run(path, &["admin", "account", "list"]);
    let lines: Vec<Vec<&str>> = list.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["id", "e-mail", "role", "credits"], "{list}");
    let role = |line: &str| line.find("operator").or(line.find("member")).or(line.find("role"));
    let columns: Vec<_> = list.lines().map(role).collect();
    assert!(columns.iter().all(|column| column.is_some() && *column == columns[0]), "{list}");

    let (is_done, key, error) =
        run(path, &["admin", "key", "create", "--account", "a@example.org", "--name", "laptop"]);
    assert!(is_done && key.trim().len() > 20, "{error}");
    for (account, reason) in
        [("b@example.org", "there is no account of b@example.org"), ("b", "neither the id nor the e-mail")]
    {
        let (is_done, _, error) =
            run(path, &["admin", "key", "create", "--account", account, "--name", "laptop"]);
        assert!(!is_done && error.contains(reason), "{error}");
    }
}

#[test]
fn a_postgresql_server_that_is_away_is_named_with_the_reason() {
    let folder = tempfile::tempdir().expect("a folder");
    let port = closed_port();
    let mut list = program(folder.path(), &["admin", "account", "list"]);
    let url = format!("postgres://user:secret@127.0.0.1:{port}/island");
    let output = list.env("ISLAND_COORDINATOR_DATABASE__URL", url).output().expect("run");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{error}");
    assert!(error.contains(&format!("127.0.0.1:{port}/island")) && error.contains("refused"), "{error}");
    assert!(!error.contains("secret"), "{error}");
}

#[test]
fn init_names_the_next_steps_and_a_missing_server_and_a_port_in_use_are_explained() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    let catalogue = path.join("cargos");
    fs::create_dir(&catalogue).expect("a folder");
    let nats = format!("nats://127.0.0.1:{}", closed_port());
    let catalogue = catalogue.to_str().expect("text");
    let (is_done, steps, error) = run(path, &["init", "--nats-url", &nats, "--catalogue", catalogue]);
    assert!(is_done, "{error}");
    for step in ["settings: ", "next: nats-server -c ", "next: island-coordinator --config "] {
        assert!(steps.lines().any(|line| line.starts_with(step)), "{steps}");
    }

    let taken = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = taken.local_addr().expect("an address").to_string();
    let (is_done, _, error) = run(path, &["--config", "coordinator.toml", "--listen", &address]);
    assert!(!is_done && error.contains(&address) && error.contains("--listen"), "{error}");

    let mut serve = program(path, &["--config", "coordinator.toml", "--listen", "127.0.0.1:0"]);
    let mut child = serve.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("run");
    let lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    // Before it gives up.
    let waits = lines.map_while(Result::ok).find(|line| line.contains("waiting for the fabric"));
    child.kill().expect("killed");
    child.wait().expect("ended");
    let waits = waits.expect("a line about the fabric");
    assert!(waits.contains(&nats) && waits.contains("nats-server -c"), "{waits}");
}
