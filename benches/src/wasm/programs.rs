//! What is run: three programs as text, and one of the user's choice.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, anyhow, bail};
use island_runtimes_wasm::compile::compile;
use serde_json::{Value, json};

/// A program, compiled for the engine and for a process with wasmtime's own settings.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) name: String,
    pub(crate) input: Value,
    pub(crate) source: PathBuf,
    /// For the engine.
    pub(crate) compiled: PathBuf,
    /// For a process of its own.
    pub(crate) compiled_default: PathBuf,
}

/// Ends at once.
const NO_OP: &str = "(call $write (i32.const 64) (i32.const 15))";
/// Reads every page of a megabyte that its file holds.
const INIT: &str = "(local.set $n (i32.const 65536))
    (loop $next (local.set $sum (i32.add (local.get $sum) (i32.load (local.get $n))))
        (br_if $next (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 4096))) (i32.const 1114112))))
    (call $write (i32.const 64) (i32.const 15))";
/// Writes its input with lower-case letters outside of names in upper case: one pass over each byte of some JSON.
const TRANSFORM: &str = "(loop $more
        (i32.store (i32.const 0) (i32.add (i32.const 65536) (local.get $n)))
        (i32.store (i32.const 4) (i32.const 65536))
        (drop (call $fd_read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))
        (local.set $n (i32.add (local.get $n) (i32.load (i32.const 8))))
        (br_if $more (i32.load (i32.const 8))))
    (loop $next
        (local.set $byte (i32.load8_u (i32.add (i32.const 65536) (local.get $sum))))
        (if (i32.and (i32.ge_u (local.get $byte) (i32.const 0x61)) (i32.le_u (local.get $byte) (i32.const 0x7a)))
            (then (i32.store8 (i32.add (i32.const 65536) (local.get $sum)) (i32.sub (local.get $byte) (i32.const 32)))))
        (br_if $next (i32.lt_u (local.tee $sum (i32.add (local.get $sum) (i32.const 1))) (local.get $n))))
    (call $write (i32.const 96) (i32.const 26)) (call $write (i32.const 65536) (local.get $n)) (call $write (i32.const 128) (i32.const 2))";

fn text(body: &str) -> String {
    format!(
        r#"(module
        (import "wasi_snapshot_preview1" "fd_read" (func $fd_read (param i32 i32 i32 i32) (result i32)))
        (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
        (memory (export "memory") 20)
        (data (i32.const 64) "{{\22type\22:\22done\22}}")
        (data (i32.const 96) "{{\22type\22:\22result\22,\22output\22:")
        (data (i32.const 128) "}}\0a")
        {}
        (func $write (param $at i32) (param $size i32)
            (i32.store (i32.const 0) (local.get $at)) (i32.store (i32.const 4) (local.get $size))
            (drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8))))
        (func (export "_start") (local $n i32) (local $sum i32) (local $byte i32) {body}))"#,
        if body == INIT {
            format!("(data (i32.const 65536) \"{}\")", "island! ".repeat(1 << 17))
        } else {
            String::new()
        }
    )
}

/// The three programs.
pub(crate) fn built_in(dir: &Path) -> Result<Vec<Program>> {
    let rows: Vec<Value> = (0..200).map(|n| json!([n, "a name of some length", n * 7])).collect();
    [
        ("no-op", NO_OP, Value::Null),
        ("1 MiB of data", INIT, Value::Null),
        ("8 KiB of JSON", TRANSFORM, json!(rows)),
    ]
    .into_iter()
    .map(|(name, body, input)| prepare(dir, name, &wat::parse_str(text(body))?, input))
    .collect()
}

/// The user's program, if there is one.
pub(crate) fn given(dir: &Path, program: &[String]) -> Result<Option<Program>> {
    let [path, input] = program else { return Ok(None) };
    let name = Path::new(path).file_stem().context("a program has a name")?.to_string_lossy().into_owned();
    let bytes = fs::read(path).with_context(|| format!("read {path}"))?;
    let input = serde_json::from_str(input).context("the input is JSON")?;
    prepare(dir, &name, &bytes, input).map(Some)
}

fn prepare(dir: &Path, name: &str, bytes: &[u8], input: Value) -> Result<Program> {
    let at = |kind: &str| dir.join(format!("{}.{kind}", name.replace(' ', "-")));
    let program = Program {
        name: name.to_owned(),
        input,
        source: at("wasm"),
        compiled: at("compiled"),
        compiled_default: at("cwasm"),
    };
    fs::write(&program.source, bytes)?;
    compile(&program.source, &program.compiled, false).map_err(|failure| anyhow!(failure.message))?;
    if !bytes.starts_with(b"\0asm\x01") {
        bail!("{name} is a component; the peers here run modules");
    }
    fs::write(&program.compiled_default, wasmtime::Engine::default().precompile_module(bytes)?)?;
    Ok(program)
}
