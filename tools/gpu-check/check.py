"""Measures Island on this machine's GPU and writes a report; see README.md."""

import argparse
import base64
import concurrent.futures
import glob
import io
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
BIN = os.path.join(HERE, "bin")
ENGINES = ["llmcpp", "onnx", "diffusers"]
SHAPES = {"0.5B": "qwen2.5-0.5b", "1B": "llama-3.2-1b", "8B": "llama-3.1-8b"}
# A GPU that the processor emulates compiles the shaders of one quantization for most of a minute, and those of prompts of more than 32 tokens
# for more than five.
SMALL = {"xs": "xs"}
FIXTURES = {
    "onnx": ["tiny-onnx-feature-extraction", "tiny-onnx-image-classification", "tiny-onnx-depth-estimation",
             "tiny-onnx-automatic-speech-recognition", "tiny-onnx-half"],
    "diffusers": ["tiny-paint"],
}
# Weights in half precision do not belong to the fixtures' Cargos.
HALF = ("tiny-onnx-half", "tiny-onnx-text-classification", "distilbert-sst2", "distilbert-fp16")
# Ratios of a GPU's figures that are goals: decoding against the bare loop, seconds until memory is back, a step of a picture against torch's.
GOALS = {"decoding": 0.97, "memory": 1.0, "step": 1.6}
# Seconds after which no further part begins.
BUDGET = 600


class Plan:
    """What is measured how often."""

    def __init__(self, small):
        self.small = small
        self.shapes = SMALL if small else SHAPES
        self.quantization = "q8_0" if small else "q4_k_m"
        self.rounds = 1 if small else 3
        self.tokens = 32 if small else 128
        self.streams = (1,) if small else (1, 8)
        self.words = 1 if small else 24


