"""PP-OCR: a detector and a reader made by hand, with the published steps between and after them."""

from __future__ import annotations

import math

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from scipy import ndimage

from common import Json, Repository, demand
from handmade import Graph

REFERENCE = (
    "PaddleOCR's published steps for upright lines, written again in numpy: longest side 960, multiples of 32, BGR, "
    "binary 0.3, box 0.6, unclip 1.5, lines below 0.5 dropped; height 48, width at least 320, greedy CTC"
)
LETTERS = list("0123456789abcdefghijklmnopqrstuvwxyzéü")
MEAN, SPREAD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])


def sign(width: int, height: int, bars: list[tuple[int, int, int, int, str]]) -> Image.Image:
    """Words in white on dark bars on a light ground."""
    image = Image.new("RGB", (width, height), (235, 240, 230))
    draw = ImageDraw.Draw(image)
    for left, top, right, bottom, word in bars:
        draw.rectangle((left, top, right, bottom), fill=(30, 40, 50))
        draw.text((left + 4, top + 1), word, fill=(255, 250, 220), font=ImageFont.load_default(bottom - top - 5))
    return image


def detector(repository: Repository) -> str:
    """Dark places, closed over the letters in them, as a map of probabilities."""
    graph = Graph(seed=1)
    weights = graph.constant((SPREAD / 3).reshape(1, 3, 1, 1))
    grey = graph("Conv", "x", weights, graph.constant([float(MEAN.mean())]))
    dark = graph("Sub", graph.constant(0.75), grey)
    window = {"kernel_shape": [17, 17], "strides": [1, 1], "pads": [8, 8, 8, 8]}
    wide = graph("Neg", graph("MaxPool", dark, **window))
    closed = graph("Neg", graph("MaxPool", wide, **window))
    graph("Sigmoid", graph("Mul", graph("Sub", closed, graph.constant(0.3)), graph.constant(16)), output="sigmoid_0.tmp_0")
    path = "ch_PP-OCRv4_det_infer.onnx"
    shape = ["N", 3, "H", "W"]
    graph.save(repository, path, {"x": shape}, {"sigmoid_0.tmp_0": ["N", 1, "H", "W"]})
    return path


def reader(repository: Repository) -> str:
    """Random letters for each strip of eight columns; nothing where there is padding."""
    graph = Graph(seed=2)
    classes = len(LETTERS) + 2
    pooled = graph("AveragePool", "x", kernel_shape=[12, 8], strides=[12, 8])
    bias = np.zeros(classes)
    bias[0] = 2.0
    mixed = graph("Conv", pooled, graph.random(classes, 3, 4, 3, gain=4.0), graph.constant(bias), pads=[0, 1, 0, 1])
    flat = graph("Squeeze", mixed, graph.constant([2], np.int64))
    graph("Softmax", graph("Transpose", flat, perm=[0, 2, 1]), axis=2, output="softmax_11.tmp_0")
    path = "ch_PP-OCRv4_rec_infer.onnx"
    graph.save(repository, path, {"x": ["N", 3, 48, "W"]}, {"softmax_11.tmp_0": ["N", "T", classes]})
    (repository.model / "ppocr_keys_v1.txt").write_text("\n".join(LETTERS) + "\n")
    return path


def prepared(image: Image.Image) -> np.ndarray:
    """The detector's input: BGR, in multiples of 32, with the usual means in the channels' order."""
    size = [max(32, round(side / 32) * 32) for side in image.size]
    pixels = np.asarray(image.resize(size, Image.Resampling.BILINEAR), np.float32)[:, :, ::-1] / 255
    return ((pixels - MEAN) / SPREAD).astype(np.float32).transpose(2, 0, 1)[None]


