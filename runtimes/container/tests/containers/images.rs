//! Images: brought once, never under a name of their own choice, never unsound.

use std::{io::Write, sync::Arc};

use futures::future::join_all;
use island_protocol::job::{FailureCode, Fault};
use island_runtimes_api::Runtime;
use island_runtimes_container::testing::{Tar, busybox, docker_archive};
use serde_json::json;

use crate::support::{Job, World, cargo, play, script, with};

pub(crate) async fn a_file_is_imported_once(world: Arc<World>) {
    let engine = world.engine(0).await;
    let plain =
        busybox().expect("busybox").file("mark", 0o644, b"packed").expect("mark").finish().expect("tar");
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&plain).expect("gzip");
    let file = world.file("packed.tar.gz", &packed.finish().expect("gzip"));
    let before = world.docker.df(None::<bollard::query_parameters::DataUsageOptions>).await.is_ok();
    assert!(before, "the daemon answers");
    let says = || script(r#"printf '{"type":"token","content":"%s"}\n' "$(cat /mark)""#);
    let jobs = (0..4).map(|_| Job::new(&file, says(), json!({})).play(&engine));
    for played in join_all(jobs).await {
        assert_eq!(played.completed().text, "packed");
    }
    let options = bollard::query_parameters::ListImagesOptionsBuilder::new().all(true).build();
    let images = world.docker.list_images(Some(options)).await.expect("images");
    let tagged: Vec<_> = images.iter().flat_map(|image| image.repo_tags.clone()).collect();
    assert!(tagged.iter().all(|tag| tag.starts_with("island/") || tag.starts_with("<none>")), "{tagged:?}");
    engine.shutdown().await;
}

pub(crate) async fn an_archive_is_loaded_without_its_tags(world: Arc<World>) {
    let engine = world.engine(0).await;
    let rootfs = busybox().expect("busybox").finish().expect("tar");
    let config = json!({
        "User": "0:0",
        "Env": ["OF_THE_IMAGE=yes"],
        "Entrypoint": ["/bin/sh", "-c", "printf '{\"type\":\"token\",\"content\":\"%s %s\"}\\n' \"$OF_THE_IMAGE\" \"$(id -u)\""],
        "Labels": {"island.island": "somebody", "island.process": "else"},
    });
    let archive =
        docker_archive(&rootfs, &config, &["debian:latest", "island/0000:latest"]).expect("an archive");
    let file = world.file("archive.tar", &archive);
    let played = Job::new(&file, with(&json!({})), json!({})).play(&engine).await.completed();
    assert_eq!(played.text, "yes 65534", "its own entry point, and never its own user");
    for tag in ["debian:latest", "island/0000:latest"] {
        assert!(world.docker.inspect_image(tag).await.is_err(), "{tag} was taken from the archive");
    }
    engine.shutdown().await;
    world.settle(None, 0).await;
}

pub(crate) async fn an_invalid_image_is_the_jobs_fault(world: Arc<World>) {
    let engine = world.engine(0).await;
    let rootfs = busybox().expect("busybox").finish().expect("tar");
    let volumes = json!({"Volumes": {"/data": {}}, "Cmd": ["/bin/true"]});
    let files: Vec<(&str, Vec<u8>)> = vec![
        ("empty", Vec::new()),
        ("noise", vec![0x5a; 10_000]),
        ("cut.tar", rootfs[..rootfs.len() / 2].to_vec()),
        ("volumes.tar", docker_archive(&rootfs, &volumes, &[]).expect("an archive")),
        (
            "device.tar",
            Tar::default()
                .entry("disk", tar::EntryType::Block, 0o666, &[])
                .expect("tar")
                .finish()
                .expect("tar"),
        ),
    ];
    for (name, bytes) in files {
        let file = world.file(name, &bytes);
        let played = Job::new(&file, cargo(&["/bin/true"]), json!({})).play(&engine).await;
        let failure = played.failure();
        assert_eq!(
            (failure.fault, failure.code),
            (Fault::Job, FailureCode::ModelRejected),
            "{name}: {failure:?}"
        );
    }
    let gone =
        Job::new(std::path::Path::new("/no/such/file"), cargo(&["/bin/true"]), json!({})).play(&engine).await;
    assert_eq!((gone.failure().fault, gone.failure().code), (Fault::Host, FailureCode::ModelUnavailable));
    engine.shutdown().await;
}

pub(crate) async fn a_removed_image_is_loaded_again(world: Arc<World>) {
    let engine = world.engine(1).await;
    let hello = || cargo(&["/bin/cargo"]);
    play(&world, &engine, hello(), json!({"text": "first"})).await.completed();
    engine.shutdown().await;
    let engine = world.engine(0).await;
    play(&world, &engine, hello(), json!({"text": "second"})).await.completed();
    world.settle(None, 0).await;
    let images =
        world.docker.list_images(None::<bollard::query_parameters::ListImagesOptions>).await.expect("images");
    for image in images {
        let options = bollard::query_parameters::RemoveImageOptionsBuilder::new().force(true).build();
        world.docker.remove_image(&image.id, Some(options), None).await.expect("removed");
    }
    let played = play(&world, &engine, hello(), json!({"text": "third"})).await.completed();
    assert_eq!(played.text, "third ");
    engine.shutdown().await;
}
