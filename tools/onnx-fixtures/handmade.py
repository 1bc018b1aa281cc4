"""Graphs made by hand, with published post-processing written again: YOLO and background removal."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

import media
from common import Draw, Json, Repository, demand
from vision import upright

SIZE, STRIDE = 160, 16
CELLS = (SIZE // STRIDE) ** 2
NAMES = {0: "person", 1: "boat", 2: "traffic light"}
YOLO = "letterbox, class-aware NMS at IoU 0.7 and clipping as Ultralytics publishes them, written again in numpy"
REMOVAL = "mask scaled to the picture by Pillow's bilinear filter, as the model cards of RMBG and ISNet describe"


class Graph:
    """A graph under construction."""

    def __init__(self, seed: int):
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.noise = np.random.default_rng(seed + 100 * Draw.number)

    def constant(self, value: Any, kind: Any = np.float32) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, kind), name))
        return name

    def __call__(self, operator: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        output = output or f"n{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

    def random(self, *shape: int, gain: float = 1.0) -> str:
        return self.constant(gain * self.noise.standard_normal(shape))

    def save(self, repository: Repository, path: str, given: Json, found: Json, metadata: Json | None = None) -> None:
        values = [
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in side.items()]
            for side in (given, found)
        ]
        graph = helper.make_graph(self.nodes, "main_graph", *values, self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        for key, value in (metadata or {}).items():
            model.metadata_props.add(key=key, value=value)
        onnx.checker.check_model(model, full_check=True)
        file = repository.model / path
        file.parent.mkdir(parents=True, exist_ok=True)
        onnx.save(model, file)


def cells(graph: Graph, channels: int) -> str:
    """Random channels for each cell of the picture, [1, channels, cells]."""
    centred = graph("Sub", "images", graph.constant(0.45))
    pooled = graph("AveragePool", centred, kernel_shape=[STRIDE, STRIDE], strides=[STRIDE, STRIDE])
    mixed = graph("Conv", pooled, graph.random(channels, 3, 3, 3, gain=2.0), graph.random(channels), pads=[1, 1, 1, 1])
    return graph("Reshape", mixed, graph.constant([1, channels, CELLS], np.int64))


def yolo_boxes(graph: Graph) -> tuple[str, str]:
    """Centres and sizes in pixels of the square, [1, 4, cells], and class scores, [1, classes, cells]."""
    values = graph("Sigmoid", cells(graph, 4 + len(NAMES)))
    sizes = graph.constant([4, len(NAMES)], np.int64)
    boxes, scores = "boxes", "scores"
    graph.nodes.append(helper.make_node("Split", [values, sizes], [boxes, scores], axis=1))
    axis = (np.arange(SIZE // STRIDE) + 0.5) * STRIDE
    across, down = (plane.ravel() for plane in np.meshgrid(axis, axis))
    least = np.stack([across - 12, down - 12, np.full(CELLS, 20), np.full(CELLS, 20)])[None]
    scale = graph.constant(np.array([24, 24, 60, 60])[None, :, None])
    return graph("Add", graph("Mul", boxes, scale), graph.constant(least)), scores


def letterbox(image: Image.Image) -> tuple[np.ndarray, float, int, int]:
    """The picture in the middle of a grey square, with its scale and its place."""
    scale = min(SIZE / image.width, SIZE / image.height)
    width, height = round(image.width * scale), round(image.height * scale)
    left, top = (round((SIZE - width) / 2 - 0.1), round((SIZE - height) / 2 - 0.1))
    square = Image.new("RGB", (SIZE, SIZE), (114, 114, 114))
    square.paste(image.resize((width, height), Image.Resampling.BILINEAR), (left, top))
    pixels = np.asarray(square, np.float32).transpose(2, 0, 1)[None] / 255
    return pixels, scale, left, top


def overlap(one: np.ndarray, other: np.ndarray) -> float:
    """Intersection over union of two boxes of corners."""
    low, high = np.maximum(one[:2], other[:2]), np.minimum(one[2:], other[2:])
    common = np.prod(np.maximum(high - low, 0))
    area = lambda box: (box[2] - box[0]) * (box[3] - box[1])
    return float(common / (area(one) + area(other) - common))


def suppress(boxes: np.ndarray, scores: np.ndarray, kinds: np.ndarray) -> list[int]:
    """The boxes that no better box of their class covers."""
    kept: list[int] = []
    for index in np.argsort(-scores, kind="stable"):
        rivals = [overlap(boxes[index], boxes[other]) for other in kept if kinds[other] == kinds[index]]
        demand(all(abs(rival - 0.7) > 0.005 for rival in rivals), "an overlap lies at the limit")
        if all(rival <= 0.7 for rival in rivals):
            kept.append(int(index))
    return kept


def detections(raw: np.ndarray, threshold: float, ends: bool) -> list[tuple[np.ndarray, float, int]]:
    """Corner box in the square, score and class of what was found, best first."""
    if ends:
        rows = raw[0][raw[0][:, 4] >= threshold]
        return [(row[:4], float(row[4]), int(row[5])) for row in rows]
    columns = raw[0].T
    kinds, scores = columns[:, 4:].argmax(1), columns[:, 4:].max(1)
    demand(np.abs(scores - threshold).min() > 1e-3, "a score lies at the limit")
    some = scores > threshold
    x, y, w, h = columns[some, :4].T
    boxes, scores, kinds = np.stack([x - w / 2, y - h / 2, x + w / 2, y + h / 2], 1), scores[some], kinds[some]
    kept = suppress(boxes, scores, kinds)
    demand(threshold > 0.9 or len(kept) < len(scores), "nothing to suppress")
    return [(boxes[index], float(scores[index]), int(kinds[index])) for index in kept]


def shown(found: Any, scale: float, left: int, top: int, image: Image.Image) -> Json:
    """A detection in our schema, in whole pixels of the picture."""
    box, score, kind = found
    corners = (box - (left, top, left, top)) / scale
    corners = np.clip(corners, 0, (image.width, image.height) * 2)
    edges = dict(zip(("xmin", "ymin", "xmax", "ymax"), (int(corner) for corner in corners)))
    return {"label": NAMES[kind], "score": score, "box": edges}


def yolo(name: str, path: str, ends: bool) -> None:
    repository = Repository(name, "object-detection")
    repository.extra = {"reference": YOLO}
    graph = Graph(seed=11)
    boxes, scores = yolo_boxes(graph)
    given = {"images": [1, 3, SIZE, SIZE]}
    if ends:
        best_of(graph, boxes, scores)
        graph.save(repository, path, given, {"output0": [1, 20, 6]})
        labels = {"id2label": NAMES, "label2id": {label: index for index, label in NAMES.items()}}
        (repository.model / "config.json").write_text(json.dumps({"model_type": "yolov10", **labels}))
    else:
        graph("Concat", boxes, scores, axis=1, output="output0")
        metadata = {"names": str(NAMES), "imgsz": f"[{SIZE}, {SIZE}]", "stride": str(STRIDE), "task": "detect"}
        graph.save(repository, path, given, {"output0": [1, 4 + len(NAMES), CELLS]}, metadata)
    session = repository.session(path)
    for index, (file, threshold) in enumerate({"scene.png": 0.8, "tall.png": 0.7, "gray.png": 0.999}.items()):
        image = upright(media.picture(repository.root, file))
        pixels, *place = letterbox(image)
        raw = session({"images": pixels})
        found = [shown(item, *place, image) for item in detections(raw["output0"], threshold, ends)]
        demand(index > 0 or len({item["label"] for item in found}) > 1, "one class only")
        output = {"detections": found, "width": image.width, "height": image.height}
        arrays = {"tensors": {"images": pixels[:, :, :64]}, "raw": raw} if index == 0 else {}
        given = {"image": {"file": file}, "threshold": threshold}
        repository.case(file.partition(".")[0], given, output, 0.01, box_tolerance=1, **arrays)
    repository.write()


def best_of(graph: Graph, boxes: str, scores: str) -> None:
    """The twenty best boxes as corners, score and class, which need no suppression."""
    graph.nodes.append(helper.make_node("Split", [boxes, graph.constant([2, 2], np.int64)], ["centre", "extent"], axis=1))
    half = graph("Mul", "extent", graph.constant(0.5))
    corners = graph("Concat", graph("Sub", "centre", half), graph("Add", "centre", half), axis=1)
    best = graph("ReduceMax", scores, axes=[1], keepdims=1)
    kind = graph("Cast", graph("ArgMax", scores, axis=1, keepdims=1), to=TensorProto.FLOAT)
    rows = graph("Transpose", graph("Concat", corners, best, kind, axis=1), perm=[0, 2, 1])
    flat = graph("Reshape", best, graph.constant([CELLS], np.int64))
    graph.nodes.append(helper.make_node("TopK", [flat, graph.constant([20], np.int64)], ["top", "order"]))
    graph("Gather", rows, "order", axis=1, output="output0")


def background(name: str) -> None:
    repository = Repository(name, "image-segmentation")
    repository.extra = {"reference": REMOVAL}
    graph = Graph(seed=5)
    small = graph("AveragePool", "input", kernel_shape=[5, 5], strides=[1, 1], pads=[2, 2, 2, 2])
    map_ = graph("Conv", small, graph.random(1, 3, 5, 5, gain=0.6), pads=[2, 2, 2, 2])
    low, high = (graph(kind, map_, axes=[1, 2, 3], keepdims=1) for kind in ("ReduceMin", "ReduceMax"))
    graph("Div", graph("Sub", map_, low), graph("Sub", high, low), output="output")
    shape: Json = {"input": ["batch_size", 3, 64, 64]}
    graph.save(repository, "onnx/model.onnx", shape, {"output": ["batch_size", 1, 64, 64]})
    settings = {
        "do_normalize": True, "do_pad": False, "do_rescale": True, "do_resize": True,
        "feature_extractor_type": "ImageFeatureExtractor", "image_mean": [0.5, 0.5, 0.5], "image_std": [1, 1, 1],
        "resample": 2, "rescale_factor": 1 / 255, "size": {"width": 64, "height": 64},
    }
    (repository.model / "preprocessor_config.json").write_text(json.dumps(settings))
    (repository.model / "config.json").write_text(json.dumps({"model_type": "SegformerForSemanticSegmentation"}))
    for index, file in enumerate(["scene.png", "alpha.png"]):
        image = upright(media.picture(repository.root, file))
        scaled = np.asarray(image.resize((64, 64), Image.Resampling.BILINEAR), np.float32) / 255 - 0.5
        pixels = scaled.transpose(2, 0, 1)[None]
        raw = repository.session()({"input": pixels})
        mask = Image.fromarray((raw["output"][0, 0] * 255).astype(np.uint8))
        mask = mask.resize(image.size, Image.Resampling.BILINEAR)
        stem = file.partition(".")[0]
        mask.save(repository.root / f"{stem}.mask.png")
        segment = {"label": "foreground", "mask": {"file": f"{stem}.mask.png"}}
        output = {"segments": [segment], "width": image.width, "height": image.height}
        arrays = {"tensors": {"input": pixels}, "raw": raw} if index == 0 else {}
        repository.case(stem, {"image": {"file": file}}, output, 4, **arrays)
    repository.write()


FAMILIES = {
    "yolov8": lambda: yolo("yolov8", "yolov8n.onnx", False),
    "yolov10": lambda: yolo("yolov10", "onnx/model.onnx", True),
    "rmbg": lambda: background("rmbg"),
}