class Report:
    """Sections of a Markdown document; remembers whether a part failed, and what was measured of each goal."""

    def __init__(self, budget):
        self.lines = ["# GPU check", ""]
        self.failed = []
        self.times = []
        self.goals = []
        self.ends = time.monotonic() + budget

    def goal(self, what, value, limit, at_least):
        """Notes a figure for which there is a goal."""
        met = value >= limit if at_least else value <= limit
        self.goals.append([what, f"{value:.2f}", f"{'at least' if at_least else 'at most'} {limit}", "met" if met else "MISSED"])

    def section(self, title, columns, rows):
        self.lines += [f"## {title}", "", "| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
        self.lines += ["| " + " | ".join(str(cell).replace("|", "/") for cell in row) + " |" for row in rows] + [""]

    def part(self, title, columns, measure):
        began, rows = time.monotonic(), []
        try:
            if began > self.ends:
                raise TimeoutError("not run, because the time for all parts was used up; --budget allows more")
            # What was measured before a failure is kept.
            rows.extend(measure())
        except Exception as error:  # noqa: BLE001 a part that fails is a row of the report
            self.failed.append(title)
            rows.append([f"failed: {type(error).__name__}: {error}"] + [""] * (len(columns) - 1))
        self.section(title, columns, rows)
        self.times.append([title, f"{time.monotonic() - began:.0f} s"])
        print(f"{title}: {self.times[-1][1]}", file=sys.stderr, flush=True)


def environment(**more):
    """Variables of all programs: libraries beside them come first."""
    paths = [BIN] + os.environ.get("LD_LIBRARY_PATH", "").split(":")
    return {**os.environ, "LD_LIBRARY_PATH": ":".join(filter(None, paths)), "ORT_DISABLE_TELEMETRY": "1", **more}


def output(*command, **more):
    return subprocess.run(command, capture_output=True, text=True, env=environment(**more), timeout=300, check=True).stdout


def wait_until(what, condition, limit=60.0):
    """Seconds until the condition holds."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > limit:
            raise TimeoutError(f"{what}: not within {limit:.0f} s")
        time.sleep(0.01)
    return time.monotonic() - began


def used_mb():
    """Memory in use of the first GPU, by its driver; of the whole machine where the processor emulates the GPU."""
    if shutil.which("nvidia-smi"):
        text = output("nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits")
        return int(text.splitlines()[0])
    for path in glob.glob("/sys/class/drm/card*/device/mem_info_vram_used"):
        with open(path) as file:
            return int(file.read()) >> 20
    with open("/proc/meminfo") as file:
        facts = dict(line.split(":") for line in file)
    number = lambda name: int(facts[name].split()[0]) >> 10
    return number("MemTotal") - number("MemAvailable")


class Network:
    """An `island dev` with one Island."""

    def __init__(self, cargos, variables=None, programs=BIN):
        self.folder = tempfile.mkdtemp(prefix="gpu-check-")
        self.log = open(os.path.join(self.folder, "log"), "w")
        command = [os.path.join(programs, "island"), "dev", "--no-limits", "--data-dir", self.folder, "--cargos", cargos]
        settings = {"ISLAND_AGENT_MEASURE": "false", "ISLAND_NATS_SERVER": os.path.join(BIN, "nats-server")}
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
                                        env=environment(**settings, **(variables or {})))
        path = os.path.join(self.folder, "dev.json")
        try:
            wait_until("`island dev` starts", lambda: os.path.exists(path) or self.ended(), 120)
            with open(path) as file:
                self.info = json.load(file)
        except Exception:
            self.stop()
            raise

    def ended(self):
        if self.process.poll() is not None:
            with open(self.log.name) as log:
                raise RuntimeError(f"`island dev` ended: {log.read()[-500:]}")
        return False

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            for process in [self.process.pid, *self.processes(b"")]:
                os.kill(process, signal.SIGKILL)
            self.process.wait()
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def request(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        headers = {"authorization": f"Bearer {self.info['api_key']}", "content-type": "application/json"}
        request = urllib.request.Request(self.info["api_url"] + "/api/v1" + path, data, headers)
        return urllib.request.urlopen(request, timeout=600)

    def read(self, path, body=None):
        with self.request(path, body) as response:
            return json.load(response)["data"]

    def job(self, slug, given):
        """Runs a job and returns its view."""
        job = self.read("/jobs", {"workload": slug, "input": given})["id"]
        state = {}

        def finished():
            state.update(self.read(f"/jobs/{job}"))
            return state["status"] in ("completed", "failed", "cancelled")

        wait_until(f"the job of {slug}", finished, 600)
        if state["status"] != "completed":
            raise RuntimeError(f"{slug}: {state.get('error') or state['status']}")
        return state

    def chat(self, model, tokens, words):
        """Seconds to the first token, and tokens per second after it."""
        first, last, count, began = self.timed_chat(model, tokens, words)
        return first - began, (count - 1) / (last - first) if count > 1 else 0.0

    def timed_chat(self, model, tokens, words):
        """When the first and the last token came, their number, and when the chat began."""
        body = {"model": model, "stream": True, "max_tokens": tokens, "temperature": 0,
                "stream_options": {"include_usage": True},
                "messages": [{"role": "user", "content": " ".join(f"word{n}" for n in range(words))}]}
        began, first, last, count = time.monotonic(), None, None, 0
        with self.request("/chat/completions", body) as response:
            for line in response:
                if not line.startswith(b"data: {"):
                    continue
                chunk = json.loads(line[6:])
                if "error" in chunk:
                    raise RuntimeError(chunk["error"])
                if any(choice["delta"].get("content") for choice in chunk.get("choices", [])):
                    last = time.monotonic()
                    first = first or last
                count = (chunk.get("usage") or {}).get("completion_tokens", count)
        return first, last, count, began

    def agent(self, *command):
        state = os.path.join(self.folder, "island-1")
        return output(os.path.join(BIN, "island-agent"), *command, "--state-dir", state)

    def workers(self):
        return self.processes(b"island-worker-")

    def processes(self, program):
        """Ids of this network's processes whose program contains this name."""
        found = []
        for path in glob.glob("/proc/[0-9]*/cmdline"):
            try:
                with open(path, "rb") as file:
                    words = file.read().split(b"\0")
            except OSError:
                continue
            if program in words[0] and any(self.folder.encode() in word for word in words):
                found.append(int(path.split("/")[2]))
        return found


def catalogue(folder, models, context=4096, memory=None):
    """Cargo files of models, with the memory that their weights need."""
    os.makedirs(folder, exist_ok=True)
    for name, path in models.items():
        mb = memory or os.path.getsize(path) // 1_000_000 + 700
        with open(os.path.join(folder, f"check-{name.lower().replace('.', '-')}.toml"), "w") as file:
            file.write(f"""slug = "check-{name.lower().replace('.', '-')}"
name = "Model of {name}"
description = "A file with the shape of a real model and random weights."
category = "llm"
runtime_type = "llmcpp"
price_per_job = 0.001
required_vram_mb = {mb}
required_ram_mb = {mb}
model_url = "file://{path}"

[limits]
max_tokens = 4096
context_tokens = {context}

[input_schema]
type = "object"

[input_schema.properties]
messages = {{ type = "array" }}
max_tokens = {{ type = "integer" }}
temperature = {{ type = "number" }}

[output_schema]
type = "string"

[example.input]
messages = []
""")
    return folder


def slug(name):
    return f"check-{name.lower().replace('.', '-')}"


def python(*arguments, **options):
    """Runs a Python program that finds the packed packages."""
    packages = os.path.join(HERE, "python")
    return subprocess.run([sys.executable, *arguments], check=True, env={**os.environ, "PYTHONPATH": packages}, **options)


def make_models(plan, folder):
    models = {}
    for name, shape in plan.shapes.items():
        models[name] = os.path.join(folder, f"{shape}.gguf")
        python(os.path.join(HERE, "make.py"), "--shape", shape, "--quant", plan.quantization, "--out", models[name], stdout=sys.stderr)
    return models


def build_cuda(folder):
    """Compiles the CUDA module for this machine's GPU, if it has the compiler."""
    if not (shutil.which("nvcc") and shutil.which("cmake")):
        raise RuntimeError("no nvcc or no cmake on this machine")
    build = os.path.join(folder, "cuda")
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    options = ["BUILD_SHARED_LIBS=ON", "GGML_BACKEND_DL=ON", "GGML_NATIVE=OFF", "GGML_CPU=OFF", "GGML_OPENMP=OFF", "GGML_CUDA=ON",
               "GGML_CUDA_NCCL=OFF", "CMAKE_BUILD_TYPE=Release", "CMAKE_CUDA_ARCHITECTURES=native", "LLAMA_BUILD_COMMON=OFF",
               "LLAMA_BUILD_TESTS=OFF", "LLAMA_BUILD_EXAMPLES=OFF", "LLAMA_BUILD_TOOLS=OFF", "LLAMA_BUILD_SERVER=OFF", "LLAMA_BUILD_APP=OFF"]
    subprocess.run(["cmake", "-S", os.path.join(HERE, "sources"), "-B", build, *generator, *(f"-D{option}" for option in options)],
                   check=True, capture_output=True)
    subprocess.run(["cmake", "--build", build, "--target", "ggml-cuda", "--parallel", str(os.cpu_count())], check=True, capture_output=True)
    target = os.path.join(BIN, "backends", "cuda")
    os.makedirs(target, exist_ok=True)
    shutil.copy(os.path.join(build, "bin", "libggml-cuda.so"), target)
    # Of the same sources as the module for Vulkan.
    shutil.copy(os.path.join(BIN, "backends", "vulkan", "version"), target)


def probe(engine):
    return json.loads(output(os.path.join(BIN, f"island-worker-{engine}"), "--probe"))


def devices():
    if shutil.which("nvidia-smi"):
        for line in output("nvidia-smi", "-L").splitlines():
            yield ["driver", line.strip(), ""]
    for engine in ENGINES:
        report = probe(engine)
        for device in report["devices"]:
            yield [engine, f"{device['api']}: {device['name']}", f"{device.get('address') or 'no address'}, {device['memory_mb']} MB"]
        for name, reason in report["details"].items():
            yield [engine, name, reason]
        yield [engine, "sandbox", report["sandbox"]["level"]]


def sandbox(models):
    """Refused system calls of a worker that replies on the GPU."""
    if os.geteuid() != 0 or not os.path.exists(os.path.join(BIN, "strace")):
        raise RuntimeError("needs root and strace")
    with tempfile.TemporaryDirectory() as folder:
        programs = os.path.join(folder, "bin")
        shutil.copytree(BIN, programs, symlinks=True)
        program = os.path.join(programs, "island-worker-llmcpp")
        os.rename(program, program + ".real")
        trace = os.path.join(folder, "trace")
        with open(program, "w") as file:
            # A probe is not traced; a worker is, from its first instruction, which its sandbox could not forbid later.
            file.write(f'#!/bin/sh\n[ "$1" = --probe ] && exec "{program}.real" "$@"\n'
                       f'exec "{BIN}/strace" -f -qq -Z -o "{trace}" "{program}.real" "$@"\n')
        os.chmod(program, 0o755)
        name = next(iter(models))
        with Network(catalogue(os.path.join(folder, "cargos"), {name: models[name]}), programs=programs) as network:
            job = network.job(slug(name), {"messages": [{"role": "user", "content": "one two"}], "max_tokens": 8})
            yield ["device", job["usage"]["device"], ""]
        counts = {}
        with open(trace) as file:
            for line in file:
                if " EPERM " in line or " EACCES " in line:
                    call = line.split("(")[0].split()[-1]
                    detail = line.split('"')[1] if '"' in line and call.startswith(("open", "stat", "read", "access")) else ""
                    counts[call, detail] = counts.get((call, detail), 0) + 1
        for (call, detail), count in sorted(counts.items(), key=lambda item: -item[1])[:40]:
            yield [call, detail, count]


def bare_loop(model, streams, tokens, prompt=None):
    """Tokens per second of llama.cpp's decode calls alone, and of reading a prompt of this length."""
    words = output(os.path.join(BIN, "bare_loop"), model, str(os.cpu_count()), str(streams), str(tokens), "gpu", *([str(prompt)] if prompt else []))
    return [float(word) for word in words.split()]


def worker_speed(model, streams, tokens, words):
    """Tokens per second of a worker alone after the prompts, and milliseconds to the first token."""
    mb = os.path.getsize(model) // 1_000_000 + 2000
    program = os.path.join(BIN, "island-worker-llmcpp")
    text = output(os.path.join(BIN, "worker_speed"), program, model, str(os.cpu_count()), str(streams), str(tokens), str(words), str(mb))
    return [float(word) for word in text.split()]


def llama_bench(model, module, tokens, prompt):
    """Tokens per second of llama.cpp's own benchmark of one stream, with the same module: for new tokens, and for a prompt of `prompt` tokens."""
    bench = os.path.join(HERE, "bench")
    if not os.path.exists(bench):
        return "not packed", ""
    with tempfile.TemporaryDirectory() as folder:
        for name in os.listdir(bench):
            os.symlink(os.path.join(bench, name), os.path.join(folder, name))
        link = os.path.join(folder, f"libggml-{module}.so")
        os.symlink(os.path.join(BIN, "backends", module, os.path.basename(link)), link)
        paths = ":".join(filter(None, [folder, *os.environ.get("LD_LIBRARY_PATH", "").split(":")]))
        # It is of a newer Debian and brings the loader of that.
        command = [os.path.join(folder, "ld-linux-x86-64.so.2"), "--library-path", paths, os.path.join(folder, "llama-bench"), "-m", model,
                   "-ngl", "99", "-n", str(tokens), "-p", str(prompt), "-o", "jsonl"]
        environment = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
        ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, env=environment)
    rows = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    if ran.returncode != 0 or not rows:
        return f"failed: {ran.stderr.strip()[-200:]}", ""
    rates = {row["n_gen"] > 0: f"{row['avg_ts']:.1f}" for row in rows}
    return rates.get(True, ""), rates.get(False, "")


