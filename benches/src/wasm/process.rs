//! The peers of a cold job: a process for each. Ours does what `wasmtime run --allow-precompiled` does and no more; the real command
//! is measured where it is installed.

use std::{
    env,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context, Result, ensure};
use wasmtime::{Engine, Linker, Module, Store};
use wasmtime_wasi::{
    WasiCtxBuilder,
    p1::{self, WasiP1Ctx},
};

use super::{engine::micros, programs::Program};

/// Runs one compiled program with wasmtime's own settings: the inside of the peer process.
#[expect(unsafe_code, reason = "compiled code is trusted by its loader")]
pub(crate) fn run(compiled: &Path) -> Result<()> {
    let engine = Engine::default();
    let mut linker = Linker::new(&engine);
    p1::add_to_linker_sync(&mut linker, |wasi: &mut WasiP1Ctx| wasi)?;
    // SAFETY: the process that started this one compiled the file itself.
    let module = unsafe { Module::deserialize_file(&engine, compiled)? };
    let mut store = Store::new(&engine, WasiCtxBuilder::new().inherit_stdio().build_p1());
    let instance = linker.instantiate(&mut store, &module)?;
    instance.get_typed_func::<(), ()>(&mut store, "_start")?.call(&mut store, ())?;
    Ok(())
}

/// Microseconds a job, each in a process of this program.
pub(crate) fn own_round(program: &Program, jobs: usize) -> Result<f64> {
    let own = env::current_exe()?;
    round(
        || {
            let mut command = Command::new(&own);
            command.arg("wasm-process").arg(&program.compiled_default);
            command
        },
        program,
        jobs,
    )
}

/// The `wasmtime` command, where there is one.
pub(crate) fn wasmtime_command() -> Option<PathBuf> {
    let folders = env::var_os("PATH")?;
    env::split_paths(&folders).map(|folder| folder.join("wasmtime")).find(|path| path.is_file())
}

/// Microseconds a job, each in a process of `wasmtime run`, which compiles or finds it in its cache.
pub(crate) fn wasmtime_round(wasmtime: &Path, program: &Program, jobs: usize) -> Result<f64> {
    round(
        || {
            let mut command = Command::new(wasmtime);
            command.arg("run").arg(&program.source);
            command
        },
        program,
        jobs,
    )
}

fn round(command: impl Fn() -> Command, program: &Program, jobs: usize) -> Result<f64> {
    let input = program.input.to_string();
    let start = Instant::now();
    for _ in 0..jobs {
        let mut child =
            command().stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("start the peer")?;
        // A program that reads nothing may be gone by now.
        let _ = child.stdin.take().context("it has an input")?.write_all(input.as_bytes());
        let ended = child.wait_with_output()?;
        ensure!(ended.status.success() && !ended.stdout.is_empty(), "the peer failed: {}", ended.status);
    }
    Ok(micros(start.elapsed(), jobs))
}
