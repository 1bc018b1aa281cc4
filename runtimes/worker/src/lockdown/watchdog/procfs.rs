//! A process's memory on Linux: a file that can be read in the sandbox once it is open.

use std::{fs::File, io, os::unix::fs::FileExt};

use super::Usage;

/// The open file.
#[derive(Debug)]
pub(super) struct Counter(File);

impl Counter {
    pub(super) fn open() -> io::Result<Self> {
        File::open("/proc/self/status").map(Self)
    }

    pub(super) fn read(&self) -> Usage {
        let mut text = [0; 4096];
        let read = self.0.read_at(&mut text, 0).unwrap_or(0);
        parse(&String::from_utf8_lossy(&text[..read]))
    }
}

fn parse(status: &str) -> Usage {
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|value| value.split_whitespace().next()?.parse().ok()).unwrap_or(0)
    };
    Usage { resident: field("VmRSS"), allocated: field("RssAnon") + field("RssShmem") + field("VmSwap") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_the_status_file() {
        let text = "Name:\tx\nVmRSS:\t  300 kB\nRssAnon:\t  100 kB\nRssFile:\t  150 kB\nRssShmem:\t   50 kB\nVmSwap:\t 7 kB\n";
        assert_eq!(parse(text), Usage { resident: 300, allocated: 157 });
        assert_eq!(parse(""), Usage::default());
    }
}
