//! On a terminal, and in shells. Python's `pty` is the terminal: it comes with what the build needs.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use crate::{program::alone, server::Server};

/// Runs it on a terminal, types `typed` once it asks, and gives all that the terminal showed.
const ON_A_TERMINAL: &str = r#"
import fcntl, os, pty, struct, sys, termios, time
typed, asked, columns = sys.argv[1].encode(), sys.argv[2].encode(), int(sys.argv[3])
pid, fd = pty.fork()
if pid == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    os.execv(sys.argv[4], sys.argv[4:])
shown = b""
while True:
    try:
        piece = os.read(fd, 1024)
    except OSError:
        break
    if not piece:
        break
    shown += piece
    if typed and asked in shown:
        # A question comes before the echo goes; Ctrl-C answers none.
        for _ in range(1000):
            if typed == b"\x03" or not termios.tcgetattr(fd)[3] & termios.ECHO:
                break
            time.sleep(0.01)
        os.write(fd, typed + b"\n")
        typed = b""
sys.stdout.buffer.write(shown)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"#;

async fn on_a_terminal(
    home: &Path,
    variables: &[(&str, &str)],
    typed: (&str, &str),
    arguments: &[&str],
) -> (Option<i32>, String) {
    on_columns(120, home, variables, typed, arguments).await
}

async fn on_columns(
    columns: u16,
    home: &Path,
    variables: &[(&str, &str)],
    typed: (&str, &str),
    arguments: &[&str],
) -> (Option<i32>, String) {
    let columns = columns.to_string();
    let mut command = Command::new("python3");
    command.args(["-c", ON_A_TERMINAL, typed.1, typed.0, &columns, env!("CARGO_BIN_EXE_island")]);
    command.args(arguments);
    command.env_clear().env("HOME", home).env("PATH", "/usr/bin:/bin").env("TERM", "xterm");
    command.envs(variables.iter().copied()).stdin(Stdio::null());
    let result =
        tokio::task::spawn_blocking(move || command.output()).await.expect("join").expect("run python3");
    let text = String::from_utf8([result.stdout, result.stderr].concat()).expect("text");
    (result.status.code(), text)
}

#[tokio::test]
async fn a_key_is_asked_for_without_echo() {
    let Server { url, .. } = Server::start().await;
    let home = tempfile::tempdir().expect("temporary folder");
    let at = [("SERVICE_API_URL", url.as_str())];
    let (code, shown) = on_a_terminal(home.path(), &at, ("API key:", "ak_one"), &["auth", "login"]).await;
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("API key:") && shown.contains("one@example.org"), "{shown}");
    assert!(!shown.contains("ak_one"), "the key was shown: {shown}");
    assert!(home.path().join(".island/config.toml").is_file());
}

#[tokio::test]
async fn colours_are_for_terminals_that_want_them() {
    let Server { url, .. } = Server::start().await;
    let home = tempfile::tempdir().expect("temporary folder");
    let with = |more| [("SERVICE_API_URL", url.as_str()), ("SERVICE_API_KEY", "ak_one"), more];
    for (more, colored) in [(("X", "x"), true), (("NO_COLOR", "1"), false), (("TERM", "dumb"), false)] {
        let (code, shown) = on_a_terminal(home.path(), &with(more), ("", ""), &["jobs", "list"]).await;
        assert_eq!(code, Some(0), "{shown}");
        assert_eq!(shown.contains("\x1b["), colored, "{more:?}: {shown:?}");
    }
}

#[tokio::test]
async fn waiting_is_shown_on_a_terminal_and_text_cannot_command_it() {
    let Server { url, .. } = Server::start().await;
    let home = tempfile::tempdir().expect("temporary folder");
    let at = [("SERVICE_API_URL", url.as_str()), ("SERVICE_API_KEY", "ak_one")];
    let (code, shown) = on_a_terminal(home.path(), &at, ("", ""), &["chat", "Hello"]).await;
    assert_eq!(code, Some(0), "{shown}");
    // Whichever of the two was drawn: the second comes right after the first.
    assert!(shown.contains("waiting for an Island") || shown.contains("an Island is preparing"), "{shown:?}");
    assert!(shown.contains("Hel[31mlo, the world."), "{shown:?}");
}

