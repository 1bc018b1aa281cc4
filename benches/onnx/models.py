"""Graphs of real shapes with random weights: MiniLM-L6 in f32 and int8, ResNet-50 and the encoder of Whisper tiny."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

RANDOM = np.random.default_rng(7)


class Graph:
    """Nodes and weights on their way to a file."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def node(self, op: str, *inputs: str, **attributes: object) -> str:
        name = f"{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def weight(self, *shape: int, scale: float | None = None) -> str:
        scale = scale if scale is not None else 1 / math.sqrt(math.prod(shape[:-1]) or 1)
        return self.constant((RANDOM.standard_normal(shape) * scale).astype(np.float32))

    def constant(self, array: np.ndarray) -> str:
        name = f"weight_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def ints(self, *values: int) -> str:
        return self.constant(np.array(values, dtype=np.int64))

    def norm(self, x: str, width: int) -> str:
        ones, zeros = self.constant(np.ones(width, np.float32)), self.constant(np.zeros(width, np.float32))
        return self.node("LayerNormalization", x, ones, zeros, axis=-1, epsilon=1e-12)

    def linear(self, x: str, width: int, to: int) -> str:
        return self.node("Add", self.node("MatMul", x, self.weight(width, to)), self.weight(to))

    def layer(self, x: str, width: int, heads: int, mask: str | None) -> str:
        """One layer of a transformer's encoder."""

        def split(y: str, order: list[int]) -> str:
            return self.node("Transpose", self.node("Reshape", y, self.ints(0, 0, heads, width // heads)), perm=order)

        query, key, value = (self.linear(x, width, width) for _ in range(3))
        scores = self.node("MatMul", split(query, [0, 2, 1, 3]), split(key, [0, 2, 3, 1]))
        scores = self.node("Mul", scores, self.constant(np.array(1 / math.sqrt(width // heads), np.float32)))
        if mask:
            scores = self.node("Add", scores, mask)
        mixed = self.node("MatMul", self.node("Softmax", scores, axis=-1), split(value, [0, 2, 1, 3]))
        mixed = self.node("Reshape", self.node("Transpose", mixed, perm=[0, 2, 1, 3]), self.ints(0, 0, width))
        x = self.norm(self.node("Add", x, self.linear(mixed, width, width)), width)
        wide = self.node("Gelu", self.linear(x, width, 4 * width))
        return self.norm(self.node("Add", x, self.linear(wide, 4 * width, width)), width)

    def conv(self, x: str, inside: int, to: int, size: int, stride: int = 1, relu: bool = True) -> str:
        weight = self.weight(to, inside, size, size, scale=math.sqrt(2 / (inside * size * size)))
        x = self.node("Conv", x, weight, self.weight(to, scale=0.01), strides=[stride] * 2, pads=[size // 2] * 4)
        return self.node("Relu", x) if relu else x

    def save(self, path: Path, inputs: dict[str, tuple[int, list[object]]], output: str, name: str) -> None:
        self.nodes[-1].output[0] = name if self.nodes[-1].output[0] == output else self.nodes[-1].output[0]
        described = [helper.make_tensor_value_info(key, kind, shape) for key, (kind, shape) in inputs.items()]
        result = helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, "bench", described, [result], self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
        path.parent.mkdir(parents=True, exist_ok=True)
        onnx.save(model, path)


def minilm(folder: Path) -> None:
    """A repository of MiniLM-L6's shape, with a tokenizer of as many words."""
    words, width, heads, layers = 30522, 384, 12, 6
    g = Graph()
    x = g.node("Add", g.node("Gather", g.weight(words, width, scale=0.05), "input_ids"),
               g.node("Gather", g.weight(2, width, scale=0.05), "token_type_ids"))
    length = g.node("Shape", "input_ids", start=1, end=2)
    places = g.node("Slice", g.weight(512, width, scale=0.05), g.ints(0), length, g.ints(0))
    x = g.norm(g.node("Add", x, places), width)
    mask = g.node("Cast", g.node("Unsqueeze", "attention_mask", g.ints(1, 2)), to=TensorProto.FLOAT)
    one, least = g.constant(np.array(1, np.float32)), g.constant(np.array(-1e9, np.float32))
    mask = g.node("Mul", g.node("Sub", one, mask), least)
    for _ in range(layers):
        x = g.layer(x, width, heads, mask)
    tokens = (TensorProto.INT64, ["batch", "sequence"])
    inputs = {name: tokens for name in ("input_ids", "attention_mask", "token_type_ids")}
    g.save(folder / "onnx/model.onnx", inputs, x, "last_hidden_state")
    vocabulary = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3} | {f"w{n}": n for n in range(4, words)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps({"model_type": "bert", "max_position_embeddings": 512}))


def resnet(path: Path) -> None:
    """ResNet-50: bottlenecks of 3, 4, 6 and 3."""
    g = Graph()
    x = g.conv("pixel_values", 3, 64, 7, 2)
    x = g.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    inside = 64
    for stage, (count, width) in enumerate([(3, 64), (4, 128), (6, 256), (3, 512)]):
        for block in range(count):
            stride = 2 if stage and not block else 1
            short = x if block else g.conv(x, inside, 4 * width, 1, stride, relu=False)
            y = g.conv(g.conv(x, inside, width, 1), width, width, 3, stride)
            x = g.node("Relu", g.node("Add", short, g.conv(y, width, 4 * width, 1, relu=False)))
            inside = 4 * width
    x = g.linear(g.node("Flatten", g.node("GlobalAveragePool", x)), 2048, 1000)
    g.save(path, {"pixel_values": (TensorProto.FLOAT, ["batch", 3, 224, 224])}, x, "logits")


def whisper(path: Path) -> None:
    """The encoder of Whisper tiny: two convolutions and four layers over 1500 moments."""
    g, width = Graph(), 384
    x = "input_features"
    for inside, stride in ((80, 1), (width, 2)):
        weight = g.weight(width, inside, 3, scale=math.sqrt(2 / (inside * 3)))
        x = g.node("Gelu", g.node("Conv", x, weight, g.weight(width, scale=0.01), strides=[stride], pads=[1, 1]))
    x = g.node("Add", g.node("Transpose", x, perm=[0, 2, 1]), g.weight(1500, width, scale=0.05))
    for _ in range(4):
        x = g.layer(x, width, 6, None)
    g.save(path, {"input_features": (TensorProto.FLOAT, ["batch", 80, 3000])}, x, "last_hidden_state")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    minilm(folder / "minilm")
    resnet(folder / "resnet-50.onnx")
    whisper(folder / "whisper-encoder.onnx")
    quantize_dynamic(
        folder / "minilm/onnx/model.onnx", folder / "minilm/onnx/model_quantized.onnx", weight_type=QuantType.QInt8
    )


main()
