"""Language models in GGUF against llama.cpp's own server on the same file: `gguf.py ENGINE SERVER [--only NAME]`.

`ENGINE` is the program `llmcpp_parity`, `SERVER` is llama.cpp's `llama-server`. The models are small ones of every architecture of the catalogue with random
weights (`runtimes/llmcpp/tests/architectures`). Both are asked for greedy replies to the same conversations, with the logarithms of probabilities:
the server renders the template of the file, tokenizes, chooses and stops by itself. Marks of the template within a message are not among them: the
server reads them as marks, the engine does not.

Both write tokens one after the other, but read the prompt in batches of other shapes, and weights in 8 bits are multiplied by numbers that are
rounded for each shape: the tolerance is that of `runtimes/llmcpp/tests/llmcpp/architectures.rs`. Where another token is chosen, the two most probable ones
must be near each other for both; the rest of these replies is not compared.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

Json = dict[str, Any]

MODELS = Path(__file__).resolve().parents[2] / "runtimes/llmcpp/tests/architectures"
TOKENS = 40
MEDIAN, MEAN, TIE = 0.04, 0.2, 1.0
START_S = 120
CONVERSATIONS: dict[str, list[Json]] = {
    "one": [{"role": "user", "content": "Count the ships in the harbour, please."}],  # words: ok
    "system": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "How far is it to the next village?"}],
    "several": [
        {"role": "user", "content": "How far is it?"}, {"role": "assistant", "content": "Far."}, {"role": "user", "content": "  And back? \n"},
    ],
    "accents": [{"role": "user", "content": "Où est le café naïve? 🙂 שלום 中文"}],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engine", type=Path)
    parser.add_argument("server", type=Path)
    parser.add_argument("--only", default="", help="models whose name contains this")
    options = parser.parse_args()
    counts: dict[str, list[int]] = {}
    differences = []
    for model in sorted(MODELS.glob("*.gguf")):
        if options.only not in model.stem:
            continue
        ours, theirs = of_engine(options.engine, model), of_server(options.server, model)
        found = [(name, compared(ours[name], theirs[name])) for name in CONVERSATIONS]
        counts[model.stem] = [sum(not why for _, why in found), sum(bool(why) for _, why in found)]
        differences += [f"{model.stem}/{name}: {why}" for name, why in found if why]
    print("| model | agreed | differed |\n| --- | ---: | ---: |")
    for name, (agreed, differed) in counts.items():
        print(f"| {name} | {agreed} | {differed} |")
    for line in differences:
        print(f"differs: {line}")
    if differences:
        sys.exit(f"parity: {len(differences)} replies differ from llama-server's")


def of_engine(program: Path, model: Path) -> dict[str, list[Json]]:
    """The tokens of each reply."""
    lines = [json.dumps({"model": str(model), "messages": messages, "tokens": TOKENS}) for messages in CONVERSATIONS.values()]
    ran = subprocess.run([program], input="\n".join(lines) + "\n", stdout=subprocess.PIPE, text=True, check=True)
    answers = [json.loads(line) for line in ran.stdout.splitlines()]
    refused = [answer["refused"] for answer in answers if "refused" in answer]
    if refused:
        sys.exit(f"parity: {model.name} is refused: {refused[0]}")
    return dict(zip(CONVERSATIONS, (answer["tokens"] for answer in answers), strict=True))


def of_server(program: Path, model: Path) -> dict[str, list[Json]]:
    """The same of a server that is started for the model."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = ["--host", "127.0.0.1", "--port", str(port), "-t", "1", "-np", "1", "-c", "512", "--jinja", "-m", str(model)]
    server = subprocess.Popen([program, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        await_start(server, f"http://127.0.0.1:{port}/health", model)
        return {name: reply(f"http://127.0.0.1:{port}/v1/chat/completions", messages) for name, messages in CONVERSATIONS.items()}
    finally:
        server.terminate()
        server.wait()


def await_start(server: subprocess.Popen[bytes], address: str, model: Path) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until and server.poll() is None:
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    sys.exit(f"parity: llama-server does not start with {model.name}")


def reply(address: str, messages: list[Json]) -> list[Json]:
    body = {"messages": messages, "max_tokens": TOKENS, "temperature": 0, "logprobs": True, "top_logprobs": 2, "cache_prompt": False}
    request = urllib.request.Request(address, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=START_S) as answer:
        return json.load(answer)["choices"][0]["logprobs"]["content"]


def compared(ours: list[Json], theirs: list[Json]) -> str:
    """Why two replies are not the same, or an empty text. Tokens without a text, such as the mark of an end, are in the server's alone."""
    ours, theirs = ([token for token in tokens if token["bytes"]] for tokens in (ours, theirs))
    ours = joined_like(theirs, ours)
    apart = []
    for place, (own, other) in enumerate(zip(ours, theirs)):
        if own["bytes"] != other["bytes"]:
            if all(is_tie(one) for one in (own, other)):
                break
            return f"token {place} is {own['token']!r}, the server's {other['token']!r}"
        apart.append(abs(own["logprob"] - other["logprob"]))
    else:
        if len(ours) != len(theirs):
            last = (ours if len(ours) > len(theirs) else theirs)[min(len(ours), len(theirs))]
            if not is_tie(last):
                return f"{len(ours)} tokens, the server's reply has {len(theirs)}"
    if apart and (statistics.median(apart) >= MEDIAN or statistics.fmean(apart) >= MEAN):
        return f"logarithms of probabilities are {statistics.median(apart):.3f} apart, {statistics.fmean(apart):.3f} on average"
    return ""


def joined_like(theirs: list[Json], ours: list[Json]) -> list[Json]:
    """Our tokens, joined as the server's are: it shows tokens with parts of a character as one, with the probability of the last."""
    waiting, joined = list(ours), []
    for other in theirs:
        begun: list[int] = []
        while waiting and len(begun) < len(other["bytes"]):
            token = waiting.pop(0)
            begun += token["bytes"]
            if begun == other["bytes"] or other["bytes"][: len(begun)] != begun:
                joined.append({**token, "bytes": begun})
                break
        else:
            joined += [{**other, "bytes": begun}] if begun else []
    return joined + waiting


def is_tie(token: Json) -> bool:
    """Whether another token was nearly as probable."""
    best = [other["logprob"] for other in token["top_logprobs"]]
    return len(best) > 1 and best[0] - best[1] < TIE


if __name__ == "__main__":
    main()