#[tokio::test]
async fn why_a_job_waits_is_shown_on_a_terminal() {
    let server = Server::start().await;
    let home = tempfile::tempdir().expect("temporary folder");
    let at = [("SERVICE_API_URL", server.url.as_str()), ("SERVICE_API_KEY", "ak_one")];
    let typed = ("cannot reach the model's hub", "\x03");
    let chat = ["chat", "Hello", "-w", "unreachable"];
    let (code, shown) = on_a_terminal(home.path(), &at, typed, &chat).await;
    assert_eq!(code, Some(130), "{shown}");
    assert!(shown.contains("waiting: 1 Island cannot reach the model's hub"), "{shown:?}");
    assert!(server.asked().iter().any(|asked| asked.line.starts_with("DELETE /jobs/")));
}

#[tokio::test]
async fn tables_fit_the_terminal() {
    let Server { url, .. } = Server::start().await;
    let home = tempfile::tempdir().expect("temporary folder");
    // A dumb terminal gets no colors, whose codes would count as columns here.
    let at = [("SERVICE_API_URL", url.as_str()), ("SERVICE_API_KEY", "ak_one"), ("TERM", "dumb")];
    let lists: [&[&str]; 14] = [
        &["jobs", "list"],
        &["workloads", "list"],
        &["hosts", "list"],
        &["api-keys", "list"],
        &["account", "ledger"],
        &["market", "rates"],
        &["market", "history", "llm-chat"],
        &["account", "quotas"],
        &["admin", "accounts", "list"],
        &["admin", "islands", "list"],
        &["admin", "cargos", "list"],
        &["admin", "notices", "list"],
        &["admin", "invitations", "list"],
        &["admin", "payouts", "list"],
    ];
    for columns in [80, 40] {
        for arguments in lists {
            let (code, shown) = on_columns(columns, home.path(), &at, ("", ""), arguments).await;
            assert_eq!(code, Some(0), "{shown}");
            // Messages are sentences, which the terminal wraps.
            let is_message = |line: &&str| line.starts_with("warning:") || line.starts_with("notice");
            let lines = shown.lines().filter(|line| !is_message(line));
            let widest = lines.map(|line| line.chars().count()).max().expect("a line");
            assert!(widest <= usize::from(columns), "{columns} columns: {arguments:?}\n{shown}");
        }
    }
}

#[test]
fn bash_completes_commands_and_flags() {
    let ran = alone(&["completion", "bash"]);
    assert_eq!(ran.code, Some(0));
    let folder = tempfile::tempdir().expect("temporary folder");
    let script = folder.path().join("island.bash");
    std::fs::write(&script, ran.out).expect("write");
    let complete = |words: &str| {
        let ask = format!(
            "source {}; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             COMP_LINE='{words}'; COMP_POINT=${{#COMP_LINE}}; \
             _island island \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD - 1]}}\"; echo \"${{COMPREPLY[@]}}\"",
            script.display()
        );
        let result = Command::new("bash").args(["--norc", "-c", &ask]).output().expect("run bash");
        String::from_utf8(result.stdout).expect("text").trim().to_owned()
    };
    assert_eq!(complete("island job"), "jobs");
    assert_eq!(complete("island jobs su"), "submit");
    assert_eq!(complete("island jobs submit --inp"), "--input");
    assert_eq!(complete("island --format js"), "json");
}

#[test]
fn zsh_and_fish_get_every_command() {
    for (shell, mark) in [("zsh", "#compdef island"), ("fish", "complete -c island")] {
        let ran = alone(&["completion", shell]);
        assert_eq!(ran.code, Some(0));
        assert!(ran.out.contains(mark), "{shell}");
        for command in
            ["jobs", "chat", "api-keys", "market", "sail", "completion", "hosts", "workloads", "auth"]
        {
            assert!(ran.out.contains(command), "{shell}: {command}");
        }
    }
}

#[test]
fn there_is_a_page_for_every_command() {
    let ran = alone(&["man"]);
    assert_eq!(ran.code, Some(0));
    assert!(ran.out.contains(".TH island 1") && ran.out.contains("Exit codes"), "{}", ran.out);
    let folder = tempfile::tempdir().expect("temporary folder");
    let ran = alone(&["man", "--dir", &folder.path().display().to_string()]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let page = std::fs::read_to_string(folder.path().join("island-chat.1")).expect("written");
    let synopsis = page.lines().find(|line| line.starts_with(r"\fBisland chat")).expect("a synopsis");
    let at = |flag: &str| synopsis.find(flag).expect("in the synopsis");
    assert!(at(r"no\-stream") < at(r"api\-url") && at(r"temperature") < at(r"api\-url"), "{synopsis}");
    for page in ["island.1", "island-jobs-submit.1", "island-api-keys-create.1", "island-chat.1"] {
        assert!(folder.path().join(page).is_file(), "{page}");
    }
}
