//! Compiles a program once per file, in a separate process because compiling may exhaust its limits. Jobs never compile.

use std::{fs, path::Path};

use island_protocol::job::{Failure, FailureCode};

use crate::{
    engine::Engines,
    inspect::{self, Kind, rejected},
    program::Linkers,
    verdict::chain,
};

/// Compiles the program in `from` to a file `into`, with or without metering.
pub fn compile(from: &Path, into: &Path, metered: bool) -> Result<(), Failure> {
    let code = compiled(from, metered)?;
    fs::write(into, code).map_err(|error| {
        Failure::of_host(FailureCode::DiskFull, format!("write the compiled program: {error}"))
    })
}

/// The compiled program in `from`, which is linked once.
pub(crate) fn compiled(from: &Path, metered: bool) -> Result<Vec<u8>, Failure> {
    let program = read(from)?;
    let kind = inspect::inspect(&program)?;
    let ours =
        |error| Failure::of_host(FailureCode::InternalError, format!("start wasmtime: {}", chain(&error)));
    let engines = Engines::new(1).map_err(ours)?;
    let engine = engines.get(metered);
    let code = match kind {
        Kind::Module => engine.precompile_module(&program),
        Kind::Component => engine.precompile_component(&program),
    };
    let code = code.map_err(|error| rejected(&chain(&error)))?;
    // Linking it now finds missing imports once, instead of in every job.
    Linkers::new(engine).map_err(ours)?.link(kind, &code).map_err(|error| rejected(&chain(&error)))?;
    Ok(code)
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let unreadable =
        |error| Failure::of_host(FailureCode::ModelUnavailable, format!("read the program's file: {error}"));
    inspect::check_size(fs::metadata(path).map_err(unreadable)?.len())?;
    fs::read(path).map_err(unreadable)
}
