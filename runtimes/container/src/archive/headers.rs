//! Watches the headers of a tar while it is read: names and extensions are read into memory as a whole, and a header may state any length
//! for them.

use std::io::{self, Read};

use tar::{EntryType, Header, PaxExtensions};

/// Bytes of a block.
const BLOCK: usize = 512;
/// Maximum bytes of one name or extension.
const MAX_LEN: u64 = 64 << 10;

/// Reads a tar, and fails where something that is read into memory is too long, or where the length of an entry is ambiguous.
#[derive(Debug)]
pub(super) struct Headers<R> {
    inner: R,
    /// The bytes of the present header.
    header: Vec<u8>,
    /// Bytes of the present entry's content, padding included, that are still to be read.
    content: u64,
    /// The extensions or the name that are being read, with their length and type.
    extensions: Option<(Vec<u8>, usize, EntryType)>,
    /// Whether what is before the present header may name a folder; `None` if it names nothing.
    may_name_folder: Option<bool>,
}

impl<R> Headers<R> {
    pub(super) fn new(inner: R) -> Self {
        Self { inner, header: Vec::with_capacity(BLOCK), content: 0, extensions: None, may_name_folder: None }
    }

    /// Takes bytes in the order of the file, at most to the end of the present header or content.
    fn take(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.content > 0 {
            self.content -= bytes.len() as u64;
            if let Some((read, ..)) = &mut self.extensions {
                read.extend_from_slice(bytes);
            }
            if self.content == 0
                && let Some((read, length, kind)) = self.extensions.take()
            {
                if kind == EntryType::GNULongName {
                    let name = read[..length].split(|&byte| byte == 0).next().unwrap_or_default();
                    let names_folder = name.last().is_none_or(|&last| last == b'/');
                    self.may_name_folder = Some(names_folder || self.may_name_folder == Some(true));
                } else {
                    check_extensions(&read[..length])?;
                    // It may state a name.
                    self.may_name_folder = Some(true);
                }
            }
            return Ok(());
        }
        self.header.extend_from_slice(bytes);
        if self.header.len() == BLOCK {
            self.begin()?;
            self.header.clear();
        }
        Ok(())
    }

    /// Checks a complete header.
    fn begin(&mut self) -> io::Result<()> {
        let header = Header::from_byte_slice(&self.header);
        if self.header.iter().all(|&byte| byte == 0) {
            return Ok(());
        }
        let (size, kind) = (header.entry_size()?, header.entry_type());
        // In the first format, a file whose name ends like that of a folder is one.
        let has_folder_name = header.path_bytes().last().is_none_or(|&last| last == b'/');
        let may_be_folder =
            header.as_old().linkflag == [0] && self.may_name_folder.unwrap_or(has_folder_name);
        let is_extension = matches!(kind, EntryType::XHeader | EntryType::XGlobalHeader);
        let is_name = matches!(kind, EntryType::GNULongName | EntryType::GNULongLink);
        if (is_extension || is_name) && size > MAX_LEN {
            return Err(invalid("a name or an extension in it is too long"));
        }
        if size > 0 && (is_without_content(kind) || may_be_folder) {
            return Err(invalid("a folder, a link or a device in it has a length"));
        }
        if !is_extension && !is_name {
            self.may_name_folder = None;
        }
        if kind == EntryType::GNUSparse {
            // Further headers follow it, whose number it does not state.
            return Err(invalid("it contains a sparse file"));
        }
        self.content =
            size.checked_next_multiple_of(BLOCK as u64).ok_or_else(|| invalid("a file in it is too long"))?;
        let is_read = (is_extension || kind == EntryType::GNULongName) && size > 0;
        self.extensions = is_read.then(|| (Vec::new(), size as usize, kind));
        Ok(())
    }
}

impl<R: Read> Read for Headers<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let due = if self.content > 0 { self.content } else { (BLOCK - self.header.len()) as u64 };
        let most = usize::try_from(due).unwrap_or(usize::MAX).min(into.len());
        let read = self.inner.read(&mut into[..most])?;
        self.take(&into[..read])?;
        Ok(read)
    }
}

/// Whether entries of a type have no content. Of the length that a header states all the same, some readers skip as many bytes, and others none, so
/// that they disagree on what is a header.
fn is_without_content(kind: EntryType) -> bool {
    matches!(
        kind,
        EntryType::Link
            | EntryType::Symlink
            | EntryType::Char
            | EntryType::Block
            | EntryType::Directory
            | EntryType::Fifo
    )
}

