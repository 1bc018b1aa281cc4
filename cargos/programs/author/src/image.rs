//! An image on its way to the consumer.

/// An encoded image, and what is known about it.
#[derive(Debug, Clone, Copy)]
pub struct Image<'a> {
    /// The encoded bytes.
    pub bytes: &'a [u8],
    /// Their format: `png`, `jpeg`, `svg`, ...
    pub format: &'a str,
    /// Pixels across, where known.
    pub width: Option<u32>,
    /// Pixels down, where known.
    pub height: Option<u32>,
}