def boxes(chances: np.ndarray, image: Image.Image) -> list[tuple[int, int, int, int]]:
    """Upright boxes, widened, in the picture's pixels and in reading order."""
    height, width = chances.shape
    regions, _count = ndimage.label(chances > 0.3, structure=np.ones((3, 3)))
    found = []
    for rows, columns in ndimage.find_objects(regions):
        left, top, right, bottom = columns.start, rows.start, columns.stop - 1, rows.stop - 1
        filled = (regions[rows, columns] > 0).mean()
        assert filled > 0.99, "not an upright rectangle"
        if min(right - left, bottom - top) < 3 or chances[rows, columns].mean() < 0.6:
            continue
        wide, high = right - left, bottom - top
        distance = wide * high * 1.5 / (2 * (wide + high))
        edges = np.array([left - distance, top - distance, right + distance, bottom + distance])
        scaled = np.round(edges / ([width, height] * 2) * (image.size * 2))
        limits = (image.width - 1, image.height - 1) * 2
        found.append(tuple(int(edge) for edge in np.clip(scaled, 0, limits)))
    return sorted(found, key=lambda box: (round(box[1] / 10), box[0]))


def strip(image: Image.Image) -> np.ndarray:
    """The reader's input: 48 high, padded with zeros on the right."""
    ratio = image.width / image.height
    full = int(48 * max(320 / 48, ratio))
    width = min(full, math.ceil(48 * ratio))
    pixels = np.asarray(image.resize((width, 48), Image.Resampling.BILINEAR), np.float32)[:, :, ::-1]
    padded = np.zeros((1, 3, 48, full), np.float32)
    padded[0, :, :, :width] = (pixels.transpose(2, 0, 1) / 255 - 0.5) / 0.5
    return padded


def spelt(chances: np.ndarray) -> tuple[str, float]:
    """Greedy CTC: repeats and blanks fall away, and the score is the mean of what stays."""
    alphabet = ["", *LETTERS, " "]
    best = chances.argmax(1)
    ranked = np.sort(chances, 1)
    demand((ranked[:, -1] - ranked[:, -2]).min() > 0.03, "two letters alike")
    stays = (best != 0) & np.concatenate([[True], best[1:] != best[:-1]])
    text = "".join(alphabet[index] for index in best[stays])
    return text, float(chances.max(1)[stays].mean())


def pp_ocr() -> None:
    repository = Repository("pp-ocr", "ocr")
    repository.extra = {"reference": REFERENCE}
    find, read = (repository.session(made(repository)) for made in (detector, reader))
    signs = {
        "two-lines": sign(192, 128, [(24, 26, 140, 43, "Island"), (40, 80, 168, 98, "42 boats")]),
        "one-row": sign(250, 90, [(16, 34, 96, 52, "left"), (140, 35, 230, 53, "right")]),
        "nothing": sign(96, 64, []),
    }
    for name, image in signs.items():
        image.save(repository.root / f"{name}.png")
        pixels = prepared(image)
        chances = find({"x": pixels})["sigmoid_0.tmp_0"]
        lines: list[Json] = []
        for box in boxes(chances[0, 0], image):
            text, score = spelt(read({"x": strip(image.crop(box))})["softmax_11.tmp_0"][0])
            demand(score > 0.55 and len(set(text)) > 2, f"dull: {text} {score}")
            left, top, right, bottom = box
            corners = [[left, top], [right, top], [right, bottom], [left, bottom]]
            lines.append({"text": text, "score": score, "box": corners})
        demand(len(lines) == {"nothing": 0}.get(name, 2), f"{len(lines)} lines")
        demand(len({line["text"] for line in lines}) == len(lines), "lines alike")
        output = {"text": "\n".join(line["text"] for line in lines), "lines": lines}
        arrays = {"tensors": {"x": pixels[:, :, :64]}} if name == "two-lines" else {}
        repository.case(name, {"image": {"file": f"{name}.png"}}, output, 0.02, box_tolerance=1, **arrays)
    repository.write()


FAMILIES = {"pp-ocr": pp_ocr}