/// An extension may state another length than the header, so that readers disagree on what is a header.
fn check_extensions(text: &[u8]) -> io::Result<()> {
    for extension in PaxExtensions::new(text) {
        if extension?.key_bytes() == b"size" {
            return Err(invalid("a file in it has its length in an extension"));
        }
    }
    Ok(())
}

fn invalid(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(kind: EntryType, size: u64, content: &[u8]) -> Vec<u8> {
        let mut header = Header::new_ustar();
        header.set_entry_type(kind);
        header.set_path("x").expect("a name");
        header.set_size(size);
        header.set_cksum();
        let mut bytes = header.as_bytes().to_vec();
        bytes.extend_from_slice(content);
        bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
        bytes
    }

    fn read(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        Headers::new(bytes).read_to_end(&mut out)?;
        Ok(out)
    }

    #[test]
    fn long_names_and_extensions_are_refused_by_their_header() {
        for kind in
            [EntryType::GNULongName, EntryType::GNULongLink, EntryType::XHeader, EntryType::XGlobalHeader]
        {
            // The content is not even there.
            let error = read(&entry(kind, 8 << 30, b"")).expect_err("too long");
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{kind:?}: {error}");
            let hidden = [entry(EntryType::Regular, 3, b"abc"), entry(kind, MAX_LEN + 1, b"")].concat();
            assert!(read(&hidden).is_err(), "{kind:?}");
        }
        let name = entry(EntryType::GNULongName, 200, &[b'n'; 200]);
        assert_eq!(read(&name).expect("short enough"), name);
        assert!(read(&entry(EntryType::GNUSparse, 0, b"")).is_err());
    }

    #[test]
    fn an_extension_cannot_hide_a_header() {
        let record = b"10 size=0\n";
        let tar = [
            entry(EntryType::XHeader, record.len() as u64, record),
            // Readers that apply the extension find a header where others find content.
            entry(EntryType::Regular, BLOCK as u64, &entry(EntryType::GNULongName, 8 << 30, b"")),
        ];
        assert!(read(&tar.concat()).is_err());
        let harmless = entry(EntryType::XHeader, 12, b"12 path=abc\n");
        assert_eq!(read(&harmless).expect("a path"), harmless);
    }

    #[test]
    fn what_has_no_content_cannot_hide_a_header() {
        let hidden = entry(EntryType::GNUSparse, 0, b"");
        for kind in [
            EntryType::Link,
            EntryType::Symlink,
            EntryType::Char,
            EntryType::Block,
            EntryType::Directory,
            EntryType::Fifo,
        ] {
            let empty = entry(kind, 0, b"");
            assert_eq!(read(&empty).expect("no length"), empty, "{kind:?}");
            assert!(read(&entry(kind, BLOCK as u64, &hidden)).is_err(), "{kind:?}");
        }
        let old = |name: &[u8]| {
            let mut header = Header::new_old();
            header.as_old_mut().name[..name.len()].copy_from_slice(name);
            header.set_size(BLOCK as u64);
            header.set_cksum();
            [header.as_bytes().as_slice(), hidden.as_slice()].concat()
        };
        let file = old(b"x");
        assert_eq!(read(&file).expect("a file of the first format"), file);
        assert!(read(&old(b"x/")).is_err(), "other readers take it for a folder");
        let renamed = [entry(EntryType::XHeader, 12, b"12 path=abc\n"), file].concat();
        assert!(read(&renamed).is_err(), "its name may end like that of a folder");
        // As the crate `tar` writes a file with a long name whose type its user does not set.
        let long = |name: &[u8]| [entry(EntryType::GNULongName, name.len() as u64, name), old(b"x")].concat();
        assert_eq!(read(&long(b"abc\0")).expect("a file"), long(b"abc\0"));
        for name in [&b"abc/\0"[..], b"abc/", b"abc/\0d", b"\0"] {
            assert!(read(&long(name)).is_err(), "{name:?}");
        }
    }

    proptest! {
        #[test]
        fn other_archives_are_unchanged_for_any_sizes_of_reads(
            files in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..2000), 0..5),
            steps in prop::collection::vec(1_usize..3000, 1..10),
        ) {
            let mut bytes: Vec<u8> =
                files.iter().flat_map(|file| entry(EntryType::Regular, file.len() as u64, file)).collect();
            bytes.resize(bytes.len() + 2 * BLOCK, 0);
            let (mut reader, mut out) = (Headers::new(bytes.as_slice()), Vec::new());
            for step in steps.iter().cycle() {
                let mut buffer = vec![0; *step];
                let count = reader.read(&mut buffer).expect("valid");
                if count == 0 {
                    break;
                }
                out.extend_from_slice(&buffer[..count]);
            }
            prop_assert_eq!(out, bytes);
        }
    }
}
