//! Which images are removed when there are too many: they occupy the owner's disk.

/// Maximum number of images.
const MAX_IMAGES: usize = 64;
/// Maximum bytes of all images.
const MAX_BYTES: u64 = 32 << 30;

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

/// The images to remove: the least recently used, until the rest fits.
pub(super) fn excess(mut images: Vec<StoredImage>) -> Vec<StoredImage> {
    images.sort_by_key(|image| std::cmp::Reverse(image.used));
    let (mut count, mut bytes) = (0, 0_u64);
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
        excess(images).into_iter().map(|image| image.name).collect()
    }

    #[test]
    fn images_within_the_limits_stay() {
        assert!(excess(vec![image("a", 10, None), image("b", 20, Some(1))]).is_empty());
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
        assert!(excess(vec![image("giant", 100, Some(1))]).is_empty(), "the one in use stays");
        let many = (0..MAX_IMAGES as u64 + 2).map(|at| image(&at.to_string(), 0, Some(at))).collect();
        assert_eq!(names(many), ["1", "0"]);
    }
}
