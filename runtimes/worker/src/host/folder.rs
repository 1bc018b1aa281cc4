//! A worker's folder: how much is in it, and its removal.
//!
//! A worker that was taken over nests folders as deeply as it likes and forbids its own user to look into them. So nothing here recurses,
//! opens a folder for each level, or takes what it cannot see for nothing.

use std::{
    fs, io,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

/// Bytes that a worker may have on the disk: scratch files and its log.
pub const MAX_BYTES: u64 = 2 << 30;
/// Number of its files and folders.
pub const MAX_FILES: u64 = 20_000;
/// Folders in folders. No engine nests more than a few, and what is below a path that is longer than the system permits could not be counted.
const MAX_DEPTH: u32 = 32;
/// Unit in which the system reports the size of a file on the disk.
const BLOCK: u64 = 512;

/// Whether a folder contains more than this, or something that cannot be counted. Links are not followed; what disappears meanwhile is not
/// counted.
pub fn is_too_large(dir: &Path, most_bytes: u64, most_files: u64) -> bool {
    let (mut bytes, mut files) = (0_u64, 0_u64);
    let mut folders = vec![(dir.to_owned(), 0)];
    while let Some((folder, depth)) = folders.pop() {
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if is_gone(&error) => continue,
            Err(_) => return true,
        };
        for entry in entries {
            let (path, about) = match entry.and_then(described) {
                Ok(described) => described,
                Err(error) if is_gone(&error) => continue,
                Err(_) => return true,
            };
            files += 1;
            bytes = bytes.saturating_add(about.blocks().saturating_mul(BLOCK));
            if bytes > most_bytes || files > most_files {
                return true;
            }
            if about.is_dir() {
                if depth == MAX_DEPTH {
                    return true;
                }
                folders.push((path, depth + 1));
            }
        }
    }
    false
}

/// Removes a folder and everything in it, after the process that wrote there has ended.
///
/// Folders below are moved up one after the other, so that no path is long. Its user may always change what a folder permits. What disappears
/// meanwhile, such as a log that is collected, counts as removed.
pub fn remove(dir: &Path) -> io::Result<()> {
    let mut moved = 0;
    loop {
        let mut is_empty = true;
        for entry in opened(dir)? {
            is_empty = false;
            match remove_entry(&entry?, dir, &mut moved) {
                Err(error) if !is_gone(&error) => return Err(error),
                _ => {}
            }
        }
        if is_empty {
            return fs::remove_dir(dir);
        }
    }
}

/// Removes a file, or a folder with its files. Folders in it are moved to `top`.
fn remove_entry(entry: &fs::DirEntry, top: &Path, moved: &mut u64) -> io::Result<()> {
    let path = entry.path();
    if !entry.file_type()?.is_dir() {
        return fs::remove_file(path);
    }
    for below in opened(&path)? {
        let below = below?;
        if below.file_type()?.is_dir() {
            move_up(&below.path(), top, moved)?;
        } else {
            fs::remove_file(below.path())?;
        }
    }
    fs::remove_dir(path)
}

/// Moves a folder to `top` under a name that is free there.
fn move_up(folder: &Path, top: &Path, moved: &mut u64) -> io::Result<()> {
    // Moving a folder changes it, too.
    permit_all(folder)?;
    loop {
        *moved += 1;
        match fs::rename(folder, top.join(format!("moved-{moved}"))) {
            Err(error) if is_taken(&error) => {}
            done => return done,
        }
    }
}

fn opened(folder: &Path) -> io::Result<fs::ReadDir> {
    permit_all(folder)?;
    fs::read_dir(folder)
}

fn permit_all(folder: &Path) -> io::Result<()> {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700))
}

