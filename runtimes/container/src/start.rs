//! Brings a container to the point where it waits for its input: created, attached, started.

use std::{path::PathBuf, pin::Pin, sync::Arc, time::Duration};

use bollard::{
    container::LogOutput,
    errors::Error,
    query_parameters::{AttachContainerOptionsBuilder, CreateContainerOptions, StartContainerOptions},
};
use futures::Stream;
use island_protocol::{ids::AttemptKey, job::Failure};
use tokio::io::AsyncWrite;
use tokio_util::task::TaskTracker;

use crate::{
    body::create_body,
    daemon::{Daemon, failed, is_missing},
    egress_mount,
    labels::{ContainerLabels, Maker, container_name},
    remover::{Container, Remover},
    resource_limits::ResourceLimits,
};

/// Longest time for which a container that was started in advance waits for its job, with much to spare: it is used within minutes, or removed.
const MAX_WAIT: Duration = Duration::from_mins(30);

/// What a container depends on; jobs with the same may use each other's containers created in advance.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Spec {
    /// The image, by the daemon's name for its content.
    pub image: String,
    /// Variables of the image that are cleared.
    pub cleared: Vec<String>,
    /// What runs in it.
    pub command: Vec<String>,
    /// Its limits.
    pub limits: ResourceLimits,
    /// The GPUs that it may use, by the names of the daemon's toolkit.
    pub gpus: Vec<String>,
    /// The egress folder of one attempt. No other attempt can use such a container.
    pub egress_mount: Option<PathBuf>,
}

/// The output of a container.
pub type Output = Pin<Box<dyn Stream<Item = Result<LogOutput, Error>> + Send>>;

/// A container whose program runs and waits for its input.
pub struct Started {
    /// Removes the container on drop.
    pub container: Container,
    /// What it writes.
    pub output: Output,
    /// What it reads.
    pub input: Pin<Box<dyn AsyncWrite + Send>>,
}

impl std::fmt::Debug for Started {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Started").field(&self.container).finish()
    }
}

/// Why a container could not be started.
#[derive(Debug)]
pub enum NotStarted {
    /// The image was removed.
    ImageGone,
    /// Another reason.
    Failed(Failure),
}

/// Starts containers.
#[derive(Debug, Clone)]
pub struct Starter {
    /// The daemon.
    pub daemon: Daemon,
    /// The identity for labels.
    pub maker: Arc<Maker>,
    /// Removes containers.
    pub remover: Arc<Remover>,
    /// Starts in progress, which continue when their job does not.
    pub tasks: TaskTracker,
}

impl Starter {
    /// Creates one with this identity, on this daemon.
    pub fn new(daemon: Daemon, maker: Maker) -> Self {
        let remover = Arc::new(Remover::start(daemon.clone()));
        Self { daemon, maker: Arc::new(maker), remover, tasks: TaskTracker::new() }
    }

    /// Waits for starts in progress, and removes all containers.
    pub async fn stop(&self) {
        self.tasks.close();
        self.tasks.wait().await;
        self.remover.stop().await;
    }

    /// Starts one. Its program may run before it belongs to a job: it gets its input later.
    pub async fn start(&self, spec: &Spec, key: Option<AttemptKey>) -> Result<Started, NotStarted> {
        let labels = ContainerLabels { maker: &self.maker, key, lifetime: spec.limits.time + MAX_WAIT };
        let mut body = create_body(spec, &labels);
        if let Some(host) = &mut body.host_config {
            let runtime = self.daemon.abilities.runtime(!spec.gpus.is_empty(), spec.egress_mount.is_some());
            host.runtime = runtime.map(str::to_owned);
        }
        let options = CreateContainerOptions { name: key.map(container_name), platform: String::new() };
        let docker = &self.daemon.quick;
        let created = docker.create_container(Some(options), body).await.map_err(|error| {
            if is_missing(&error) {
                NotStarted::ImageGone
            } else {
                NotStarted::Failed(failed("create the container", &error))
            }
        })?;
        let container = self.remover.adopt(created.id);
        let fail = |what| move |error| NotStarted::Failed(failed(what, &error));
        // Before the start, so that the first output is not lost.
        let attach =
            AttachContainerOptionsBuilder::new().stream(true).stdin(true).stdout(true).stderr(true).build();
        let attached = docker.attach_container(container.id(), Some(attach)).await;
        let attached = attached.map_err(fail("attach to the container"))?;
        let started = docker.start_container(container.id(), None::<StartContainerOptions>).await;
        started.map_err(fail("start the container"))?;
        if spec.egress_mount.is_some() {
            // Before the input: a program may connect as soon as it has read it.
            let open = Box::pin(egress_mount::open(&self.daemon, container.id()));
            open.await.map_err(NotStarted::Failed)?;
        }
        Ok(Started { container, output: attached.output, input: attached.input })
    }
}
