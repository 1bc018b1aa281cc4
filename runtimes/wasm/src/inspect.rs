//! Inspects the bytes of a program before it is compiled: its kind, its size, and whether it imports more than WASI.

use island_protocol::job::{Failure, FailureCode};
use wasmparser::{BinaryReaderError, ExternalKind, MemoryType, Parser, Payload, TypeRef};

/// Maximum size of a program.
pub const MAX_BYTES: u64 = 32 << 20;
/// Maximum number of functions, those of all modules of a component together.
pub const MAX_FUNCTIONS: u64 = 100_000;
/// Imports of core modules: WASI preview 1.
pub(crate) const PREVIEW_1: &str = "wasi_snapshot_preview1";

/// The two kinds of programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A core module, a command of WASI preview 1.
    Module,
    /// A component, a command of WASI preview 2.
    Component,
}

/// Returns the kind of a program that may be compiled.
pub fn inspect(bytes: &[u8]) -> Result<Kind, Failure> {
    check_size(bytes.len() as u64)?;
    let kind = if Parser::is_core_wasm(bytes) {
        Kind::Module
    } else if Parser::is_component(bytes) {
        Kind::Component
    } else {
        return Err(rejected("it does not begin as WebAssembly does"));
    };
    let mut inspection = Inspection::default();
    for payload in Parser::new(0).parse_all(bytes) {
        inspection.payload(kind, payload.map_err(|error| malformed(&error))?)?;
    }
    match kind {
        Kind::Module if !inspection.starts => {
            Err(rejected("it is not a command: it exports no function `_start`"))
        }
        Kind::Module if !inspection.memory => Err(rejected("it exports no memory named `memory`")),
        kind => Ok(kind),
    }
}

/// Rejects what is too large to be read.
pub fn check_size(bytes: u64) -> Result<(), Failure> {
    if bytes > MAX_BYTES {
        let message = format!("the program has {bytes} bytes, at most {MAX_BYTES} are compiled");
        return Err(Failure::of_job(FailureCode::CompileLimit, message));
    }
    Ok(())
}

/// A program that every Island rejects.
pub fn rejected(why: &str) -> Failure {
    Failure::of_job(FailureCode::ModelRejected, format!("the program is rejected: {why}"))
}

fn malformed(error: &BinaryReaderError) -> Failure {
    rejected(&format!("it is malformed: {error}"))
}

#[derive(Debug, Default)]
struct Inspection {
    functions: u64,
    /// Modules and components that contain the current one.
    depth: usize,
    starts: bool,
    memory: bool,
}

impl Inspection {
    fn payload(&mut self, kind: Kind, payload: Payload<'_>) -> Result<(), Failure> {
        let broken = |error: BinaryReaderError| malformed(&error);
        match payload {
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => self.depth += 1,
            Payload::End(_) => self.depth = self.depth.saturating_sub(1),
            Payload::FunctionSection(functions) => return self.count(functions.count().into()),
            Payload::MemorySection(memories) => {
                for memory in memories {
                    check_memory(&memory.map_err(broken)?)?;
                }
            }
            Payload::ImportSection(imports) => {
                for import in imports.into_imports() {
                    let import = import.map_err(broken)?;
                    if let TypeRef::Memory(memory) = import.ty {
                        check_memory(&memory)?;
                    }
                    if kind == Kind::Module && import.module != PREVIEW_1 {
                        return Err(foreign(&format!("{}.{}", import.module, import.name)));
                    }
                }
            }
            Payload::ExportSection(exports) if kind == Kind::Module => {
                for export in exports {
                    let export = export.map_err(broken)?;
                    self.starts |= export.name == "_start" && export.kind == ExternalKind::Func;
                    self.memory |= export.name == "memory" && export.kind == ExternalKind::Memory;
                }
            }
            Payload::ComponentImportSection(imports) if self.depth == 0 => {
                for import in imports {
                    let name = import.map_err(broken)?.name.name;
                    if !name.starts_with("wasi:") {
                        return Err(foreign(name));
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn count(&mut self, functions: u64) -> Result<(), Failure> {
        self.functions += functions;
        if self.functions > MAX_FUNCTIONS {
            let message =
                format!("the program has {} functions, at most {MAX_FUNCTIONS} are compiled", self.functions);
            return Err(Failure::of_job(FailureCode::CompileLimit, message));
        }
        Ok(())
    }
}

fn check_memory(memory: &MemoryType) -> Result<(), Failure> {
    if memory.shared {
        return Err(rejected("its memory is shared, and there are no threads"));
    }
    if memory.memory64 {
        return Err(rejected("its memory has addresses of 64 bits"));
    }
    Ok(())
}

fn foreign(import: &str) -> Failure {
    rejected(&format!("it imports `{import}`, and nothing but WASI is offered"))
}

#[cfg(test)]
mod tests;
