//! Images of containers, and names in text.

use std::{fs, str::FromStr};

use island_protocol::{digest::Digest, egress::Place, ids::Slug};
use island_runtimes_container::{archive::Archive, images::Reference};

use super::{file, folder};

/// An image file: a tar, packed or not, with layers and their configuration. What is written for the daemon is an image again, and is
/// written unchanged then.
pub(super) fn image(input: &[u8]) -> bool {
    let Some(written) = rewritten("image.tar", input) else { return false };
    let again = rewritten("written.tar", &written).expect("what is written for the daemon is an image");
    assert_eq!(again.len(), written.len(), "an image is written in another way the second time");
    true
}

fn rewritten(name: &str, bytes: &[u8]) -> Option<Vec<u8>> {
    let archive = Archive::examine(&file(name, bytes)).ok()?;
    let path = folder().join("for-the-daemon");
    let out = fs::File::create(&path).expect("create a file");
    archive.write(out, |_| ()).expect("a checked image can be written");
    Some(fs::read(&path).expect("read what was written"))
}

/// Names and addresses, one a line: what is parsed and printed is the same when it is parsed again.
pub(super) fn names(input: &[u8]) -> bool {
    let Ok(text) = str::from_utf8(input) else { return false };
    text.lines().fold(false, |any, line| {
        any | same::<Place>(line) | same::<Digest>(line) | same::<Slug>(line) | reference(line)
    })
}

fn same<T: FromStr + ToString + PartialEq + std::fmt::Debug>(text: &str) -> bool {
    let Ok(first) = text.parse::<T>() else { return false };
    let again = first.to_string().parse::<T>();
    assert_eq!(again.ok(), Some(first), "{text:?}");
    true
}

fn reference(text: &str) -> bool {
    let Ok(first) = Reference::parse(text) else { return false };
    assert_eq!(Reference::parse(&first.to_string()), Ok(first), "{text:?}");
    true
}
