#!/usr/bin/env python3
"""Runs Cargos without a network: each example of cargos/wasm and cargos/container, or one input of yours.

    examples.py                              every example
    examples.py wasm-hash pdf-merge          these
    examples.py wasm-hash '{"text": "abc"}'  one Cargo with this input; prints what it writes

Needs `pip install wasmtime jsonschema`, and Docker for containers (the socket of $DOCKER_HOST). The modules run with
no files, no environment and no arguments, the containers with what Islands give them: see docs/cargo-authors.md.
"""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import tomllib

CARGOS = pathlib.Path(__file__).resolve().parent.parent
MEMORY = {"restricted": "256m", "standard": "1g", "elevated": "8g"}
PIDS = {"restricted": "64", "standard": "256", "elevated": "512"}
CPUS = {"restricted": "1", "standard": "2", "elevated": "4"}


def run_wasm(cargo, text):
    import wasmtime

    engine = run_wasm.__dict__.setdefault("engine", wasmtime.Engine())
    module = wasmtime.Module.from_file(engine, built(cargo))
    linker = wasmtime.Linker(engine)
    linker.define_wasi()
    store = wasmtime.Store(engine)
    store.set_limits(memory_size=cargo["required_ram_mb"] << 20)
    wasi = wasmtime.WasiConfig()
    with tempfile.TemporaryDirectory() as folder:
        names = {name: os.path.join(folder, name) for name in ("in", "out", "err")}
        pathlib.Path(names["in"]).write_text(text)
        wasi.stdin_file, wasi.stdout_file, wasi.stderr_file = names["in"], names["out"], names["err"]
        store.set_wasi(wasi)
        started = time.monotonic()
        try:
            linker.instantiate(store, module).exports(store)["_start"](store)
            code = 0
        except wasmtime.ExitTrap as end:
            code = end.code
        seconds = time.monotonic() - started
        return code, *(pathlib.Path(names[name]).read_text() for name in ("out", "err")), seconds


def image(cargo):
    """The image of a Cargo, imported once by content."""
    path = built(cargo)
    digest = subprocess.run(["sha256sum", path], capture_output=True, check=True, text=True).stdout[:16]
    name = f"island-example:{digest}"
    if subprocess.run(["docker", "image", "inspect", name], capture_output=True).returncode:
        subprocess.run(["docker", "import", path, name], check=True, stdout=subprocess.DEVNULL)
    return name


def run_container(cargo, text):
    tier = cargo["sandbox_tier"]
    command = ["docker", "run", "--rm", "-i", "--read-only", "--network=none", "--user=65534:65534",
               "--tmpfs=/tmp:rw,noexec,nosuid,nodev,size=256m,mode=1777", "--cap-drop=ALL",
               "--security-opt=no-new-privileges", f"--memory={MEMORY[tier]}", f"--memory-swap={MEMORY[tier]}",
               f"--pids-limit={PIDS[tier]}", f"--cpus={CPUS[tier]}", image(cargo), *cargo["engine"]["command"]]
    started = time.monotonic()
    end = subprocess.run(command, input=text, capture_output=True, text=True)
    return end.returncode, end.stdout, end.stderr, time.monotonic() - started


def built(cargo):
    return str(CARGOS / cargo["model_url"].removeprefix("file://"))


def load():
    files = sorted(CARGOS.glob("wasm/*.toml")) + sorted(CARGOS.glob("container/*.toml"))
    return {cargo["slug"]: cargo for cargo in (tomllib.loads(file.read_text()) for file in files)}


def run(cargo, text):
    return (run_wasm if cargo["runtime_type"] == "wasm" else run_container)(cargo, text)


def refuse(name):
    """Python reads NaN and Infinity as numbers; Islands fail the job."""
    raise ValueError(f"{name} is not JSON")


def check(cargo):
    """Faults of one example, and how long it took."""
    import jsonschema

    example = cargo["example"]
    jsonschema.Draft202012Validator(cargo["input_schema"]).validate(example["input"])
    code, out, err, seconds = run(cargo, json.dumps(example["input"]))
    lines = [json.loads(line, parse_constant=refuse) for line in out.splitlines()]
    results = [line["output"] for line in lines if line["type"] == "result"]
    if code != 0 or len(results) != 1:
        return f"exit code {code}, {len(results)} results\n{out}\n{err}", seconds
    jsonschema.Draft202012Validator(cargo["output_schema"]).validate(results[0])
    if "output" in example and results[0] != example["output"]:
        return f"expected {json.dumps(example['output'])}\n     got {json.dumps(results[0])}", seconds
    return None, seconds


def main():
    cargos = load()
    arguments = sys.argv[1:]
    unknown = [slug for slug in arguments if slug not in cargos and not slug.startswith("{")]
    if unknown:
        sys.exit(f"examples.py: cargos/wasm and cargos/container have no {', '.join(unknown)}")
    for module in ("wasmtime", "jsonschema"):
        if importlib.util.find_spec(module) is None:
            sys.exit(f"examples.py: the Python package {module} is missing: pip install wasmtime jsonschema")
    if len(arguments) == 2 and arguments[1].startswith("{"):
        code, out, err, _ = run(cargos[arguments[0]], arguments[1])
        sys.stdout.write(out)
        sys.stderr.write(err)
        return code
    failed = 0
    for slug in arguments or cargos:
        try:
            fault, seconds = check(cargos[slug])
        except Exception as error:  # the other Cargos still run
            fault, seconds = f"{type(error).__name__}: {error}", 0
        failed += fault is not None
        print(f"{'ok  ' if fault is None else 'FAIL'} {slug} {seconds * 1000:.0f} ms{'' if fault is None else ': ' + fault}")  # words: ok
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