def decoding(plan, report, models, module):
    """Tokens per second of the whole network, of a worker alone, of the bare loop and of llama-bench, side by side."""
    tokens = plan.tokens
    with tempfile.TemporaryDirectory() as folder:
        with Network(catalogue(folder, models)) as network:
            for name, path in models.items():
                network.chat(slug(name), 8, plan.words)
                job = network.job(slug(name), {"messages": [{"role": "user", "content": "one"}], "max_tokens": 4})
                length = None if plan.small else 512
                bench, prompt = llama_bench(path, module, tokens, length or 0)
                for streams in plan.streams:
                    ours, alone, bare = [], [], []
                    for _ in range(plan.rounds):
                        with concurrent.futures.ThreadPoolExecutor(streams) as pool:
                            times = list(pool.map(lambda _: network.timed_chat(slug(name), tokens, plan.words), range(streams)))
                        # Prompts are left out on every side.
                        firsts, lasts, counts, _ = zip(*times)
                        ours.append((sum(counts) - streams) / (max(lasts) - max(firsts)))
                        bare.append(bare_loop(path, streams, tokens)[0])
                    alone.append(worker_speed(path, streams, tokens, plan.words)[0])
                    one, worker, other = statistics.median(ours), statistics.median(alone), statistics.median(bare)
                    report.goal(f"decoding, {module}, {name}, {streams} streams, network against bare loop", one / other, GOALS["decoding"], True)
                    yield [module, name, streams, job["usage"]["device"], f"{one:.1f}", f"{worker:.1f}", f"{other:.1f}", f"{one / other:.2f}",
                           f"{worker / other:.2f}", bench if streams == 1 else "one stream only"]
                if plan.small:
                    yield [module, name, "long prompt", "", "not measured with --small", "", "", "", "", ""]
                    continue
                first = statistics.median(network.chat(slug(name), 2, words=150)[0] for _ in range(plan.rounds))
                alone = worker_speed(path, 1, 8, 150)[1]
                read = bare_loop(path, 1, 8, length)[1]
                yield [module, name, "prompt", "", f"150 words: first token after {first * 1000:.0f} ms", f"the same: {alone:.0f} ms",
                       f"{length} tokens: {read:.0f}", "", "", f"{length} tokens: {prompt}"]