fn described(entry: fs::DirEntry) -> io::Result<(PathBuf, fs::Metadata)> {
    Ok((entry.path(), entry.metadata()?))
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

fn is_taken(error: &io::Error) -> bool {
    use io::ErrorKind::{AlreadyExists, DirectoryNotEmpty, NotADirectory};
    matches!(error.kind(), AlreadyExists | DirectoryNotEmpty | NotADirectory)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use rustix::fs::{Mode, OFlags, mkdirat, openat};

    use super::*;

    /// Makes folders in folders below `top`, of which no path can name the last one, with a file of this size there.
    fn nest(top: &Path, depth: usize, bytes: usize, mode: Mode) {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut folder = rustix::fs::open(top, flags, Mode::empty()).expect("a folder");
        for _ in 0..depth {
            mkdirat(&folder, "f", Mode::RWXU).expect("a folder");
            let below = openat(&folder, "f", flags, Mode::empty()).expect("a folder");
            rustix::fs::fchmod(&below, mode).expect("permissions");
            folder = below;
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
        let file = openat(&folder, "file", flags, Mode::RUSR | Mode::WUSR).expect("a file");
        fs::File::from(file).write_all(&vec![1; bytes]).expect("written");
    }

    #[test]
    fn everything_below_a_workers_folder_counts() {
        let dir = tempfile::tempdir().expect("a folder");
        let below = dir.path().join("scratch/a/b");
        fs::create_dir_all(&below).expect("folders");
        fs::write(below.join("file"), vec![1; 1 << 20]).expect("a file");
        fs::write(dir.path().join("stderr.log"), vec![1; 1 << 20]).expect("a file");
        let is_over = |bytes, files| is_too_large(dir.path(), bytes, files);
        assert!(!is_over(4 << 20, 100));
        assert!(is_over(1 << 20, 100), "two files of a megabyte each");
        assert!(is_over(4 << 20, 4), "three folders and two files");
        // A sparse file takes no space, and a link to a large folder has the size of a link.
        fs::File::create(below.join("sparse")).expect("a file").set_len(1 << 40).expect("its length");
        std::os::unix::fs::symlink("/", below.join("link")).expect("a link");
        assert!(!is_over(4 << 20, 100));
        assert!(!is_too_large(&dir.path().join("absent"), 0, 0));
    }

    #[test]
    fn what_cannot_be_counted_is_too_much() {
        let dir = tempfile::tempdir().expect("a folder");
        let (top, file) = (dir.path().join("w"), dir.path().join("file"));
        fs::create_dir(&top).expect("a folder");
        // Below the longest path of the system: none of it could be listed.
        nest(&top, 5_000, 1 << 20, Mode::RWXU);
        assert!(is_too_large(&top, u64::MAX, u64::MAX));
        remove(&top).expect("removed");
        // As a folder that its user may not read, which root may.
        fs::write(&file, "").expect("a file");
        assert!(is_too_large(&file, u64::MAX, u64::MAX), "it cannot be listed");
    }

    #[test]
    fn a_folder_is_removed_however_deep_it_is_and_whatever_it_forbids() {
        let dir = tempfile::tempdir().expect("a folder");
        let top = dir.path().join("w");
        fs::create_dir(&top).expect("a folder");
        // A name that one of them would get.
        fs::create_dir_all(top.join("moved-1/inside")).expect("folders");
        fs::write(top.join("moved-2"), "").expect("a file");
        std::os::unix::fs::symlink(dir.path(), top.join("link")).expect("a link");
        fs::write(dir.path().join("kept"), "").expect("a file");
        nest(&top, 5_000, 1, Mode::WUSR | Mode::XUSR);
        // Far less than a level would have of the usual stack.
        let thread = std::thread::Builder::new().stack_size(128 << 10);
        let removed = thread.spawn(move || (remove(&top), top)).expect("a thread").join();
        let (removed, top) = removed.expect("it does not recurse");
        removed.expect("removed");
        assert!(!top.exists());
        assert!(dir.path().join("kept").exists(), "links are not followed");
        let gone = remove(&top).expect_err("it is gone");
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn what_disappears_meanwhile_counts_as_removed() {
        let dir = tempfile::tempdir().expect("a folder");
        let top = dir.path().join("w");
        fs::create_dir_all(top.join("scratch")).expect("folders");
        let files: Vec<PathBuf> = (0..2_000).map(|file| top.join(format!("scratch/{file}"))).collect();
        files.iter().for_each(|file| fs::write(file, "").expect("a file"));
        let removed = std::thread::scope(|scope| {
            // As a job does whose log is collected.
            scope.spawn(|| files.iter().for_each(|file| drop(fs::remove_file(file))));
            remove(&top)
        });
        removed.expect("removed");
        assert!(!top.exists());
    }
}
