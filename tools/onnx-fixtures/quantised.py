"""Graphs with weights of fewer bits, made of another fixture's: whole numbers of 8 bits, blocks of 4, and half precision."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import transformers as tf
from onnxruntime.quantization import QuantType, quantize_dynamic
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
from onnxruntime.transformers.float16 import convert_float_to_float16

import text
from common import FIXTURES, Json, Repository, demand
from shrink import shrink

LABELS = ["NEGATIVE", "POSITIVE"]


def eight_bits(graph: Path, target: Path) -> None:
    """As the published conversions do it: one scale for each column, one bit less for processors that would overflow."""
    quantize_dynamic(graph, target, weight_type=QuantType.QInt8, per_channel=True, reduce_range=True)


def four_bits(graph: Path, target: Path) -> None:
    """Blocks of 16 weights with a scale each."""
    quantizer = MatMulNBitsQuantizer(onnx.load(graph), bits=4, block_size=16, is_symmetric=True)
    quantizer.process()
    onnx.save(quantizer.model.model, target)


def half(graph: Path, target: Path) -> None:
    """Weights and arithmetic in half precision, inputs and outputs as they were."""
    onnx.save(convert_float_to_float16(onnx.load(graph), keep_io_types=True), target)


def operators(file: Path) -> set[str]:
    return {node.op_type for node in onnx.load(file).graph.node}


def copied(name: str, source: str, task: str, suffix: str, make: Callable[[Path, Path], None], wanted: set[str]) -> tuple[Repository, Path]:
    """Another fixture's repository with a quantized graph next to its own."""
    repository = Repository(name, task)
    shutil.copytree(FIXTURES / source / "model", repository.model, dirs_exist_ok=True)
    file = repository.model / f"onnx/model{suffix}.onnx"
    make(repository.model / "onnx/model.onnx", file)
    shrink(file)
    assert wanted <= operators(file), f"{file} has {operators(file)}"
    return repository, file


def classifier(name: str, suffix: str, make: Callable[[Path, Path], None], wanted: set[str], least: float = 5e-3) -> None:
    """A repository with this graph alone, and what onnxruntime answers with it. Its logits differ by at least `least`."""
    repository, file = copied(name, "distilbert-sst2", "text-classification", suffix, make, wanted)
    tokenizer = tf.AutoTokenizer.from_pretrained(repository.model)
    session, exact = repository.session(f"onnx/{file.name}"), repository.session("onnx/model.onnx")
    furthest = 0.0
    for index, (case, given) in enumerate({
        "plain": {"text": "The film was good."},
        "accents-and-emoji": {"text": "Café au lait 🙂 was naïve, não?"},
        "truncated": {"text": text.LONGER, "truncate": True},
    }.items()):
        if given.get("truncate"):
            text.cut_short(tokenizer, given["text"])
        feeds = dict(tokenizer(given["text"], return_tensors="np", truncation=True))
        raw = session(feeds)
        logits = raw["logits"][0].astype(np.float64)
        furthest = max(furthest, float(np.abs(logits - exact(feeds)["logits"][0]).max()))
        shares = np.exp(logits - logits.max())
        shares /= shares.sum()
        demand(abs(shares[0] - shares[1]) > 0.02, "labels too near each other")
        scores: list[Json] = [{"label": LABELS[place], "score": float(shares[place])} for place in np.argsort(-shares)]
        arrays = {"tensors": feeds, "raw": raw} if index == 0 or given.get("truncate") else {}
        repository.case(case, given, {**scores[0], "scores": scores}, 1e-3, reference="onnxruntime on the same file", **arrays)
    # It must matter which file is taken.
    demand(furthest > least, f"as good as exact: {furthest}")
    print(f"logits are up to {furthest:.4f} from those of full precision")
    (repository.model / "onnx/model.onnx").unlink()
    repository.write()


def embedder() -> None:
    """Embeddings of texts that must not go through the graph together: it scales its numbers by all that is in a run."""
    repository, file = copied(
        "minilm-quantized", "minilm", "feature-extraction", "_quantized", eight_bits, {"MatMulInteger", "DynamicQuantizeLinear"}
    )
    tokenizer = tf.AutoTokenizer.from_pretrained(repository.model)
    session = repository.session(f"onnx/{file.name}")
    texts = ["the film is bad.", "a train is good!", "he was in paris?"]
    # Of one length, or else no engine would put them together.
    assert len({len(tokenizer(one).input_ids) for one in texts}) == 1
    alone = []
    for one in texts:
        feeds = dict(tokenizer(one, return_tensors="np"))
        states = session(feeds)["last_hidden_state"][0].astype(np.float64)
        mean = states.mean(0)
        alone.append(mean / np.linalg.norm(mean))
    together = session(dict(tokenizer(texts, return_tensors="np")))["last_hidden_state"][0]
    first = session(dict(tokenizer(texts[0], return_tensors="np")))["last_hidden_state"][0]
    apart = float(np.abs(together[: len(first)] - first).max())
    demand(apart > 5e-3, f"company changes little: {apart}")
    print(f"company changes states by {apart:.3f}")
    output = {"embeddings": [vector.tolist() for vector in alone], "dimensions": len(alone[0])}
    repository.case("several", {"input": texts}, output, 5e-4, reference="onnxruntime on the same file, one text at a time")
    (repository.model / "onnx/model.onnx").unlink()
    repository.write()


FAMILIES = {
    "minilm-quantized": embedder,
    "distilbert-quantized": lambda: classifier(
        "distilbert-quantized", "_quantized", eight_bits, {"MatMulInteger", "DynamicQuantizeLinear"}
    ),
    "distilbert-fp16": lambda: classifier("distilbert-fp16", "_fp16", half, {"Cast"}, least=1e-4),
    "distilbert-q4": lambda: classifier("distilbert-q4", "_q4", four_bits, {"MatMulNBits"}),
}
