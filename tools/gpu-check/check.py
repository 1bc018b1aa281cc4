"""Measures Island on this machine's GPU and writes a report; see README.md."""

import argparse
import concurrent.futures
import glob
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
BIN = os.path.join(HERE, "bin")
ENGINES = ["llmcpp", "onnx", "diffusers"]
SHAPES = {"0.5B": "qwen2.5-0.5b", "1B": "llama-3.2-1b", "8B": "llama-3.1-8b"}
SMALL = {"xs": "xs"}
ROUNDS = 3


class Report:
    """Sections of a Markdown document; remembers whether a part failed."""

    def __init__(self):
        self.lines = ["# GPU check", ""]
        self.failed = []

    def section(self, title, columns, rows):
        self.lines += [f"## {title}", "", "| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
        self.lines += ["| " + " | ".join(str(cell).replace("|", "/") for cell in row) + " |" for row in rows] + [""]

    def part(self, title, columns, measure):
        began = time.monotonic()
        try:
            rows = list(measure())
        except Exception as error:  # noqa: BLE001 a part that fails is a row of the report
            self.failed.append(title)
            rows = [[f"failed: {type(error).__name__}: {error}"] + [""] * (len(columns) - 1)]
        self.section(title, columns, rows)
        print(f"{title}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


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
        self.process.wait(60)
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

    def job(self, slug, given):
        """Runs a job and returns its view."""
        with self.request("/jobs", {"workload": slug, "input": given}) as response:
            job = json.load(response)["id"]
        state = {}

        def finished():
            with self.request(f"/jobs/{job}") as response:
                state.update(json.load(response))
            return state["status"] in ("completed", "failed", "cancelled")

        wait_until(f"the job of {slug}", finished, 600)
        if state["status"] != "completed":
            raise RuntimeError(f"{slug}: {state.get('error') or state['status']}")
        return state

    def chat(self, model, tokens, words=24):
        """Seconds to the first token, and tokens per second after it."""
        body = {"model": model, "stream": True, "max_tokens": tokens, "temperature": 0,
                "stream_options": {"include_usage": True},
                "messages": [{"role": "user", "content": " ".join(f"word{n}" for n in range(words))}]}
        began, first, count = time.monotonic(), None, 0
        with self.request("/chat/completions", body) as response:
            for line in response:
                if not line.startswith(b"data: {"):
                    continue
                chunk = json.loads(line[6:])
                if "error" in chunk:
                    raise RuntimeError(chunk["error"])
                if any(choice["delta"].get("content") for choice in chunk.get("choices", [])):
                    first = first or time.monotonic()
                count = (chunk.get("usage") or {}).get("completion_tokens", count)
        took = time.monotonic() - first
        return first - began, (count - 1) / took if count > 1 else 0.0

    def agent(self, *command):
        state = os.path.join(self.folder, "island-1")
        return output(os.path.join(BIN, "island-agent"), *command, "--state-dir", state)

    def workers(self):
        found = []
        for path in glob.glob("/proc/[0-9]*/cmdline"):
            try:
                with open(path, "rb") as file:
                    words = file.read().split(b"\0")
            except OSError:
                continue
            if b"island-worker-" in words[0] and any(self.folder.encode() in word for word in words):
                found.append(int(path.split("/")[2]))
        return found


def catalogue(folder, models):
    """Cargo files of models, with the memory that their weights need."""
    os.makedirs(folder, exist_ok=True)
    for name, path in models.items():
        mb = os.path.getsize(path) // 1_000_000 + 700
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
context_tokens = 4096

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


def make_models(shapes, folder):
    sys.path[:0] = glob.glob(os.path.join(HERE, "wheels", "*.whl"))
    models = {}
    for name, shape in shapes.items():
        path = os.path.join(folder, f"{shape}.gguf")
        if not os.path.exists(path):
            paths = ":".join(glob.glob(os.path.join(HERE, "wheels", "*.whl")))
            subprocess.run([sys.executable, os.path.join(HERE, "make.py"), "--shape", shape, "--quant", "q4_k_m", "--out", path],
                           check=True, env={**os.environ, "PYTHONPATH": paths})
        models[name] = path
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


def devices():
    if shutil.which("nvidia-smi"):
        for line in output("nvidia-smi", "-L").splitlines():
            yield ["driver", line.strip(), ""]
    for engine in ENGINES:
        report = json.loads(output(os.path.join(BIN, f"island-worker-{engine}"), "--probe"))
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


def decoding(models, module):
    """Tokens per second of the whole network and of the bare loop, side by side."""
    tokens = 64 if "xs" in models else 128
    with tempfile.TemporaryDirectory() as folder:
        with Network(catalogue(folder, models)) as network:
            for name, path in models.items():
                network.chat(slug(name), 8)
                job = network.job(slug(name), {"messages": [{"role": "user", "content": "one"}], "max_tokens": 4})
                for streams in (1, 8):
                    ours, bare = [], []
                    for _ in range(ROUNDS):
                        began = time.monotonic()
                        with concurrent.futures.ThreadPoolExecutor(streams) as pool:
                            rates = list(pool.map(lambda _: network.chat(slug(name), tokens), range(streams)))
                        total = streams * tokens / (time.monotonic() - began)
                        ours.append(rates[0][1] if streams == 1 else total)
                        bare.append(float(output(os.path.join(BIN, "bare_loop"), path, str(os.cpu_count()), str(streams), str(tokens), "gpu")))
                    one, other = statistics.median(ours), statistics.median(bare)
                    yield [module, name, streams, job["usage"]["device"], f"{one:.1f}", f"{other:.1f}", f"{one / other:.2f}"]
                first = statistics.median(network.chat(slug(name), 2, words=150)[0] for _ in range(ROUNDS))
                yield [module, name, "prompt of 150 words", "", f"first token after {first * 1000:.0f} ms", "", ""]


def memory(models):
    """How long GPU memory is held after its worker must end. The network is idle otherwise."""
    name = list(models)[-1]
    with tempfile.TemporaryDirectory() as folder:
        with Network(catalogue(folder, models)) as network:

            def loaded():
                idle = used_mb()
                network.chat(slug(name), 4)
                return idle, used_mb()

            for event in ("pause", "kill -9"):
                idle, busy = loaded()
                # Small models drown in what else happens on the machine.
                enough = idle + max((busy - idle) // 10, 32)
                began = time.monotonic()
                if event == "pause":
                    network.agent("pause")
                else:
                    for worker in network.workers():
                        os.kill(worker, signal.SIGKILL)
                wait_until("its worker ends", lambda: not network.workers())
                gone = time.monotonic() - began
                wait_until("the memory is back", lambda: used_mb() <= enough, 30)
                yield [event, f"{busy - idle} MB", f"{gone:.2f} s", f"{time.monotonic() - began:.2f} s"]
                network.agent("resume")


def yields():
    """A program of another kind computes on the GPU: the Island must pause."""
    try:
        import torch
    except ImportError as error:
        raise RuntimeError("needs PyTorch") from error
    if not torch.cuda.is_available():
        raise RuntimeError("PyTorch has no GPU here")
    work = "import torch\na = torch.rand(4096, 4096, device='cuda')\nwhile True: a = (a @ a).clamp(-1, 1)\n"
    with tempfile.TemporaryDirectory() as folder:
        with Network(catalogue(folder, {}), {"ISLAND_AGENT_POLICY__YIELD_GPU": "true"}) as network:
            is_paused = lambda: "paus" in network.agent("status").lower()
            other = subprocess.Popen([sys.executable, "-c", work])
            try:
                yield ["paused after", f"{wait_until('it pauses', is_paused, 60):.1f} s"]
            finally:
                other.kill()
            yield ["resumed after", f"{wait_until('it resumes', lambda: not is_paused(), 90):.1f} s"]


def numbers(value):
    """All numbers of a result, in order."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return [float(value)]
    if isinstance(value, dict):
        value = [value[key] for key in sorted(value)]
    return [number for part in value for number in numbers(part)] if isinstance(value, list) else []


def fixtures(kind):
    """A fixture Cargo of each task on the GPU and on the processor."""
    folder = os.path.join(HERE, "cargos")
    on_gpu, on_cpu = {}, {}
    for variables, results in (({}, on_gpu), ({"GGML_VK_VISIBLE_DEVICES": "", "CUDA_VISIBLE_DEVICES": "",
                                              "ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER": ""}, on_cpu)):
        with Network(folder, {**variables, "ISLAND_COORDINATOR_FIXTURES": "true"}) as network:
            with network.request("/cargos") as response:
                cargos = json.load(response)
            cargos = cargos.get("data", cargos) if isinstance(cargos, dict) else cargos
            for cargo in cargos:
                if cargo["runtime_type"] != kind or cargo["required_vram_mb"] == 0:
                    continue
                with network.request(f"/cargos/{cargo['slug']}") as response:
                    example = json.load(response).get("example", {}).get("input")
                try:
                    began = time.monotonic()
                    job = network.job(cargo["slug"], example)
                    results[cargo["slug"]] = (job, time.monotonic() - began)
                except (RuntimeError, TimeoutError) as error:
                    results[cargo["slug"]] = (error, 0.0)
    if not on_gpu:
        raise RuntimeError(f"no Cargo of {kind} that uses a GPU can run here")
    for name, (job, took) in on_gpu.items():
        other, slower = on_cpu.get(name, (None, 0.0))
        if isinstance(job, Exception) or not isinstance(other, dict):
            yield [name, str(job) if isinstance(job, Exception) else "", "", ""]
            continue
        one, two = numbers(job["output"]), numbers(other["output"])
        largest = max((abs(a - b) for a, b in zip(one, two)), default=0.0) if len(one) == len(two) else "other shape"
        yield [name, job["usage"].get("device"), f"{took:.2f} s, {slower:.2f} s", largest]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--report", default="gpu-check.md", help="the file to write")
    parser.add_argument("--small", action="store_true", help="small models only")
    arguments = parser.parse_args()
    report = Report()
    with tempfile.TemporaryDirectory() as folder:
        report.part("Devices of each engine", ["engine", "device or fact", "details"], devices)
        models = make_models(SMALL if arguments.small else SHAPES, folder)
        report.part("System calls refused in a worker with a GPU", ["call", "path", "times"], lambda: sandbox(models))
        columns = ["module", "shape", "streams", "device", "network, tokens/s", "bare loop, tokens/s", "ratio"]
        report.part("Decoding with Vulkan", columns, lambda: decoding(models, "vulkan"))
        columns_of_memory = ["after", "memory", "worker ended", "memory back"]
        report.part("GPU memory is returned", columns_of_memory, lambda: memory(models))

        def with_cuda():
            build_cuda(folder)
            yield from decoding(models, "cuda")

        report.part("Decoding with CUDA", columns, with_cuda)
        report.part("Yielding to another program", ["event", "time"], yields)
        report.part("ONNX graphs", ["Cargo", "device", "time on GPU, on processor", "largest difference"], lambda: fixtures("onnx"))
        report.part("Pictures", ["Cargo", "device", "time on GPU, on processor", "largest difference"], lambda: fixtures("diffusers"))
    if report.failed:
        report.lines += [f"Parts that failed or cannot run here: {', '.join(report.failed)}.", ""]
    text = "\n".join(report.lines)
    with open(arguments.report, "w") as file:
        file.write(text)
    print(text)
    sys.exit(1 if report.failed else 0)


if __name__ == "__main__":
    main()
