//! The debug log of one run: the end of what a Cargo's program wrote to its standard error.

use std::{collections::VecDeque, fmt, sync::Arc};

use parking_lot::Mutex;

/// Bytes that are kept; earlier ones are only counted.
pub const KEPT_BYTES: usize = 64 << 10;

/// Collects a run's debug log. Cheap to clone; clones write to the same log.
#[derive(Clone, Default)]
pub struct JobLog(Arc<Mutex<Buffer>>);

#[derive(Default)]
struct Buffer {
    tail: VecDeque<u8>,
    dropped: u64,
}

impl JobLog {
    /// Appends bytes as the program wrote them, in any encoding.
    pub fn write(&self, bytes: &[u8]) {
        let mut kept = self.0.lock();
        let fresh = &bytes[bytes.len().saturating_sub(KEPT_BYTES)..];
        let over = (kept.tail.len() + fresh.len()).saturating_sub(KEPT_BYTES);
        kept.dropped += (over + bytes.len() - fresh.len()) as u64;
        kept.tail.drain(..over);
        kept.tail.extend(fresh);
    }

    /// Appends a line of Island's, marked as such.
    pub fn note(&self, text: &str) {
        self.write(format!("[island] {text}\n").as_bytes());
    }

    /// The log so far; its first line contains the number of missing bytes.
    pub fn text(&self) -> String {
        let kept = self.0.lock();
        let (front, back) = kept.tail.as_slices();
        let text = String::from_utf8_lossy(&[front, back].concat()).into_owned();
        if kept.dropped == 0 {
            text
        } else {
            format!("[island] {} bytes are missing here\n{text}", kept.dropped)
        }
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.0.lock().tail.is_empty()
    }
}

impl fmt::Debug for JobLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JobLog")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_end_is_kept_and_the_rest_counted(sizes in proptest::collection::vec(0..40_000_usize, 0..8)) {
            let (log, mut all) = (JobLog::default(), Vec::new());
            for (letter, size) in (b'a'..).zip(sizes) {
                log.write(&vec![letter; size]);
                all.extend(vec![letter; size]);
            }
            let tail = &all[all.len().saturating_sub(KEPT_BYTES)..];
            let dropped = all.len() - tail.len();
            let text = log.text();
            prop_assert!(text.ends_with(std::str::from_utf8(tail).expect("letters")));
            prop_assert_eq!(text.contains(&format!("{dropped} bytes are missing")), dropped > 0);
            prop_assert_eq!(log.is_empty(), all.is_empty());
        }
    }
}
