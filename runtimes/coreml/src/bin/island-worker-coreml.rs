//! The worker process of the Core ML engine.

use std::{
    env,
    os::unix::process::CommandExt as _,
    process::{Command, ExitCode},
};

use island_runtimes_coreml::worker::CoreMlEngine;
use island_runtimes_graph::library::SILENT;

fn main() -> ExitCode {
    if env::var_os(SILENT).is_none() {
        // The library sends telemetry unless its environment disables it before it is opened: this program executes itself again.
        let Ok(program) = env::current_exe() else { return ExitCode::FAILURE };
        let error = Command::new(program).args(env::args_os().skip(1)).env(SILENT, "1").exec();
        eprintln!("island-worker-coreml cannot execute itself: {error}");
        return ExitCode::FAILURE;
    }
    island_runtimes_worker::inside::main(CoreMlEngine)
}
