//! Whole-or-not-at-all writes, and the owner of files that a command writes for a service.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt, chown},
    path::Path,
};

/// Writes `bytes` to `path` so that a reader, or the next start after a crash, finds the old file or the new one whole.
///
/// # Errors
/// The file system's, with nothing left behind but possibly a file with the extension `tmp`.
pub fn write_atomic(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
    // Of an earlier process with this id. A link is removed, never followed.
    let _ = fs::remove_file(&temporary);
    let written = OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(mode)
        .open(&temporary)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&temporary, path));
    if let Err(error) = written {
        let _ = fs::remove_file(&temporary);
        return Err(error);
    }
    // The rename itself must survive a power cut.
    File::open(folder_of(path))?.sync_all()
}

/// The folder of a file; that of a mere name, whose parent is an empty path, is the current one.
fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// As the superuser, gives a new file to the owner of its folder, under whom the service runs.
///
/// # Errors
/// The file system's.
pub fn give_to_owner_of_folder(path: &Path) -> io::Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let folder = fs::metadata(folder_of(path))?;
    chown(path, Some(folder.uid()), Some(folder.gid()))
}

/// Creates an empty file that only its owner can read; as the superuser, for the owner of its folder.
///
/// # Errors
/// The file system's, also if the file exists.
pub fn create_private(path: &Path) -> io::Result<()> {
    OpenOptions::new().create_new(true).write(true).mode(0o600).open(path)?;
    give_to_owner_of_folder(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_private_file_is_its_owners_alone_and_nothing_is_overwritten() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("secret");
        create_private(&path).expect("created");
        let (file, of) =
            (fs::metadata(&path).expect("metadata"), fs::metadata(folder.path()).expect("metadata"));
        assert_eq!((file.permissions().mode() & 0o777, file.uid()), (0o600, of.uid()));
        assert!(create_private(&path).is_err());
    }

    #[test]
    fn replaces_whole_and_keeps_the_mode() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("secret");
        write_atomic(&path, b"one", 0o600).expect("first write");
        write_atomic(&path, b"two", 0o600).expect("second write");
        assert_eq!(fs::read(&path).expect("read"), b"two");
        assert_eq!(fs::metadata(&path).expect("metadata").permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).expect("list").count(), 1);
    }

    #[test]
    fn a_link_in_place_of_the_temporary_file_is_not_followed() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let (path, other) = (folder.path().join("record"), folder.path().join("other"));
        fs::write(&other, b"precious").expect("write");
        let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
        std::os::unix::fs::symlink(&other, &temporary).expect("a link");
        write_atomic(&path, b"new", 0o600).expect("write");
        assert_eq!(fs::read(&other).expect("read"), b"precious");
        assert!(fs::symlink_metadata(&path).expect("metadata").is_file());
    }

    #[test]
    fn a_mere_name_is_in_the_current_folder() {
        assert_eq!(folder_of(Path::new("key")), Path::new("."));
        assert_eq!(folder_of(Path::new("keys/key")), Path::new("keys"));
        assert_eq!(folder_of(Path::new("/key")), Path::new("/"));
    }

    #[test]
    fn a_missing_folder_is_an_error() {
        let folder = tempfile::tempdir().expect("temporary folder");
        assert!(write_atomic(&folder.path().join("no/such"), b"x", 0o600).is_err());
    }
}
