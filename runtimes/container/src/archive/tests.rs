use std::io::Write;

use serde_json::{Value, json};
use tempfile::NamedTempFile;

use super::*;
use crate::testing::{Tar, docker_archive};

fn file(bytes: &[u8]) -> NamedTempFile {
    let mut file = NamedTempFile::new().expect("a file");
    file.write_all(bytes).expect("written");
    file
}

fn rewritten(bytes: &[u8]) -> Result<Vec<u8>, ArchiveError> {
    let file = file(bytes);
    let mut out = Vec::new();
    Archive::examine(file.path())?.write(&mut out, |_| ())?;
    Ok(out)
}

fn names(archive: &[u8]) -> Vec<String> {
    let mut archive = tar::Archive::new(archive);
    let entries = archive.entries().expect("entries");
    entries.map(|entry| entry.expect("entry").path().expect("path").display().to_string()).collect()
}

fn text(archive: &[u8], name: &str) -> Value {
    let mut archive = tar::Archive::new(archive);
    let mut entries = archive.entries().expect("entries");
    let entry = entries.find_map(|entry| {
        let entry = entry.expect("entry");
        (entry.path().expect("path") == Path::new(name)).then_some(entry)
    });
    serde_json::from_reader(entry.expect(name)).expect("JSON")
}

fn rootfs() -> Vec<u8> {
    let tar = Tar::default().folder("bin", 0o755).and_then(|tar| tar.file("bin/x", 0o755, b"program"));
    tar.and_then(Tar::finish).expect("a tar")
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    packed.write_all(bytes).expect("packed");
    packed.finish().expect("packed")
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

#[test]
fn a_file_system_is_unchanged_in_every_packing() {
    let plain = rootfs();
    assert_eq!(rewritten(&plain).expect("plain"), plain);
    assert_eq!(rewritten(&gzip(&plain)).expect("gzip"), plain);
    assert_eq!(rewritten(&zstd(&plain)).expect("zstd"), plain);
    let (front, back) = plain.split_at(700);
    assert_eq!(rewritten(&[zstd(front), zstd(back)].concat()).expect("frames"), plain);
    assert_eq!(rewritten(&[gzip(front), gzip(back)].concat()).expect("members"), plain);
}

#[test]
fn tags_are_removed_from_an_archive_and_its_image_kept() {
    let layer = rootfs();
    let config = json!({"Cmd": ["/bin/x"]});
    let archive =
        docker_archive(&layer, &config, &["debian:latest", "island/aa:latest"]).expect("an archive");
    let out = rewritten(&archive).expect("rewritten");
    assert_eq!(names(&out), ["config.json", "manifest.json", "0.tar"]);
    assert_eq!(
        text(&out, "manifest.json"),
        json!([{"Config": "config.json", "RepoTags": null, "Layers": ["0.tar"]}])
    );
    assert_eq!(text(&out, "config.json")["config"], config);
    assert!(!String::from_utf8_lossy(&out).contains("debian"), "its tags are removed");
}

#[test]
fn an_oci_layout_is_the_same_image() {
    let layer = rootfs();
    let digest = |bytes: &[u8]| {
        use sha2::Digest;
        crate::labels::hex(&sha2::Sha256::digest(bytes))
    };
    let machine = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let config = json!({
        "architecture": machine, "os": "linux",
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{}", digest(&layer))]},
    });
    let (config, packed) = (config.to_string(), gzip(&layer));
    let blob = |bytes: &[u8]| json!({"digest": format!("sha256:{}", digest(bytes)), "size": bytes.len()});
    let manifest =
        json!({"schemaVersion": 2, "config": blob(config.as_bytes()), "layers": [blob(&packed)]}).to_string();
    let mut ours = blob(manifest.as_bytes());
    ours["platform"] = json!({"os": "linux", "architecture": machine});
    let mut theirs = ours.clone();
    theirs["platform"]["architecture"] = json!("riscv64");
    ours["annotations"] = json!({"org.opencontainers.image.ref.name": "debian:latest"});
    let index = json!({"schemaVersion": 2, "manifests": [theirs, ours]}).to_string();
    let mut tar =
        Tar::default().file("oci-layout", 0o644, br#"{"imageLayoutVersion":"1.0.0"}"#).expect("tar");
    for bytes in [packed.as_slice(), config.as_bytes(), manifest.as_bytes()] {
        tar = tar.file(&format!("blobs/sha256/{}", digest(bytes)), 0o644, bytes).expect("tar");
    }
    let archive = tar.file("index.json", 0o644, index.as_bytes()).and_then(Tar::finish).expect("tar");
    let out = rewritten(&archive).expect("rewritten");
    assert_eq!(names(&out), ["config.json", "manifest.json", "0.tar"]);
    assert_eq!(text(&out, "config.json")["rootfs"]["diff_ids"][0], format!("sha256:{}", digest(&layer)));
    assert!(String::from_utf8_lossy(&out).contains("program"), "the layer is unpacked");
}

#[test]
fn invalid_images_are_rejected_with_a_reason() {
    let layer = rootfs();
    let image = |config: &Value| docker_archive(&layer, config, &[]).expect("an archive");
    let two = json!([{"Config": "a", "Layers": []}, {"Config": "b", "Layers": []}]).to_string();
    let entry =
        |name: &str, kind| Tar::default().entry(name, kind, 0o644, &[]).and_then(Tar::finish).expect("tar");
    let sparse = {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::GNUSparse);
        header.set_path("hole").expect("a name");
        header.set_size(0);
        if let Some(gnu) = header.as_gnu_mut() {
            gnu.set_atime(0);
            gnu.realsize.copy_from_slice(b"77777777777\0");
        }
        header.set_cksum();
        [header.as_bytes().as_slice(), &[0; 1024]].concat()
    };
    let by_way_of_dev = {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Block);
        header.as_old_mut().name[..12].copy_from_slice(b"dev/../x/sda");
        header.set_size(0);
        header.set_cksum();
        [header.as_bytes().as_slice(), &[0; 1024]].concat()
    };
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("nothing", Vec::new(), "empty"),
        ("xz", b"\xfd7zXZ\0 more".to_vec(), "xz"),
        ("bzip2", b"BZh91AY".to_vec(), "bzip2"),
        ("a disk", entry("data/sda", tar::EntryType::Block), "device"),
        ("a disk by way of /dev", by_way_of_dev, "device"),
        ("a hole", sparse, "sparse"),
        ("volumes", image(&json!({"Volumes": {"/data": {}}})), "volumes"),
        (
            "two images",
            Tar::default().file("manifest.json", 0o644, two.as_bytes()).and_then(Tar::finish).expect("tar"),
            "2 images",
        ),
        ("no manifest", entry("oci-layout", tar::EntryType::Regular), "neither"),
    ];
    for (name, bytes, word) in cases {
        let error = rewritten(&bytes).expect_err(name);
        assert!(error.is_of_file(), "{name}: {error}");
        assert!(error.to_string().contains(word), "{name}: {error}");
    }
}