def memory(plan, report, models):
    """How long GPU memory is held after its worker must end. The network is idle otherwise."""
    name = list(models)[-1]
    with tempfile.TemporaryDirectory() as folder:
        # Another model with the same file: it needs so much that the first one must be evicted.
        other = f"{name}-large"
        total = next((device["memory_mb"] for device in probe("llmcpp")["devices"] if device["api"] != "cpu"), 0)
        catalogue(folder, {other: models[name]}, context=2048, memory=max(total - 2048, 1))
        with Network(catalogue(folder, {name: models[name]})) as network:

            def loaded():
                idle = used_mb()
                network.chat(slug(name), 4, plan.words)
                return idle, used_mb()

            for event in ("pause", "kill -9", "eviction"):
                if event == "eviction" and plan.small:
                    yield [event, "not measured with --small: a model of this size is never in the way", "", ""]
                    continue
                idle, busy = loaded()
                workers = network.workers()
                # Small models drown in what else happens on the machine.
                enough = idle + max((busy - idle) // 10, 32)
                began = time.monotonic()
                if event == "pause":
                    network.agent("pause")
                elif event == "kill -9":
                    for worker in workers:
                        os.kill(worker, signal.SIGKILL)
                else:
                    threading.Thread(target=network.chat, args=(slug(other), 2, plan.words), daemon=True).start()
                wait_until("its worker ends", lambda: not set(workers) & set(network.workers()))
                gone = time.monotonic() - began
                # The next model begins to load at once, so that memory may be low for a short time only.
                wait_until("the memory is back", lambda: used_mb() <= enough, 30)
                took = time.monotonic() - began
                report.goal(f"memory back after {event}, seconds", took, GOALS["memory"], False)
                yield [event, f"{busy - idle} MB", f"{gone:.2f} s", f"{took:.2f} s"]
                if event == "pause":
                    network.agent("resume")


def yields(models):
    """A program of another kind computes on the GPU: the Island must pause."""
    if any(device.get("is_software") for device in probe("llmcpp")["devices"]):
        raise RuntimeError("the driver of an emulated GPU lists no programs")
    command = ["sh", "-c", 'while "$0" "$@"; do :; done', os.path.join(BIN, "bare_loop"), list(models.values())[-1], "4", "8", "900", "gpu"]
    with tempfile.TemporaryDirectory() as folder:
        with Network(catalogue(folder, {}), {"ISLAND_AGENT_POLICY__YIELD_GPU": "true"}) as network:
            is_paused = lambda: "paus" in network.agent("status").lower()
            if is_paused():
                raise RuntimeError("the Island is paused before another program computes")
            other = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment(), start_new_session=True)
            try:
                yield ["paused after", f"{wait_until('it pauses', is_paused, 60):.1f} s"]
            finally:
                os.killpg(other.pid, signal.SIGKILL)
                other.wait()
            yield ["resumed after", f"{wait_until('it resumes', lambda: not is_paused(), 90):.1f} s"]


