//! Jobs from start to end, and that nothing remains of them.

use std::sync::Arc;

use bollard::{models::ContainerCreateBody, query_parameters::CreateContainerOptions};
use island_protocol::{
    ids::InstanceId,
    job::{FailureCode, Fault, Outcome},
};
use island_runtimes_api::Runtime;
use island_runtimes_container::{
    daemon::Daemon,
    labels::{ISLAND, JOB, LIFETIME, WORKER},
    orphans,
};
use island_runtimes_worker::host::Orphans;
use serde_json::json;
use uuid::Uuid;

use crate::support::{Job, World, cargo, play, script, with, within};

pub(crate) async fn a_job_streams_and_ends(world: Arc<World>) {
    let engine = world.engine(0).await;
    let played = play(&world, &engine, cargo(&["/bin/cargo"]), json!({"text": "a b c"})).await.completed();
    assert_eq!(played.text, "a b c ");
    assert_eq!(played.log, "debug words\n");
    // Input is one JSON text and then the end of file; the program's result line is the result.
    let echo = script(r#"printf '{"type":"result","output":'; cat; echo '}'"#);
    let input = json!({"nested": {"a": [1, "zwei", null]}, "quote": "\"\n"});
    let Outcome::Completed { output, .. } = play(&world, &engine, echo, input.clone()).await.outcome else {
        panic!("it failed")
    };
    assert_eq!(output, Some(input));
    // A program may ignore a long input.
    let long = json!({"text": "x".repeat(4 << 20)});
    play(&world, &engine, script(r#"echo '{"type":"done"}'"#), long).await.completed();
    engine.shutdown().await;
    world.settle(None, 0).await;
}

pub(crate) async fn ends_are_distinguished(world: Arc<World>) {
    let engine = world.engine(0).await;
    let fails = async |text: &str| play(&world, &engine, script(text), json!({})).await;
    for (text, code, words) in [
        ("exit 3", FailureCode::CargoFailed, "exit code 3"),
        ("kill -SEGV $$", FailureCode::CargoFailed, "signal 11"),
        ("kill -KILL $$", FailureCode::CargoFailed, "signal 9"),
        ("tail /dev/zero", FailureCode::OutOfMemory, "256 MB"),
        (r#"echo '{"type":"error","message":"no such page"}'"#, FailureCode::CargoFailed, "no such page"),
        ("echo nonsense", FailureCode::InvalidOutput, "without a `result`"),
        (
            r#"echo '{"type":"result","output":NaN}'; sleep 60"#,
            FailureCode::InvalidOutput,
            "line 1, result: NaN is not JSON",
        ),
    ] {
        let played = fails(text).await;
        let failure = played.failure();
        assert_eq!((failure.fault, failure.code), (Fault::Job, code), "{text}: {failure:?}");
        assert!(failure.message.contains(words), "{text}: {failure:?}");
    }
    let missing = play(&world, &engine, cargo(&["/no/such/program"]), json!({})).await;
    assert_eq!((missing.failure().fault, missing.failure().code), (Fault::Job, FailureCode::CargoFailed));
    let none = play(&world, &engine, with(&json!({})), json!({})).await;
    assert_eq!((none.failure().fault, none.failure().code), (Fault::Job, FailureCode::ModelRejected));
    engine.shutdown().await;
    world.settle(None, 0).await;
}

pub(crate) async fn a_cancelled_run_leaves_nothing(world: Arc<World>) {
    let engine = world.engine(1).await;
    for _ in 0..2 {
        let mut job = Job::new(&world.image, cargo(&["/bin/cargo"]), json!({"mode": "long"}));
        let cancel = job.context.cancel.clone();
        let run = Box::pin(engine.run(job.request, job.context));
        let stop = async {
            assert!(within(job.events.recv()).await.is_some());
            cancel.cancel();
        };
        let (outcome, ()) = within(async { tokio::join!(run, stop) }).await;
        let Outcome::Failed { failure, .. } = outcome else { panic!("it completed") };
        assert_eq!((failure.fault, failure.code), (Fault::Interrupted, FailureCode::CancelledByUser));
    }
    engine.shutdown().await;
    assert!(world.containers(None).await.is_empty(), "a shutdown leaves nothing");
}

pub(crate) async fn a_dropped_run_leaves_nothing(world: Arc<World>) {
    let island = Uuid::now_v7().to_string();
    let engine = world.engine_of(&island, 0).await;
    let mut job = Job::new(&world.image, cargo(&["/bin/cargo"]), json!({"mode": "long"}));
    {
        let mut run = Box::pin(engine.run(job.request, job.context));
        within(async {
            tokio::select! {
                event = job.events.recv() => assert!(event.is_some()),
                outcome = &mut run => panic!("it ended: {outcome:?}"),
            }
        })
        .await;
    }
    world.settle(Some(&island), 0).await;
    // Dropped while it is being started, repeatedly.
    for _ in 0..3 {
        let job = Job::new(&world.image, cargo(&["/bin/cargo"]), json!({"mode": "long"}));
        let run = engine.run(job.request, job.context);
        assert!(tokio::time::timeout(std::time::Duration::from_millis(40), run).await.is_err(), "too quick");
    }
    engine.shutdown().await;
    world.settle(Some(&island), 0).await;
}

pub(crate) async fn a_run_ends_at_its_deadline(world: Arc<World>) {
    let engine = world.engine(0).await;
    // A program that closed its output and continues is treated like one that writes nothing.
    for text in ["sleep 60", "exec >&- 2>&-; sleep 60"] {
        let cargo =
            with(&json!({"engine": {"command": ["/bin/sh", "-c", text]}, "limits": {"timeout_s": 1}}));
        let played = play(&world, &engine, cargo, json!({})).await;
        let failure = played.failure();
        assert_eq!((failure.fault, failure.code), (Fault::Job, FailureCode::DeadlineExceeded), "{text}");
    }
    engine.shutdown().await;
    world.settle(None, 0).await;
}

pub(crate) async fn orphans_of_dead_workers_are_removed_and_no_others(world: Arc<World>) {
    let (ours, others) = (Uuid::now_v7().to_string(), Uuid::now_v7().to_string());
    let engine = world.engine(0).await;
    play(&world, &engine, cargo(&["/bin/cargo"]), json!({"text": "brings the image"})).await.completed();
    engine.shutdown().await;
    let image =
        world.docker.list_images(None::<bollard::query_parameters::ListImagesOptions>).await.expect("images");
    let image = image.first().expect("one").id.clone();
    let leave = async |island: &str, worker: &InstanceId| {
        let labels = [(ISLAND, island), (WORKER, &worker.to_string()), (JOB, "x")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let body = ContainerCreateBody {
            image: Some(image.clone()),
            cmd: Some(vec!["/bin/true".to_owned()]),
            labels: Some(labels.into_iter().collect()),
            ..ContainerCreateBody::default()
        };
        world.docker.create_container(None::<CreateContainerOptions>, body).await.expect("a container").id
    };
    let [dead, alive] = [(); 2].map(|()| InstanceId(Uuid::now_v7()));
    leave(&ours, &dead).await;
    let in_use = leave(&ours, &alive).await;
    let foreign = leave(&others, &dead).await;
    let daemon = Daemon::connect(&world.socket).await.expect("a daemon");
    let none = orphans::remove(&daemon, &ours, &Orphans::Of(vec![])).await.expect("nothing to do");
    assert_eq!(none, 0);
    let removed = orphans::remove(&daemon, &ours, &Orphans::AllBut(vec![alive])).await.expect("removed");
    assert_eq!(removed, 1);
    assert_eq!(
        world.containers(Some(&ours)).await,
        std::slice::from_ref(&in_use),
        "what a live worker uses stays"
    );
    assert_eq!(
        world.containers(Some(&others)).await,
        std::slice::from_ref(&foreign),
        "another Island's stays"
    );
    assert_eq!(orphans::remove(&daemon, &ours, &Orphans::Of(vec![alive])).await.expect("removed"), 1);
    assert!(world.containers(Some(&ours)).await.is_empty());
    world.docker.remove_container(&foreign, None).await.expect("removed");
}

pub(crate) async fn what_exists_for_too_long_is_removed(world: Arc<World>) {
    let engine = world.engine(0).await;
    play(&world, &engine, cargo(&["/bin/cargo"]), json!({"text": "brings the image"})).await.completed();
    engine.shutdown().await;
    let images = world.docker.list_images(None::<bollard::query_parameters::ListImagesOptions>).await;
    let image = images.expect("images").first().expect("one").id.clone();
    let (island, worker) = (Uuid::now_v7().to_string(), InstanceId(Uuid::now_v7()));
    let leave = async |lifetime: Option<&str>| {
        let mut labels: std::collections::HashMap<_, _> =
            [(ISLAND, island.as_str()), (WORKER, &worker.to_string())]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into();
        labels.extend(lifetime.map(|lifetime| (LIFETIME.to_owned(), lifetime.to_owned())));
        let body = ContainerCreateBody {
            image: Some(image.clone()),
            cmd: Some(vec!["/bin/true".to_owned()]),
            labels: Some(labels),
            ..ContainerCreateBody::default()
        };
        world.docker.create_container(None::<CreateContainerOptions>, body).await.expect("a container").id
    };
    leave(Some("0")).await;
    let (young, of_an_earlier_version) = (leave(Some("3600")).await, leave(None).await);
    let daemon = Daemon::connect(&world.socket).await.expect("a daemon");
    let removed = async {
        // It is too old a second after it was created.
        while orphans::remove_expired(&daemon, &island, worker).await.expect("removed") == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    within(removed).await;
    let mut left = world.containers(Some(&island)).await;
    let mut expected = [young, of_an_earlier_version];
    left.sort();
    expected.sort();
    assert_eq!(left, expected);
    let other = InstanceId(Uuid::now_v7());
    assert_eq!(orphans::remove_expired(&daemon, &island, other).await.expect("nothing to do"), 0);
    assert_eq!(orphans::remove(&daemon, &island, &Orphans::AllBut(vec![])).await.expect("removed"), 2);
}
