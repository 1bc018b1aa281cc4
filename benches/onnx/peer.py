"""Runs the same graphs in Python's onnxruntime, controlled line by line on standard input."""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import onnxruntime
from tokenizers import Tokenizer


def session(path: Path, threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def main(folder: Path, threads: int) -> None:
    paths = {
        "minilm": "minilm/onnx/model.onnx",
        "minilm-int8": "minilm/onnx/model_quantized.onnx",
        "resnet-50": "resnet-50.onnx",
        "whisper-encoder": "whisper-encoder.onnx",
    }
    graphs = {name: session(folder / path, threads) for name, path in paths.items()}
    tokenizer = Tokenizer.from_file(str(folder / "minilm/tokenizer.json"))

    def embed(name: str, text: str) -> np.ndarray:
        ids = np.array([tokenizer.encode(text).ids])
        feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        mean = graphs[name].run(None, feeds)[0][0].mean(axis=0)
        return mean / np.linalg.norm(mean)

    print(json.dumps({"version": onnxruntime.__version__}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        if "feeds" in asked:
            graph, times = graphs[asked["graph"]], []
            feeds = {
                name: np.full(shape, value, dtype=kind) for name, (shape, value, kind) in asked["feeds"].items()
            }
            for _ in range(asked["count"]):
                begin = time.perf_counter()
                graph.run(None, feeds)
                times.append(time.perf_counter() - begin)
            print(json.dumps({"seconds": times}), flush=True)
        else:
            with ThreadPoolExecutor(asked["clients"]) as pool:
                begin = time.perf_counter()
                first = list(pool.map(partial(embed, asked["graph"]), asked["texts"]))[0]
                took = time.perf_counter() - begin
            print(json.dumps({"seconds": [took], "first": first[:8].tolist()}), flush=True)


main(Path(sys.argv[1]), int(sys.argv[2]))
