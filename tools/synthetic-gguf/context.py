"""Fills the context of a language model through a network of one Island.

Starts `island dev` with one Cargo for the file, and sends chats: two short ones, one that fills the context but for a few
tokens, and one that is longer than the context, which must be refused with both numbers. Prints the counts, the seconds and
the memory of the worker; fails if an answer is not as expected.
"""

import argparse
import contextlib
import json
import pathlib
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

CARGO = """
slug = "long"
name = "Long"
description = "A file with the shape of a real model."
category = "llm"
runtime_type = "llmcpp"
price_per_job = 0.001
required_vram_mb = 0
required_ram_mb = {ram}
model_url = "file://{model}"

[limits]
max_tokens = 64
context_tokens = {context}
timeout_s = 14400

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
"""
# Tokens that a chat leaves free in its context: those of the reply, and of the frame around the prompt.
SPARE = 64
REPLY = 16


@contextlib.contextmanager
def network(island, model, context):
    """Yields the address and the key of a network with one Island that offers the file."""
    with tempfile.TemporaryDirectory(prefix="island-context-") as folder:
        folder = pathlib.Path(folder)
        cargos = folder / "cargos"
        cargos.mkdir()
        ram = model.stat().st_size // 1_000_000 + 600
        cargos.joinpath("long.toml").write_text(CARGO.format(ram=ram, model=model, context=context))
        command = [island, "dev", "--no-limits", "--data-dir", folder / "data", "--cargos", cargos]
        with open(folder / "log", "wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            info = folder / "data" / "dev.json"
            deadline = time.monotonic() + 60
            while not info.exists():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"island dev did not start:\n{(folder / 'log').read_text()}")
                time.sleep(0.1)
            info = json.loads(info.read_text())
            yield info["api_url"], info["api_key"]
        finally:
            process.terminate()
            process.wait()


def chat(url, key, words):
    """Returns the status, the body and the seconds of a chat with this many words."""
    body = {
        "model": "long",
        "messages": [{"role": "user", "content": " ".join(["sea"] * words)}],
        "max_tokens": REPLY,
        "temperature": 0,
    }
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    request = urllib.request.Request(f"{url}/api/v1/chat/completions", json.dumps(body).encode(), headers)
    start = time.monotonic()
    try:
        with urllib.request.urlopen(request, timeout=4 * 3600) as response:
            status, answer = response.status, json.load(response)
    except urllib.error.HTTPError as error:
        status, answer = error.code, json.load(error)
    return status, answer, time.monotonic() - start


def worker_memory():
    """Returns the largest resident memory of the llama.cpp worker, megabytes, or `None` if there is no worker."""
    for status in pathlib.Path("/proc").glob("[0-9]*/status"):
        with contextlib.suppress(OSError):
            fields = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
            # The kernel keeps 15 characters of a name.
            if fields["Name"].strip() == "island-worker-llmcpp"[:15]:
                return int(fields["VmHWM"].split()[0]) // 1024
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, required=True, help="a file that make.py wrote")
    parser.add_argument("--context", type=int, required=True, help="tokens of the Cargo's context")
    parser.add_argument("--island", default="island", help="the program (default: that of the PATH)")
    parser.add_argument("--fill", type=int, help="tokens of the long prompt (default: as many as the context holds)")
    args = parser.parse_args()
    with network(args.island, args.model.resolve(), args.context) as (url, key):
        status, answer, seconds = chat(url, key, 100)
        assert status == 200, answer
        short = answer["usage"]["prompt_tokens"]
        print(f"short: {short} tokens of prompt, {seconds:.1f} s with the load of the model", flush=True)
        status, answer, _ = chat(url, key, 200)
        assert status == 200, answer
        per_word = (answer["usage"]["prompt_tokens"] - short) / 100
        frame = short - 100 * per_word
        fill = args.fill or args.context - SPARE
        status, answer, seconds = chat(url, key, int((fill - frame) / per_word))
        assert status == 200, answer
        print(f"long: {answer['usage']}, {seconds:.1f} s", flush=True)
        memory = worker_memory()
        status, answer, seconds = chat(url, key, int((args.context + SPARE) / per_word))
        print(f"too long: status {status}, {answer['error']['message']}, {seconds:.1f} s", flush=True)
        assert status == 422, answer
        assert str(args.context) in answer["error"]["message"], answer
        print(f"memory of the worker: {memory} MB at most")


if __name__ == "__main__":
    main()