def numbers(value):
    """All numbers of a result, in order."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return [float(value)]
    if isinstance(value, dict):
        value = [value[key] for key in sorted(value)]
    return [number for part in value for number in numbers(part)] if isinstance(value, list) else []


def fixture_catalogue(kind, folder):
    """Writes the small Cargos of a kind, allowed to use a GPU."""
    source = os.path.join(HERE, "cargos")
    shutil.copytree(os.path.join(source, kind, "tasks"), os.path.join(folder, kind, "tasks"))
    for name in FIXTURES[kind]:
        half, like, model, replacement = HALF
        with open(os.path.join(source, "fixtures", f"{like if name == half else name}.toml")) as file:
            text = file.read()
        if name == half:
            text = text.replace(like, half).replace(model, replacement).replace("model.onnx", "model_fp16.onnx")
        text = text.replace("required_vram_mb = 0", "required_vram_mb = 512").replace("file://..", f"file://{HERE}")
        with open(os.path.join(folder, f"{name}.toml"), "w") as file:
            file.write(text)


def pixels(image):
    """The bytes of a picture that came as base64, decoded by Pillow."""
    from PIL import Image

    return list(Image.open(io.BytesIO(base64.b64decode(image))).convert("RGB").tobytes())


def fixtures(kind):
    """Small Cargos of a kind on the GPU and on the processor."""
    results = []
    with tempfile.TemporaryDirectory() as folder:
        fixture_catalogue(kind, folder)
        hidden = {"GGML_VK_VISIBLE_DEVICES": "", "CUDA_VISIBLE_DEVICES": "", "ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER": "",
                  "VK_DRIVER_FILES": "/nonexistent"}
        for variables in ({}, hidden):
            with Network(folder, variables) as network:
                found = {}
                for name in FIXTURES[kind]:
                    given = network.read(f"/workloads/{name}")["example"]["input"]
                    try:
                        network.job(name, given)
                        began = time.monotonic()
                        found[name] = (network.job(name, given), time.monotonic() - began)
                    except (RuntimeError, TimeoutError) as error:
                        found[name] = (error, 0.0)
                results.append(found)
    on_gpu, on_cpu = results
    for name in FIXTURES[kind]:
        (job, took), (other, slower) = on_gpu[name], on_cpu[name]
        for result in (job, other):
            if isinstance(result, Exception):
                raise RuntimeError(f"{name}: {result}")
        one, two = job["output"], other["output"]
        if kind == "diffusers":
            one, two = ([pixels(image["data"]) for image in result["images"]] for result in (one, two))
        one, two = numbers(one), numbers(two)
        largest = max((abs(a - b) for a, b in zip(one, two)), default=0.0) if len(one) == len(two) else "other shape"
        yield [name, job["usage"].get("device"), other["usage"].get("device"), f"{took:.2f} s, {slower:.2f} s", largest]


def picture_step(plan, report, folder):
    """A step of Stable Diffusion 1.5 with random weights, ours in half precision on the GPU against torch's there."""
    try:
        import torch
    except ImportError as error:
        raise RuntimeError("needs PyTorch") from error
    repository, side, steps = os.path.join(folder, "sd15"), 128 if plan.small else 512, 3 if plan.small else 12
    python(os.path.join(HERE, "models.py"), repository, stdout=sys.stderr)
    ours = json.loads(output(os.path.join(BIN, "image"), repository, str(side), str(steps), "gpu"))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    asked = json.dumps({"size": side, "steps": steps}) + "\n"
    kind = "float16" if device == "cuda" else "float32"
    ran = python(os.path.join(HERE, "peer.py"), repository, str(os.cpu_count()), kind, device, input=asked * 2, capture_output=True, text=True)
    version, *_, peer = (json.loads(line) for line in ran.stdout.splitlines())
    # The prompts, the steps, of which the first compiles shaders, and the picture.
    step = statistics.median(ours["times_ms"][2:-1])
    if device == "cuda":
        report.goal("a step of Stable Diffusion 1.5 against torch in half precision", step / peer["step_ms"], GOALS["step"], False)
    yield [f"{side} x {side}", ours["device"], f"{step:.1f} ms", f"{version['version']} on {device} in {kind}", f"{peer['step_ms']:.1f} ms",
           f"{step / peer['step_ms']:.2f}"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--report", default="gpu-check.md", help="the file to write")
    parser.add_argument("--small", action="store_true", help="small models and one round only, for a GPU that the processor emulates")
    parser.add_argument("--budget", type=float, default=BUDGET, help="seconds after which no further part begins; 0: no limit (default: %(default)s)")
    arguments = parser.parse_args()
    # An emulated GPU compiles shaders for minutes.
    plan, report = Plan(arguments.small), Report(arguments.budget if arguments.budget and not arguments.small else float("inf"))
    with tempfile.TemporaryDirectory() as folder:
        report.part("Devices of each engine", ["engine", "device or fact", "details"], devices)
        models = make_models(plan, folder)
        report.part("System calls refused in a worker with a GPU", ["call", "path", "times"], lambda: sandbox(models))
        columns = ["module", "shape", "streams", "device", "network, tokens/s", "worker alone", "bare loop", "network / bare", "worker / bare", "llama-bench"]
        report.part("Decoding with Vulkan", columns, lambda: decoding(plan, report, models, "vulkan"))
        columns_of_memory = ["after", "memory", "worker ended", "memory back"]
        report.part("GPU memory is returned", columns_of_memory, lambda: memory(plan, report, models))

        def with_cuda():
            build_cuda(folder)
            yield from decoding(plan, report, models, "cuda")

        report.part("Decoding with CUDA", columns, with_cuda)
        if os.path.exists(os.path.join(BIN, "backends", "cuda")):
            report.part("Devices with the CUDA module", ["engine", "device or fact", "details"], devices)
        report.part("Yielding to another program", ["event", "time"], lambda: yields(models))
        columns = ["Cargo", "device", "compared with", "time on each", "largest difference"]
        report.part("ONNX graphs", columns, lambda: fixtures("onnx"))
        report.part("Pictures", columns, lambda: fixtures("diffusers"))
        columns = ["size", "device", "step", "torch", "its step", "ratio"]
        report.part("A step of Stable Diffusion 1.5", columns, lambda: picture_step(plan, report, folder))
    report.section("Goals", ["figure", "measured", "goal", ""], report.goals)
    report.section("Time of each part", ["part", "time"], report.times)
    if report.failed:
        report.lines += [f"Parts that failed or cannot run here: {', '.join(report.failed)}.", ""]
    text = "\n".join(report.lines)
    with open(arguments.report, "w") as file:
        file.write(text)
    print(text)
    sys.exit(1 if report.failed else 0)


if __name__ == "__main__":
    main()
