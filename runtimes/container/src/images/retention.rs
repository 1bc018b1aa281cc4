//! Which images are removed when there are too many: they occupy the owner's disk.

/// Maximum number of images.
const MAX_IMAGES: usize = 64;
/// Maximum bytes of all images.
pub(super) const MAX_BYTES: u64 = 32 << 30;

/// An image of ours in the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StoredImage {
    pub(super) name: String,
    /// Other references to it that are removed with the name.
    pub(super) references: Vec<String>,
    pub(super) bytes: u64,
    /// Order of its last use; `None` before this worker started.
    pub(super) used: Option<u64>,
}

/// Whether one image has more bytes than all images together may have.
pub(super) fn is_too_large(bytes: u64) -> bool {
    bytes > MAX_BYTES
}

/// The images to remove: the least recently used, until the rest fits beside `coming`, the bytes of images that are about to be unpacked.
pub(super) fn excess(mut images: Vec<StoredImage>, coming: Option<u64>) -> Vec<StoredImage> {
    images.sort_by_key(|image| std::cmp::Reverse(image.used));
    let (mut count, mut bytes) = (usize::from(coming.is_some()), coming.unwrap_or(0));
    let mut goes = |image: &StoredImage| {
        count += 1;
        bytes = bytes.saturating_add(image.bytes);
        // The most recently used stays, whatever its size: a job is about to run in it.
        count > 1 && (count > MAX_IMAGES || bytes > MAX_BYTES)
    };
    images.into_iter().filter(|image| goes(image)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(name: &str, gigabytes: u64, used: Option<u64>) -> StoredImage {
        StoredImage { name: name.to_owned(), references: Vec::new(), bytes: gigabytes << 30, used }
    }

    fn names(images: Vec<StoredImage>) -> Vec<String> {
        removed_for(images, None)
    }

    fn removed_for(images: Vec<StoredImage>, coming: Option<u64>) -> Vec<String> {
        excess(images, coming).into_iter().map(|image| image.name).collect()
    }

    #[test]
    fn images_within_the_limits_stay() {
        assert_eq!(names(vec![image("a", 10, None), image("b", 20, Some(1))]), [""; 0]);
    }

    #[test]
    fn the_least_recently_used_are_removed_first() {
        let images = vec![
            image("old", 1, None),
            image("second", 20, Some(2)),
            image("first", 10, Some(1)),
            image("last", 5, Some(3)),
        ];
        assert_eq!(names(images), ["first", "old"]);
        assert_eq!(names(vec![image("giant", 100, Some(1))]), [""; 0], "the one in use stays");
        let many = (0..MAX_IMAGES as u64 + 2).map(|at| image(&at.to_string(), 0, Some(at))).collect();
        assert_eq!(names(many), ["1", "0"]);
    }

    #[test]
    fn what_is_about_to_be_unpacked_has_its_place_before() {
        let images = || vec![image("old", 10, None), image("first", 10, Some(1)), image("last", 10, Some(2))];
        assert_eq!(removed_for(images(), Some(2 << 30)), [""; 0]);
        assert_eq!(removed_for(images(), Some(3 << 30)), ["old"]);
        assert_eq!(removed_for(images(), Some(16 << 30)), ["first", "old"]);
        assert_eq!(removed_for(images(), Some(u64::MAX)), ["last", "first", "old"]);
        let many = (0..MAX_IMAGES as u64).map(|at| image(&at.to_string(), 0, Some(at))).collect();
        assert_eq!(removed_for(many, Some(0)), ["0"], "it counts as one");
        assert!(is_too_large(MAX_BYTES + 1) && !is_too_large(MAX_BYTES));
    }
}
