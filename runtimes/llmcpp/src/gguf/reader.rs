//! Reads little-endian values within the file.

use std::io::{BufRead, Seek};

use super::GgufError;

pub(super) struct Reader<R> {
    source: R,
    position: u64,
    length: u64,
}

impl<R: BufRead + Seek> Reader<R> {
    pub(super) fn new(source: R, length: u64) -> Self {
        Self { source, position: 0, length }
    }

    /// Bytes read so far.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    pub(super) fn bytes<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], GgufError> {
        self.claim(N as u64, what)?;
        let mut bytes = [0; N];
        self.source.read_exact(&mut bytes).map_err(GgufError::Read)?;
        Ok(bytes)
    }

    pub(super) fn u32(&mut self, what: &'static str) -> Result<u32, GgufError> {
        self.bytes(what).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, what: &'static str) -> Result<u64, GgufError> {
        self.bytes(what).map(u64::from_le_bytes)
    }

    /// A count of at most `limit`.
    pub(super) fn count(&mut self, what: &'static str, limit: u64) -> Result<u64, GgufError> {
        let claimed = self.u64(what)?;
        if claimed > limit { Err(GgufError::TooMany { what, claimed, limit }) } else { Ok(claimed) }
    }

    /// A text preceded by its length, of at most `limit` bytes.
    pub(super) fn text(&mut self, what: &'static str, limit: u64) -> Result<String, GgufError> {
        String::from_utf8(self.raw_text(what, limit)?).map_err(|_| GgufError::Name)
    }

    /// A text preceded by its length, of at most `limit` bytes, in any encoding.
    pub(super) fn raw_text(&mut self, what: &'static str, limit: u64) -> Result<Vec<u8>, GgufError> {
        let length = self.count(what, limit)?;
        self.claim(length, what)?;
        let mut bytes = vec![0; length as usize];
        self.source.read_exact(&mut bytes).map_err(GgufError::Read)?;
        Ok(bytes)
    }

    /// Skips bytes, which must exist.
    pub(super) fn skip(&mut self, count: u64, what: &'static str) -> Result<(), GgufError> {
        self.claim(count, what)?;
        // The claim limits it to the file's length, which is in the signed range on all systems.
        self.source.seek_relative(count as i64).map_err(GgufError::Read)
    }

    fn claim(&mut self, count: u64, what: &'static str) -> Result<(), GgufError> {
        let end = self.position.checked_add(count).filter(|&end| end <= self.length);
        self.position = end.ok_or(GgufError::Truncated(what))?;
        Ok(())
    }
}
