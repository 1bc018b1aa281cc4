//! Copies llama.cpp's libraries to where the worker finds them: beside the binary, and its CPU variants into `backends/` beside it.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

/// Contains the version of the crate with llama.cpp's sources.
const LOCK: &str = "../../Cargo.lock";

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=DEP_LLAMA_ROOT");
    println!("cargo::rerun-if-changed={LOCK}");
    println!("cargo::rustc-env=ISLAND_GGML_VERSION={}", sources(&fs::read_to_string(LOCK)?));
    let Some(root) = env::var_os("DEP_LLAMA_ROOT").map(PathBuf::from) else { return Ok(()) };
    let target = target_dir();
    let libraries = root.join("lib");
    install(&libraries, &target)?;
    install(&libraries, &target.join("deps"))?;
    if target.join("examples").is_dir() {
        // The dependency leaves a dangling link there, over which its build script fails when it runs again.
        install(&libraries, &target.join("examples"))?;
    }
    let built = env::var_os("DEP_LLAMA_BACKENDS_DIR").map_or_else(|| root.join("backends"), PathBuf::from);
    install(&built, &target.join("backends"))?;
    println!("cargo::rustc-env=ISLAND_BUILT_BACKENDS={}", built.display());
    if cfg!(target_os = "linux") {
        // RPATH rather than RUNPATH: it also applies to the libraries that these libraries need.
        for path in ["$ORIGIN", "$ORIGIN/../lib/island", "$ORIGIN/..", &libraries.display().to_string()] {
            println!("cargo::rustc-link-arg=-Wl,--disable-new-dtags,-rpath,{path}");
        }
    }
    if cfg!(target_os = "macos") {
        for path in ["@executable_path", "@executable_path/../lib/island", &libraries.display().to_string()] {
            println!("cargo::rustc-link-arg=-Wl,-rpath,{path}");
        }
    }
    Ok(())
}

/// The version of the crate with llama.cpp's sources, of which modules must be built, too.
fn sources(lock: &str) -> &str {
    let package = lock.split("[[package]]").find(|package| package.contains("name = \"llama-cpp-sys-2\""));
    let version = package.and_then(|package| package.split("version = \"").nth(1)?.split('"').next());
    version.expect("the lock file contains llama-cpp-sys-2")
}

/// `<target>/<profile>`, the folder of the binaries.
fn target_dir() -> PathBuf {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    out.ancestors().nth(3).expect("OUT_DIR is in <profile>/build/<package>/out").to_owned()
}

/// Copies the shared libraries of one folder to another, under the names by which they are loaded.
fn install(from: &Path, to: &Path) -> io::Result<()> {
    if !from.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        let loaded_by_name = [".so", ".so.0", ".dylib"].iter().any(|ending| name.ends_with(ending));
        let Ok(real) = path.canonicalize() else { continue };
        if loaded_by_name && real.is_file() {
            replace(&real, &to.join(name))?;
        }
    }
    Ok(())
}

/// Through a temporary name, so that a running worker keeps its library.
fn replace(from: &Path, to: &Path) -> io::Result<()> {
    let fresh = to.with_extension("new");
    fs::copy(from, &fresh)?;
    fs::rename(fresh, to)
}
