//! Commands that need no network: exit codes and messages.

#[cfg(target_os = "linux")]
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpListener,
    path::Path,
    process::{Command, Output, Stdio},
    thread,
};

#[cfg(target_os = "linux")]
use island_testing::port::free_port;

/// Runs `island-agent` without a terminal.
fn agent(state: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_island-agent"));
    command.args(arguments).arg("--state-dir").arg(state).stdin(Stdio::null());
    command.output().expect("run island-agent")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn watching_without_a_terminal_is_an_error_of_usage() {
    let state = tempfile::tempdir().expect("temporary folder");
    let ran = agent(state.path(), &["status", "--watch"]);
    assert_eq!(ran.status.code(), Some(2), "{ran:?}");
    assert!(text(&ran.stderr).contains("needs a terminal"), "{ran:?}");
    assert!(ran.stdout.is_empty(), "no escape codes: {ran:?}");
}

#[test]
fn logs_without_any_are_reported() {
    let state = tempfile::tempdir().expect("temporary folder");
    let ran = agent(state.path(), &["logs"]);
    assert!(ran.status.success(), "{ran:?}");
    assert!(text(&ran.stdout).starts_with("no debug logs in "), "{ran:?}");
}

#[test]
fn leaving_without_having_joined_is_reported() {
    let state = tempfile::tempdir().expect("temporary folder");
    let ran = agent(state.path(), &["leave"]);
    assert!(text(&ran.stdout).starts_with("This machine never joined a network"), "{ran:?}");
    assert_eq!(fs::read_dir(state.path()).expect("list").count(), 0, "nothing is created");
}

#[test]
fn a_check_of_settings_lists_every_problem_or_confirms_them() {
    let state = tempfile::tempdir().expect("temporary folder");
    let file = state.path().join("agent.toml");
    let name = file.to_str().expect("a plain path");
    fs::write(&file, "api_url = 'example.org'\n[policy]\nruntimes = ['abacus']\n[workers]\nmax_jobs = 0")
        .expect("write");
    let ran = agent(state.path(), &["config", "check", "-c", name]);
    assert_eq!(ran.status.code(), Some(64), "{ran:?}");
    let problems = text(&ran.stderr);
    assert_eq!(problems.lines().count(), 3, "{problems}");
    for part in ["api_url", "`abacus`; the engines are container, wasm", "workers.max_jobs"] {
        assert!(problems.contains(part), "{part} in {problems}");
    }
    fs::write(&file, "name = 'attic'").expect("write");
    let ran = agent(state.path(), &["config", "check", "-c", name]);
    assert!(ran.status.success(), "{ran:?}");
    assert_eq!(text(&ran.stdout), format!("{name}: the settings are valid\n"));
}

/// A folder in which nothing can be created, not even by root.
#[cfg(target_os = "linux")]
#[test]
fn a_folder_without_permission_has_a_hint() {
    let ran = agent(Path::new("/sys/island"), &["enroll"]);
    assert_eq!(ran.status.code(), Some(1), "{ran:?}");
    let message = text(&ran.stderr);
    for part in ["/sys/island", "sudo", "--state-dir", "--config FILE"] {
        assert!(message.contains(part), "{part} in {message}");
    }
}

/// The folder belongs to the user of the agent, who may have prepared a link.
#[cfg(target_os = "linux")]
#[test]
fn enrolling_and_leaving_as_root_use_the_rights_of_the_folders_owner() {
    if !rustix::process::geteuid().is_root() {
        return island_testing::skip("commands of root", "only root can try them");
    }
    let folder = tempfile::tempdir().expect("temporary folder");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("permissions");
    let (state, precious) = (folder.path().join("state"), folder.path().join("precious"));
    fs::create_dir(&state).expect("a folder");
    fs::write(&precious, "precious").expect("write");
    let lock = state.join("identity.lock");
    symlink(&precious, &lock).expect("a link");
    chown(&state, Some(65534), Some(65534)).expect("chown");
    // Nothing listens there.
    let coordinator = format!("http://127.0.0.1:{}", free_port());
    let arguments = ["enroll", "--coordinator", &coordinator];
    let ran = agent(&state, &arguments);
    assert!(!ran.status.success() && text(&ran.stderr).contains("identity"), "{ran:?}");
    assert_eq!(fs::read_to_string(&precious).expect("read"), "precious");
    fs::remove_file(&lock).expect("removed");
    for command in ["enroll", "leave"] {
        let ran = agent(&state, &[command, "--coordinator", &coordinator]);
        assert!(!ran.status.success() && text(&ran.stderr).contains(&coordinator), "{ran:?}");
    }
    let owners: Vec<u32> = fs::read_dir(&state)
        .expect("list")
        .map(|file| file.and_then(|file| file.metadata()).expect("about").uid())
        .collect();
    assert!(owners.len() >= 2 && owners.iter().all(|owner| *owner == 65534), "{owners:?}");
}

/// Connections to 0.0.0.0 arrive on this machine, but it is not an address of loopback.
#[test]
fn a_coordinator_elsewhere_is_not_used_without_encryption() {
    let state = tempfile::tempdir().expect("temporary folder");
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let url = format!("http://0.0.0.0:{}", listener.local_addr().expect("address").port());
    for command in ["enroll", "run", "leave"] {
        let ran = agent(state.path(), &[command, "--coordinator", &url]);
        assert_eq!(ran.status.code(), Some(64), "{ran:?}");
        let message = text(&ran.stderr);
        assert!(message.contains("is not encrypted") && message.contains("allow_plaintext"), "{message}");
    }
    listener.set_nonblocking(true).expect("nonblocking");
    assert!(listener.accept().is_err(), "nothing connected");
}

/// Answers one request after another with these statuses and bodies, each on a connection of its own.
fn answering(listener: TcpListener, answers: [(&'static str, &'static str); 2]) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        for (status, body) in answers {
            let (mut connection, _) = listener.accept().expect("a connection");
            let mut request = BufReader::new(connection.try_clone().expect("the same connection"));
            let (mut line, mut length) = (String::new(), 0);
            while request.read_line(&mut line).expect("a head") > 2 {
                if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().expect("a length");
                }
                line.clear();
            }
            request.read_exact(&mut vec![0; length]).expect("a body");
            let head = format!(
                "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                body.len()
            );
            connection
                .write_all(head.as_bytes())
                .and_then(|()| connection.write_all(body.as_bytes()))
                .expect("answer");
        }
    })
}

/// The person who enrolls a machine, often as root, does not know the coordinator yet.
#[test]
fn a_coordinator_cannot_control_the_terminal_of_who_enrolls() {
    let state = tempfile::tempdir().expect("temporary folder");
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let url = format!("http://{}", listener.local_addr().expect("address"));
    let coordinator = answering(
        listener,
        [
            ("200 OK", r#"{"data": {"code": "ABC\u001b[2JDEF", "expires_at": "2100-01-01T00:00:00Z"}}"#),
            (
                "403 Forbidden",
                r#"{"error": {"code": "forbidden", "message": "not\u001b]0;title\u0007 you\u009b2J"}}"#,
            ),
        ],
    );
    let ran = agent(state.path(), &["enroll", "--coordinator", &url]);
    assert_eq!(ran.status.code(), Some(1), "{ran:?}");
    let (shown, complaint) = (text(&ran.stdout), text(&ran.stderr));
    assert!(shown.contains("ABC[-2JDEF") && complaint.contains("not]0;title you2J"), "{ran:?}");
    let commands = |text: &str| text.contains(|letter: char| letter.is_control() && letter != '\n');
    assert!(!commands(&shown) && !commands(&complaint), "{ran:?}");
    coordinator.join().expect("both were requested");
}
