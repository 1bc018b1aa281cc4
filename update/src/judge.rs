//! Decides whether a release may be installed. Pure: bytes, keys, the record and the time are arguments.

use std::collections::BTreeSet;

use island_protocol::digest::Digest;
use semver::Version;
use sha2::{Digest as _, Sha256};

use crate::{
    manifest::{File, MAX_BYTES, Manifest, PublicKey, Release},
    record::Record,
};

/// Largest file of a release.
pub const MAX_FILE: u64 = 2 << 30;
/// How far a release's time may be in the future, seconds.
const AHEAD: i64 = 24 * 3600;

/// Whom the owner trusts, and for what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trust {
    /// Public keys of those who make releases.
    pub keys: BTreeSet<PublicKey>,
    /// How many of them must have signed.
    pub threshold: usize,
    /// The installed product.
    pub product: String,
    /// The channel that its owner chose.
    pub channel: String,
    /// The kind of file that this machine installs.
    pub target: String,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The installed version is the newest.
    UpToDate,
    /// The newest version did not start here before.
    Failed(Version),
    /// Install it.
    Install {
        /// Its version.
        version: Version,
        /// Its file for this machine.
        file: File,
    },
}

/// Why a manifest is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It is longer than allowed.
    #[error("the manifest has more than {MAX_BYTES} bytes")]
    TooLong,
    /// It cannot be parsed.
    #[error("invalid manifest: {0}")]
    Malformed(String),
    /// Signatures are missing or invalid.
    #[error("{found} of the trusted keys signed it, {needed} are needed")]
    Unsigned {
        /// Number of valid signatures.
        found: usize,
        /// Number of required signatures.
        needed: usize,
    },
    /// It is for another product or channel.
    #[error("it is a release of {0}")]
    OtherProduct(String),
    /// It is from the future.
    #[error("it was made in the future: is this machine's clock right?")]
    Future,
    /// It has expired.
    #[error("it expired: the server withholds newer releases, or none was made for a long time")]
    Expired,
    /// It is older than one that was seen.
    #[error("it is release {found}, and {seen} was seen here before")]
    Replayed {
        /// Its number.
        found: u64,
        /// The highest number seen.
        seen: u64,
    },
    /// There are two releases with the same number.
    #[error("it is another release {0} than the one that was seen here before")]
    Changed(u64),
    /// It is below the minimum version.
    #[error("version {0} is older than the oldest that may be installed")]
    BelowFloor(Version),
    /// It is older than the installed version.
    #[error("version {found} is older than {installed}, which is installed")]
    Backwards {
        /// Its version.
        found: Version,
        /// The installed version.
        installed: Version,
    },
    /// It has no file for this machine.
    #[error("it has no file for {0}")]
    NoFile(String),
    /// Its file has an impossible length.
    #[error("its file for this machine has {0} bytes")]
    BadFile(u64),
}

/// Verifies a manifest and returns what to do, and the record to store whatever the result of the installation.
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
    // From here on the content is from a trusted source.
    let release: Release = serde_json::from_str(&manifest.release).map_err(malformed)?;
    let record = remembered(&manifest, &release, trust, record, now)?;
    let verdict = choose(release, trust, &record, installed)?;
    let is_due = matches!(verdict, Verdict::Install { .. });
    // Without an update that waits for jobs, the next one waits as long as the first.
    let busy_since = record.busy_since.filter(|_| is_due);
    Ok((verdict, Record { busy_since, ..record }))
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
