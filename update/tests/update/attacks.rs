//! What others may try with releases, and what is made of it: the attacks that update systems are known for, each refused by name.

use std::collections::BTreeSet;

use ed25519_dalek::SigningKey;
use island_protocol::digest::Digest;
use island_update::{
    judge::{Refused, Trust, Verdict, judge},
    manifest::{File, MAX_BYTES, Manifest, PublicKey, Release},
    record::Record,
};
use proptest::prelude::*;
use semver::Version;

const NOW: i64 = 1_800_000_000;
const DAY: i64 = 24 * 3600;

fn key(n: u8) -> SigningKey {
    SigningKey::from_bytes(&[n; 32])
}

fn trust(keys: &[u8], threshold: usize) -> Trust {
    Trust {
        keys: keys.iter().map(|n| PublicKey::of(&key(*n))).collect::<BTreeSet<_>>(),
        threshold,
        product: "island-agent".to_owned(),
        channel: "stable".to_owned(),
        target: "x86_64-deb".to_owned(),
    }
}

fn version(text: &str) -> Version {
    text.parse().expect("a version")
}

fn release() -> Release {
    let file =
        File { url: "island-agent.deb".to_owned(), size: 1000, sha256: Digest::from_bytes([0xab; 32]) };
    Release {
        product: "island-agent".to_owned(),
        channel: "stable".to_owned(),
        number: 7,
        version: version("0.2.0"),
        floor: version("0.1.0"),
        issued_at: NOW - DAY,
        expires_at: NOW + 30 * DAY,
        files: [("x86_64-deb".to_owned(), file)].into(),
    }
}

fn signed(release: &Release, keys: &[u8]) -> Vec<u8> {
    let keys: Vec<_> = keys.iter().map(|n| key(*n)).collect();
    serde_json::to_vec(&Manifest::sign(release, &keys)).expect("json")
}

/// The decision on a release signed by key 1, which is trusted, for version 0.1.0.
fn judged(release: &Release, record: &Record) -> Result<(Verdict, Record), Refused> {
    judge(&signed(release, &[1]), &trust(&[1], 1), record, &version("0.1.0"), NOW)
}

#[test]
fn a_valid_release_is_installed_once_and_recorded() {
    let (verdict, record) = judged(&release(), &Record::default()).expect("good");
    assert!(matches!(verdict, Verdict::Install { version: found, .. } if found == version("0.2.0")));
    assert_eq!((record.number, record.floor.clone()), (7, Some(version("0.1.0"))));
    let again = judge(&signed(&release(), &[1]), &trust(&[1], 1), &record, &version("0.2.0"), NOW);
    assert_eq!(again.expect("good").0, Verdict::UpToDate);
    let failed = Record { failed: [version("0.2.0")].into(), ..record };
    assert_eq!(judged(&release(), &failed).expect("good").0, Verdict::Failed(version("0.2.0")));
}

#[test]
fn a_wait_for_jobs_ends_with_the_update_that_waits() {
    let waits = Record { busy_since: Some(NOW - DAY), ..Record::default() };
    let (verdict, record) = judged(&release(), &waits).expect("good");
    assert!(matches!(verdict, Verdict::Install { .. }));
    assert_eq!(record.busy_since, Some(NOW - DAY), "it still waits");
    // Its owner installed it by hand: a release in some months has to wait for jobs again.
    let by_hand = judge(&signed(&release(), &[1]), &trust(&[1], 1), &waits, &version("0.2.0"), NOW);
    let (verdict, record) = by_hand.expect("good");
    assert_eq!((verdict, record.busy_since), (Verdict::UpToDate, None));
    let failed = Record { failed: [version("0.2.0")].into(), ..waits };
    assert_eq!(judged(&release(), &failed).expect("good").1.busy_since, None);
}

