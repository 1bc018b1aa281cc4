//! Limits on the length of files and bodies. Pure.
//!
//! A server can announce any length and send any number of bytes. Both are compared with what the entry states, or with a maximum, before
//! anything is allocated or written.

/// Largest file that is downloaded: the maximum of ext4. It limits the memory for a file's pieces.
const LARGEST: u64 = 16 << 40;
/// Largest file whose entry states no size. Hubs recommend files of at most 50 GB and serve single ones of a few hundred.
const LARGEST_UNSTATED: u64 = 512 << 30;
/// Longest body whose length neither the entry nor the server states. Servers of models announce lengths; a body without one must not cost
/// the owner much disk space or metered traffic.
const LONGEST_UNANNOUNCED: u64 = 4 << 30;

/// The length of a file that may be downloaded, at most 16 TiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileSize(u64);

impl FileSize {
    pub(crate) fn bytes(self) -> u64 {
        self.0
    }

    #[cfg(test)]
    pub(crate) fn of(bytes: u64) -> Self {
        assert!(bytes <= LARGEST, "a test's own file is small");
        Self(bytes)
    }
}

/// The expected number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Exactly this number.
    Known(FileSize),
    /// Any number up to this one.
    AtMost(u64),
}

/// Why a file is not downloaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The server announces another length than the entry states.
    Differs { stated: u64, announced: u64 },
    /// It is larger than the maximum.
    TooLarge { most: u64, bytes: u64 },
}

/// Returns the expected number of bytes from what the entry states and what the server announces.
pub(crate) fn extent(stated: Option<u64>, announced: Option<u64>) -> Result<Extent, Refused> {
    let (bytes, most) = match (stated, announced) {
        (Some(stated), Some(announced)) if stated != announced => {
            return Err(Refused::Differs { stated, announced });
        }
        (Some(stated), _) => (stated, LARGEST),
        (None, Some(announced)) => (announced, LARGEST_UNSTATED),
        (None, None) => return Ok(Extent::AtMost(LONGEST_UNANNOUNCED)),
    };
    if bytes > most {
        return Err(Refused::TooLarge { most, bytes });
    }
    Ok(Extent::Known(FileSize(bytes)))
}

/// Counts the bytes of a body against its maximum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Intake {
    most: u64,
    taken: u64,
}

impl Intake {
    /// Allows `most` bytes.
    pub(crate) fn new(most: u64) -> Self {
        Self { most, taken: 0 }
    }

    /// Counts a chunk of `bytes`. Returns the total if the chunk exceeds the maximum; then the chunk is not counted.
    pub(crate) fn take(&mut self, bytes: u64) -> Result<(), u64> {
        let came = self.taken.saturating_add(bytes);
        if came > self.most {
            return Err(came);
        }
        self.taken = came;
        Ok(())
    }

    /// Bytes counted so far.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Lengths of every magnitude: half of all `u64` are above 2^63.
    fn length() -> impl Strategy<Value = u64> {
        (any::<u64>(), 0_u32..64).prop_map(|(bits, shift)| bits >> shift)
    }

    proptest! {
        #[test]
        fn accepted_lengths_are_as_stated_and_within_the_maximum(
            stated in prop::option::of(length()),
            announced in prop::option::of(length()),
            agrees in any::<bool>(),
        ) {
            let announced = if agrees { announced.and(stated).or(announced) } else { announced };
            match extent(stated, announced) {
                Ok(Extent::Known(size)) => {
                    prop_assert_eq!(Some(size.bytes()), stated.or(announced));
                    prop_assert!(announced.is_none_or(|bytes| bytes == size.bytes()));
                    prop_assert!(size.bytes() <= LARGEST);
                    prop_assert!(stated.is_some() || size.bytes() <= LARGEST_UNSTATED);
                }
                Ok(Extent::AtMost(most)) => {
                    prop_assert_eq!((stated, announced, most), (None, None, LONGEST_UNANNOUNCED));
                }
                Err(Refused::Differs { stated: wanted, announced: other }) => {
                    prop_assert_eq!((stated, announced), (Some(wanted), Some(other)));
                    prop_assert_ne!(wanted, other);
                }
                Err(Refused::TooLarge { most, bytes }) => {
                    prop_assert_eq!(Some(bytes), stated.or(announced));
                    prop_assert!(bytes > most && most >= LARGEST_UNSTATED);
                }
            }
        }

        #[test]
        fn bytes_are_accepted_up_to_the_maximum(
            most in 0_u64..10_000,
            chunks in prop::collection::vec(prop_oneof![0_u64..3000, length()], 0..20),
        ) {
            let mut intake = Intake::new(most);
            for chunk in chunks {
                let before = intake.taken();
                let fits = before.checked_add(chunk).is_some_and(|came| came <= most);
                match intake.take(chunk) {
                    Ok(()) => prop_assert!(fits && intake.taken() == before + chunk),
                    Err(came) => prop_assert!(!fits && came > most && intake.taken() == before),
                }
                prop_assert!(intake.taken() <= most);
            }
        }
    }
}
