//! The NVIDIA container toolkit, which gives containers GPUs: its hooks run as root and handle files of untrusted images.

use std::process::{Command, Stdio};

/// The first version without known escapes from containers to the host (CVE-2024-0132, CVE-2025-23359, CVE-2025-23266,
/// CVE-2026-24260).
const OLDEST: (u32, u32, u32) = (1, 19, 1);
/// Its program.
const PROGRAM: &str = "nvidia-ctk";

/// Returns why it cannot be used, if so. Runs a program.
pub(crate) fn problem() -> Option<String> {
    let output = Command::new(PROGRAM).arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).output();
    match output {
        Ok(output) => problem_of(&String::from_utf8_lossy(&output.stdout)),
        Err(_) => Some(format!("the NVIDIA container toolkit is not installed ({PROGRAM} cannot be run)")),
    }
}

/// The same for what `nvidia-ctk --version` prints: `NVIDIA Container Toolkit CLI version 1.19.1`, and a commit.
fn problem_of(printed: &str) -> Option<String> {
    let words = printed.split_whitespace();
    let version = words.skip_while(|word| *word != "version").nth(1).unwrap_or_default();
    let (major, minor, patch) = OLDEST;
    let core = version.split(['-', '~', '+']).next().unwrap_or_default();
    let numbers: Vec<u32> = core.split('.').map_while(|part| part.parse().ok()).collect();
    let cure = format!("install {major}.{minor}.{patch} or newer");
    match numbers.as_slice() {
        // A candidate of a release may lack its fixes.
        [a, b, c] if (*a, *b, *c) > OLDEST || ((*a, *b, *c) == OLDEST && core == version) => None,
        [_, _, _] => Some(format!("the NVIDIA container toolkit {version} lets containers escape; {cure}")),
        _ => Some(format!("the version of the NVIDIA container toolkit is unknown; {cure}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vulnerable_versions_are_refused() {
        for (version, is_safe) in [
            ("1.17.8", false),
            ("1.19.0", false),
            ("1.19.1", true),
            ("1.19.1-rc.1", false),
            ("1.20.0-rc.1", true),
            ("1.19.2", true),
            ("1.9.9", false),
            ("2.0.0", true),
            ("1.19", false),
            ("", false),
        ] {
            let printed = format!("NVIDIA Container Toolkit CLI version {version}\ncommit: f202b80a9b9d\n");
            assert_eq!(problem_of(&printed).is_none(), is_safe, "{version}: {:?}", problem_of(&printed));
        }
        assert!(problem_of("").is_some_and(|problem| problem.contains("unknown")));
    }
}