/// An image that names its only layer `times` times.
fn repeating(layer: &[u8], times: usize) -> Vec<u8> {
    let config = json!({"rootfs": {"type": "layers", "diff_ids": vec!["sha256:00"; times]}}).to_string();
    let manifest = json!([{"Config": "config.json", "Layers": vec!["layer.tar"; times]}]).to_string();
    Tar::default()
        .file("manifest.json", 0o644, manifest.as_bytes())
        .and_then(|tar| tar.file("config.json", 0o644, config.as_bytes()))
        .and_then(|tar| tar.file("layer.tar", 0o644, layer))
        .and_then(Tar::finish)
        .expect("a tar")
}

#[test]
fn a_layer_counts_as_often_as_the_image_names_it() {
    let layer = rootfs();
    let length = layer.len() as u64;
    for packed in [layer.clone(), gzip(&layer)] {
        let file = file(&repeating(&packed, 20));
        let examined = |most| Bundle::examine(Source::of(file.path()).expect("a file"), most);
        assert_eq!(examined(20 * length).expect("it fits").unpacked_bytes(), 20 * length);
        let error = examined(20 * length - 1).expect_err("the image is too large");
        assert!(
            error.is_of_file() && error.to_string().contains("its layers unpack to more than"),
            "{error}"
        );
    }
    let examined = Archive::examine(file(&gzip(&layer)).path()).expect("a file system");
    assert_eq!(examined.unpacked_bytes(), length);
}

#[test]
fn a_layer_that_is_there_twice_is_rejected() {
    let config = json!({"rootfs": {"type": "layers", "diff_ids": ["sha256:00"]}}).to_string();
    let manifest = json!([{"Config": "config.json", "Layers": ["layer.tar"]}]).to_string();
    // Cut to the length of the short one, the long one ends in a manifest with the tag of another image.
    let tagged = json!([{"Config": "config.json", "RepoTags": ["debian:latest"], "Layers": ["layer.tar"]}]);
    let hidden = Tar::default().file("manifest.json", 0o644, tagged.to_string().as_bytes());
    let hidden = hidden.and_then(Tar::finish).expect("a tar");
    let short = rootfs();
    let content = [vec![0; short.len() - 512], hidden].concat();
    let long = Tar::default().file("x", 0o644, &content).and_then(Tar::finish).expect("a tar");
    for second in ["layer.tar", "./layer.tar"] {
        let archive = Tar::default()
            .file("manifest.json", 0o644, manifest.as_bytes())
            .and_then(|tar| tar.file("config.json", 0o644, config.as_bytes()))
            .and_then(|tar| tar.file("layer.tar", 0o644, &long))
            .and_then(|tar| tar.file(second, 0o644, &short))
            .and_then(Tar::finish)
            .expect("a tar");
        let error = rewritten(&archive).expect_err("two layers of one name");
        assert!(error.is_of_file() && error.to_string().contains("more than once"), "{error}");
    }
}

#[test]
fn devices_in_dev_are_accepted() {
    let tar = Tar::default()
        .entry("./dev/null", tar::EntryType::Char, 0o666, &[])
        .and_then(Tar::finish)
        .expect("tar");
    assert!(rewritten(&tar).is_ok());
}

#[test]
fn a_bomb_is_detected_while_it_is_unpacked() {
    let zeros = vec![0_u8; 100 << 20];
    let bomb = Tar::default().file("zeros", 0o644, &zeros).and_then(Tar::finish).expect("tar");
    for packed in [gzip(&bomb), zstd(&bomb)] {
        assert!(packed.len() < 1 << 20, "it is a bomb");
        let error = rewritten(&packed).expect_err("a bomb");
        assert!(error.is_of_file() && error.to_string().contains("far more"), "{error}");
    }
}

proptest::proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(noise in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..3000), start in 0_usize..3) {
        let starts: [&[u8]; 3] = [&[], &[0x1f, 0x8b, 8], &[0x28, 0xb5, 0x2f, 0xfd]];
        let _ = rewritten(&[starts[start], &noise].concat());
    }
}
