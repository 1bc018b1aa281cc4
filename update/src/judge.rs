//! Whether a release may be installed. Pure: bytes, keys, memory and time go in, what to do comes out.

use std::collections::BTreeSet;

use island_protocol::digest::Digest;
use semver::Version;
use sha2::{Digest as _, Sha256};

use crate::{
    manifest::{File, MAX_BYTES, Manifest, PublicKey, Release},
    record::Record,
};

/// Largest file that is fetched.
pub const MAX_FILE: u64 = 2 << 30;
/// How far a release's clock may be ahead of ours, seconds.
const AHEAD: i64 = 24 * 3600;

/// Whom the owner trusts, and for what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trust {
    /// Keys of whoever makes releases.
    pub keys: BTreeSet<PublicKey>,
    /// How many of them must have signed.
    pub threshold: usize,
    /// The product that is installed here.
    pub product: String,
    /// The channel that its owner chose.
    pub channel: String,
    /// What kind of file this machine takes.
    pub target: String,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// What runs is the newest.
    UpToDate,
    /// The newest did not come up here before.
    Failed(Version),
    /// Install it.
    Install {
        /// Its version.
        version: Version,
        /// Its file for this machine.
        file: File,
    },
}

/// Why a manifest is not believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Longer than any.
    #[error("the manifest has more than {MAX_BYTES} bytes")]
    TooLong,
    /// Not one.
    #[error("the manifest is none: {0}")]
    Malformed(String),
    /// Signatures are missing or wrong.
    #[error("{found} of the trusted keys signed it, {needed} are needed")]
    Unsigned {
        /// Valid ones.
        found: usize,
        /// Needed ones.
        needed: usize,
    },
    /// Somebody else's.
    #[error("it is a release of {0}")]
    OtherProduct(String),
    /// From the future.
    #[error("it was made in the future: is this machine's clock right?")]
    Future,
    /// Too old to be the newest.
    #[error("it expired: whoever serves it hides newer ones, or no release was made for long")]
    Expired,
    /// Older than one that was seen.
    #[error("it is release {found}, and {seen} was seen here before")]
    Replayed {
        /// Its number.
        found: u64,
        /// The newest one seen.
        seen: u64,
    },
    /// Two releases under one number.
    #[error("it is another release {0} than the one that was seen here before")]
    Changed(u64),
    /// Below the floor.
    #[error("version {0} is older than the oldest that may be installed")]
    BelowFloor(Version),
    /// Older than what runs.
    #[error("version {found} is older than {installed}, which is installed")]
    Backwards {
        /// Its version.
        found: Version,
        /// What is installed.
        installed: Version,
    },
    /// Nothing for this machine.
    #[error("it has no file for {0}")]
    NoFile(String),
    /// A file that cannot be right.
    #[error("its file for this machine has {0} bytes")]
    BadFile(u64),
}

/// Verifies a manifest and says what follows from it, and what is to be remembered from now on, whatever becomes of the installation.
pub fn judge(
    bytes: &[u8],
    trust: &Trust,
    record: &Record,
    installed: &Version,
    now: i64,
) -> Result<(Verdict, Record), Refused> {
    if bytes.len() > MAX_BYTES {
        return Err(Refused::TooLong);
    }
    let malformed = |error: serde_json::Error| Refused::Malformed(error.to_string());
    let manifest: Manifest = serde_json::from_slice(bytes).map_err(malformed)?;
    let found = trust.keys.iter().filter(|key| manifest.is_signed_by(**key)).count();
    let needed = trust.threshold.max(1);
    if found < needed {
        return Err(Refused::Unsigned { found, needed });
    }
    // From here on somebody trusted said it.
    let release: Release = serde_json::from_str(&manifest.release).map_err(malformed)?;
    let record = remembered(&manifest, &release, trust, record, now)?;
    let verdict = choose(release, trust, &record, installed)?;
    Ok((verdict, record))
}

fn remembered(
    manifest: &Manifest,
    release: &Release,
    trust: &Trust,
    record: &Record,
    now: i64,
) -> Result<Record, Refused> {
    if (&release.product, &release.channel) != (&trust.product, &trust.channel) {
        return Err(Refused::OtherProduct(format!("{} ({})", release.product, release.channel)));
    }
    if release.issued_at > now + AHEAD {
        return Err(Refused::Future);
    }
    if release.expires_at <= now {
        return Err(Refused::Expired);
    }
    if release.number < record.number {
        return Err(Refused::Replayed { found: release.number, seen: record.number });
    }
    let sha256 = Digest::from_bytes(Sha256::digest(manifest.release.as_bytes()).into());
    if release.number == record.number && record.sha256.is_some_and(|known| known != sha256) {
        return Err(Refused::Changed(release.number));
    }
    let floor = record.floor.clone().into_iter().chain([release.floor.clone()]).max();
    Ok(Record { number: release.number, sha256: Some(sha256), floor, ..record.clone() })
}

fn choose(release: Release, trust: &Trust, record: &Record, installed: &Version) -> Result<Verdict, Refused> {
    let version = release.version;
    if record.floor.as_ref().is_some_and(|floor| version < *floor) {
        return Err(Refused::BelowFloor(version));
    }
    if version < *installed {
        return Err(Refused::Backwards { found: version, installed: installed.clone() });
    }
    if version == *installed {
        return Ok(Verdict::UpToDate);
    }
    if record.failed.contains(&version) {
        return Ok(Verdict::Failed(version));
    }
    let mut files = release.files;
    let file = files.remove(&trust.target).ok_or_else(|| Refused::NoFile(trust.target.clone()))?;
    if file.size == 0 || file.size > MAX_FILE {
        return Err(Refused::BadFile(file.size));
    }
    Ok(Verdict::Install { version, file })
}