#[test]
fn arbitrary_software_is_refused() {
    let manifest = |keys: &[u8]| signed(&release(), keys);
    let made = |bytes: &[u8], trust: &Trust| {
        judge(bytes, trust, &Record::default(), &version("0.1.0"), NOW).map(|(verdict, _)| verdict)
    };
    assert_eq!(made(&manifest(&[9]), &trust(&[1], 1)), Err(Refused::Unsigned { found: 0, needed: 1 }));
    assert_eq!(made(&manifest(&[1, 9]), &trust(&[1, 2], 2)), Err(Refused::Unsigned { found: 1, needed: 2 }));
    assert!(made(&manifest(&[1, 2]), &trust(&[1, 2, 3], 2)).is_ok());
    // Signatures below the threshold or of untrusted keys do not count.
    assert_eq!(made(&manifest(&[1]), &trust(&[], 0)), Err(Refused::Unsigned { found: 0, needed: 1 }));
    // A signature of one key under the name of another.
    let mut forged: Manifest = serde_json::from_slice(&manifest(&[9])).expect("json");
    let (_, signature) = forged.signatures.pop_first().expect("one");
    forged.signatures.insert(PublicKey::of(&key(1)), signature);
    let forged = serde_json::to_vec(&forged).expect("json");
    assert_eq!(made(&forged, &trust(&[1], 1)), Err(Refused::Unsigned { found: 0, needed: 1 }));
    // A release that was changed after it was signed.
    let mut changed: Manifest = serde_json::from_slice(&manifest(&[1])).expect("json");
    changed.release = changed.release.replace("island-agent.deb", "something.deb");
    let changed = serde_json::to_vec(&changed).expect("json");
    assert_eq!(made(&changed, &trust(&[1], 1)), Err(Refused::Unsigned { found: 0, needed: 1 }));
}

#[test]
fn downgrades_and_expired_releases_are_refused() {
    let seen = judged(&release(), &Record::default()).expect("good").1;
    let older = Release { number: 6, version: version("0.3.0"), ..release() };
    assert_eq!(judged(&older, &seen), Err(Refused::Replayed { found: 6, seen: 7 }));
    let twin = Release { version: version("0.3.0"), ..release() };
    assert_eq!(judged(&twin, &seen), Err(Refused::Changed(7)));
    let downgrade = Release { number: 8, version: version("0.0.9"), floor: version("0.0.1"), ..release() };
    assert_eq!(judged(&downgrade, &seen), Err(Refused::BelowFloor(version("0.0.9"))), "floors only rise");
    let backwards = Release { number: 8, version: version("0.1.5"), ..release() };
    let installed = version("0.2.0");
    let found = judge(&signed(&backwards, &[1]), &trust(&[1], 1), &seen, &installed, NOW);
    assert_eq!(found, Err(Refused::Backwards { found: version("0.1.5"), installed }));
    let frozen = Release { expires_at: NOW, ..release() };
    assert_eq!(judged(&frozen, &Record::default()), Err(Refused::Expired));
    let future = Release { issued_at: NOW + 2 * DAY, ..release() };
    assert_eq!(judged(&future, &Record::default()), Err(Refused::Future));
}

#[test]
fn releases_of_other_products_and_impossible_files_are_refused() {
    let refused = |release: Release| judged(&release, &Record::default()).expect_err("refused");
    let product = refused(Release { product: "other".to_owned(), ..release() });
    assert_eq!(product, Refused::OtherProduct("other (stable)".to_owned()));
    let channel = refused(Release { channel: "nightly".to_owned(), ..release() });
    assert_eq!(channel, Refused::OtherProduct("island-agent (nightly)".to_owned()));
    let none = refused(Release { files: std::collections::BTreeMap::new(), ..release() });
    assert_eq!(none, Refused::NoFile("x86_64-deb".to_owned()));
    let mut endless = release();
    endless.files.get_mut("x86_64-deb").expect("a file").size = u64::MAX;
    assert_eq!(refused(endless), Refused::BadFile(u64::MAX));
    let long = judge(&vec![b' '; MAX_BYTES + 1], &trust(&[1], 1), &Record::default(), &version("0.1.0"), NOW);
    assert_eq!(long, Err(Refused::TooLong));
}

proptest! {
    /// A manifest with any byte changed or cut off is refused, or means the same.
    #[test]
    fn no_changed_manifest_is_accepted(at in 0_usize..2000, byte in any::<u8>(), cut in any::<bool>()) {
        let good = signed(&release(), &[1]);
        let meant = judged(&release(), &Record::default());
        let at = at % good.len();
        let mut bytes = good;
        if cut { bytes.truncate(at) } else { bytes[at] = byte }
        let found = judge(&bytes, &trust(&[1], 1), &Record::default(), &version("0.1.0"), NOW);
        prop_assert!(found.is_err() || found == meant);
    }
}
