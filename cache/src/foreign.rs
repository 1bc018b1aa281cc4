//! Hub files of other programs on this machine: read in place, never changed.
//!
//! Layout: `models--<owner>--<repo>/refs/<revision>` holds a commit, `snapshots/<commit>/<file>` leads to a file.

use std::{
    fs,
    path::{Path, PathBuf},
};

use island_protocol::address::HubAddress;

use crate::pick;

/// Returns the file of `address` in the folder `hub`, if it exists.
pub(crate) fn find(hub: &Path, address: &HubAddress) -> Option<PathBuf> {
    let repo = hub.join(format!("models--{}--{}", address.owner, address.repo));
    let revision = address.revision.as_deref().unwrap_or("main");
    let commit = fs::read_to_string(repo.join("refs").join(revision));
    let commit = commit.map_or_else(|_| revision.to_owned(), |text| text.trim().to_owned());
    let is_plain = !commit.is_empty() && commit.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let snapshot = is_plain.then(|| repo.join("snapshots").join(commit))?;
    let file = match &address.file {
        Some(file) => file.clone(),
        None => pick::best(&files(&snapshot, &snapshot))?,
    };
    let path = fs::canonicalize(snapshot.join(file)).ok()?;
    // A link that leads out of the repository is ignored.
    let inside = path.starts_with(fs::canonicalize(&repo).ok()?);
    (inside && path.is_file()).then_some(path)
}

/// Names of all files under `folder`, relative to `root`.
fn files(root: &Path, folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            names.extend(files(root, &path));
        } else if let Some(name) = path.strip_prefix(root).ok().and_then(Path::to_str) {
            names.push(name.to_owned());
        }
    }
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use island_protocol::address::Address;

    fn hub(text: &str) -> HubAddress {
        match text.parse() {
            Ok(Address::Hub(hub)) => hub,
            other => panic!("not a hub address: {other:?}"),
        }
    }

    #[test]
    fn finds_files_in_the_hubs_layout_and_nothing_outside() {
        let home = tempfile::tempdir().expect("temporary folder");
        let repo = home.path().join("models--o--r");
        for folder in ["blobs", "refs", "snapshots/abc"] {
            fs::create_dir_all(repo.join(folder)).expect("folder");
        }
        fs::write(repo.join("blobs/1"), "model").expect("write");
        fs::write(repo.join("refs/main"), "abc\n").expect("write");
        fs::write(home.path().join("outside"), "secret").expect("write");
        std::os::unix::fs::symlink("../../blobs/1", repo.join("snapshots/abc/m.Q8_0.gguf")).expect("link");
        std::os::unix::fs::symlink(home.path().join("outside"), repo.join("snapshots/abc/out"))
            .expect("link");
        let blob = fs::canonicalize(repo.join("blobs/1")).expect("canonical");
        let find = |text: &str| find(home.path(), &hub(text));
        assert_eq!(find("hf://o/r:m.Q8_0.gguf"), Some(blob.clone()));
        assert_eq!(find("hf://o/r"), Some(blob.clone()));
        assert_eq!(find("hf://o/r:m.Q8_0.gguf@abc"), Some(blob));
        assert_eq!(find("hf://o/r:m.Q8_0.gguf@def"), None);
        assert_eq!(find("hf://o/r:out"), None);
        assert_eq!(find("hf://o/other"), None);
    }
}
