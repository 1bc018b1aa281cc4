//! A process's memory on Linux: a file that can be read in the sandbox once it is open.

use std::{
    fs::File,
    io,
    os::unix::fs::{FileExt as _, MetadataExt as _},
};

use super::Usage;

/// The open file, and what it was when it was opened.
#[derive(Debug)]
pub(super) struct Counter {
    file: File,
    device: u64,
    inode: u64,
}

impl Counter {
    pub(super) fn open() -> io::Result<Self> {
        Self::at("/proc/self/status")
    }

    /// The file of another process. It stays readable when the process hides itself later.
    pub(super) fn of(pid: u32) -> io::Result<Self> {
        Self::at(&format!("/proc/{pid}/status"))
    }

    fn at(path: &str) -> io::Result<Self> {
        let file = File::open(path)?;
        let about = file.metadata()?;
        Ok(Self { file, device: about.dev(), inode: about.ino() })
    }

    /// Reads it; `None` if that fails, or if another file has its descriptor by now.
    pub(super) fn read(&self) -> Option<Usage> {
        let about = self.file.metadata().ok()?;
        if (about.dev(), about.ino()) != (self.device, self.inode) {
            return None;
        }
        let mut text = [0; 4096];
        let read = self.file.read_at(&mut text, 0).ok()?;
        parse(&String::from_utf8_lossy(&text[..read]))
    }
}

/// Page tables count as well: an access to one byte of many pages allocates little else.
fn parse(status: &str) -> Option<Usage> {
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    let optional = |name| field(name).unwrap_or(0);
    let allocated = field("RssAnon")? + optional("RssShmem") + optional("VmSwap") + optional("VmPTE");
    Some(Usage { resident: field("VmRSS")?, allocated, threads: field("Threads")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_the_status_file() {
        let text = "Name:\tx\nVmRSS:\t  300 kB\nRssAnon:\t  100 kB\nRssFile:\t  150 kB\nRssShmem:\t   50 kB\nVmSwap:\t 7 kB\nVmPTE:\t 3 kB\nThreads:\t7\n";
        assert_eq!(parse(text), Some(Usage { resident: 300, allocated: 160, threads: 7 }));
        assert_eq!(parse(""), None);
        assert_eq!(parse("RssAnon:\t many kB\nVmRSS:\t 1 kB\n"), None);
    }

    #[test]
    fn another_file_is_not_mistaken_for_the_counter() {
        let counter = Counter::open().expect("open");
        assert!(counter.read().is_some_and(|usage| usage.allocated > 0));
        let folder = tempfile::tempdir().expect("a folder");
        let alike = folder.path().join("status");
        std::fs::write(&alike, "VmRSS:\t  300 kB\nRssAnon:\t  100 kB\nThreads:\t1\n").expect("write");
        // As after a `dup2` over its descriptor.
        let fooled = Counter { file: File::open(alike).expect("open"), ..counter };
        assert_eq!(fooled.read(), None);
    }
}
