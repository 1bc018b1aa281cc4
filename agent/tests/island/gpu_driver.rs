//! NVIDIA's driver, replaced by a library that hangs, crashes or answers, as a file orders at each call.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Output},
};

use serde_json::json;

use crate::{
    coordinator::Received,
    fixture::{AGENT, Island, assignment, wait_for},
    stories::assert_completed,
};

/// Minimal library for NVML: one GPU of 8 GB whose other values are not reported.
const LIBRARY: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
typedef unsigned int u32; typedef unsigned long long u64;
static void misbehave(void) {
    for (;;) {
        char order[16] = ""; FILE *file = fopen(getenv("ORDERED"), "r");
        if (file) { if (!fgets(order, sizeof order, file)) order[0] = 0; fclose(file); }
        if (!strcmp(order, "crash")) *(volatile int *)0 = 1;
        if (strcmp(order, "hang")) return;
        usleep(10000);
    }
}
int nvmlInit_v2(void) { misbehave(); return 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { return "an error"; }
int nvmlDeviceGetCount_v2(u32 *count) { misbehave(); *count = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(u32 index, void **device) { *device = (void *)1; return 0; }
int nvmlDeviceGetMemoryInfo_v2(void *device, struct { u32 version; u64 total, reserved, free, used; } *memory) {
    memory->total = 8ull << 30; memory->used = 0; return 0;
}
int nvmlDeviceGetUUID(void *device, char *text, u32 size) {
    snprintf(text, size, "GPU-00000000-0000-0000-0000-000000000000"); return 0;
}
int nvmlDeviceGetName(void *device, char *text, u32 size) { snprintf(text, size, "Scripted GPU"); return 0; }
"#;

/// The library in a folder of its own.
struct Driver(tempfile::TempDir);

impl Driver {
    fn that(order: &str) -> Self {
        let driver = Self(tempfile::tempdir().expect("temporary folder"));
        let source = driver.path("nvml.c");
        fs::write(&source, LIBRARY).expect("write");
        let mut compiler = Command::new("cc");
        compiler.args(["-w", "-shared", "-fPIC", "-o"]).arg(driver.path("libnvidia-ml.so.1")).arg(source);
        assert!(compiler.status().expect("start cc").success(), "the library compiles");
        driver.order(order);
        driver
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn order(&self, order: &str) {
        let new = self.path("new");
        fs::write(&new, order).expect("write");
        fs::rename(new, self.path("ordered")).expect("rename");
    }

    /// The agent on a machine with this driver.
    fn agent(&self) -> Command {
        let mut agent = Command::new(AGENT);
        agent.env("LD_LIBRARY_PATH", self.0.path()).env("ORDERED", self.path("ordered"));
        agent
    }

    fn run(&self, island: &Island, command: &str) -> Output {
        let state = island.path("");
        self.agent().arg(command).arg("--state-dir").arg(state).output().expect("run island-agent")
    }
}

/// Returns the number of GPUs that were registered last.
fn gpus(seen: &Received) -> Option<usize> {
    Some(seen.registers.last()?.capabilities.gpus.len())
}

/// Waits until the status contains this text.
async fn status_with(island: &Island, part: &str) {
    wait_for(part, || island.agent(&["status"]).contains(part).then_some(())).await;
}

async fn runs_a_job(island: &Island) {
    let key = island.run(&assignment(json!({"prompt": "on the processor", "max_tokens": 5}))).await;
    assert_completed(&island.coordinator.end(key).await, "on the processor", 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_driver_that_hangs_at_first_costs_only_its_gpus() {
    let driver = Driver::that("hang");
    let island = Island::by(driver.agent()).await;
    assert_eq!(gpus(&island.coordinator.seen()), Some(0));
    runs_a_job(&island).await;
    status_with(&island, "libnvidia-ml.so.1 was not opened").await;
    let doctor = String::from_utf8(driver.run(&island, "doctor").stdout).expect("text");
    let problem = doctor.lines().find(|line| line.contains("libnvidia-ml.so.1")).expect("it is named");
    assert!(problem.starts_with("PROBLEM") && problem.contains(", since "), "{doctor}");
    driver.order("answer");
    island.coordinator.wait("a GPU", |seen| (gpus(seen)? == 1).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_driver_that_crashes_or_hangs_is_opened_again() {
    let driver = Driver::that("crash");
    let island = Island::by(driver.agent()).await;
    runs_a_job(&island).await;
    status_with(&island, "libnvidia-ml.so.1 ended its process with signal: 11").await;
    driver.order("answer");
    island.coordinator.wait("a GPU", |seen| (gpus(seen)? == 1).then_some(())).await;
    driver.order("hang");
    island.coordinator.wait("the loss", |seen| (gpus(seen)? == 0).then_some(())).await;
    status_with(&island, "libnvidia-ml.so.1 hangs").await;
    runs_a_job(&island).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_process_of_a_hanging_driver_ends_with_agent() {
    let driver = Driver::that("hang");
    let mut island = Island::by(driver.agent()).await;
    let stubs = || {
        let processes = fs::read_dir("/proc").expect("list processes").flatten();
        let name = driver.0.path().to_str().expect("a plain path").to_owned();
        let loads = |entry: &fs::DirEntry| {
            fs::read_to_string(entry.path().join("maps")).is_ok_and(|maps| maps.contains(&name))
        };
        processes.filter(loads).count()
    };
    assert_eq!(stubs(), 1);
    island.kill_agent();
    wait_for("its end", || (stubs() == 0).then_some(())).await;
}
