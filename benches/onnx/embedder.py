"""Embeddings of many texts in one run of the graph, for servers that batch what waits: padded to the longest."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import numpy as np
import onnxruntime
from tokenizers import Tokenizer


class Embedder:
    """A graph and its tokenizer."""

    def __init__(self, folder: Path, threads: int) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        providers = ["CPUExecutionProvider"]
        self.session = onnxruntime.InferenceSession(folder / "onnx/model.onnx", options, providers=providers)
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.enable_padding()

    def embed(self, texts: list[str]) -> list[list[float]]:
        encodings = self.tokenizer.encode_batch(texts)
        ids = np.array([encoding.ids for encoding in encodings])
        mask = np.array([encoding.attention_mask for encoding in encodings])
        feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        states = self.session.run(None, feeds)[0]
        weights = mask[:, :, None].astype(np.float32)
        means = (states * weights).sum(axis=1) / weights.sum(axis=1)
        return (means / np.linalg.norm(means, axis=1, keepdims=True)).tolist()


def end_with_standard_input() -> None:
    """Has this process and its children asked to end when nobody holds its standard input any more."""

    def watch() -> None:
        # Not through `sys.stdin`: a forked child would wait for its lock for ever.
        while os.read(0, 4096):
            pass
        os.killpg(0, signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
