"""Graphs with weights of fewer bits, of three families: the reference is the library's pipeline over ONNX Runtime on the same file.

Rounding to fewer bits is part of the file, so that the answers of an engine that reads it rightly are those of another run of the same arithmetic:
products of whole numbers are exact, and half precision rounds alike in one version of ONNX Runtime. The tolerance is that of full precision; the
difference between the precisions, in the effects, is what another file would cause.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import transformers as tf
from transformers import pipeline

import archs
import place
import quantised  # words: ok
import tokenizer_kinds
from common import Json, Repository, demand
from image_tasks import SCORES, SIZED, even, file_of, pictures, processor_of
from place import answered, attempt, repository, varied
from text_tasks import TASKS, TOLERANCE, exported, save

PRECISIONS: dict[str, tuple[str, Callable[[Path, Path], None]]] = {
    "int8": ("_quantized", quantised.eight_bits),  # words: ok
    "q4": ("_q4", quantised.four_bits),  # words: ok
    "fp16": ("_fp16", quantised.half),  # words: ok
}
TEXTS = {"text-classification": "ORTModelForSequenceClassification", "fill-mask": "ORTModelForMaskedLM"}


def text(task: str, name: str) -> tuple[Repository, Callable[[Any], place.Run], dict[str, Json], float]:
    """A network of texts, how a loaded one answers, the inputs, and the tolerance."""
    tokenizer = tokenizer_kinds.KINDS["bert"]("parity-bert")
    made, _model = exported("bert", task, tokenizer, {}, name)
    save(made, tokenizer)
    loaded = tf.AutoTokenizer.from_pretrained(made.model)
    return made, lambda model: TASKS[task][2](model, loaded), TASKS[task][4](loaded), TOLERANCE


def images(name: str) -> tuple[Repository, Callable[[Any], place.Run], dict[str, Json], float]:
    """The same of images."""
    side, classes = 32, {"id2label": {index: f"class {index}" for index in range(8)}}
    sizes = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48, image_size=side, patch_size=8)
    model = even(archs.network(tf.AutoModelForImageClassification, archs.config("vit", **sizes, **classes), name, gain=1.7), side)
    made = repository(name, "image-classification", architecture="vit")
    made.export(model, "image-classification")
    made.save(processor_of("ViT", side))
    processor = tf.AutoImageProcessor.from_pretrained(made.model, use_fast=False)

    def run(model: Any) -> place.Run:
        call = pipeline("image-classification", model=model, image_processor=processor)

        def answer(given: Json) -> Json:
            found = call(file_of(given), top_k=5)
            scores = [entry["score"] for entry in found]
            demand(all(left - right >= 2 * SCORES for left, right in zip(scores, scores[1:])), "scores too near each other")
            return {**found[0], "scores": found}

        return answer

    return made, run, pictures(SIZED), SCORES


def precisions(only: Callable[[str], bool]) -> None:
    """Each family in full precision, and in each of fewer bits."""
    import optimum.onnxruntime as ort

    families = {**{task: (lambda name, task=task: text(task, name), kind) for task, kind in TEXTS.items()}, "image-classification": (images, "ORTModelForImageClassification")}
    for family, (build, kind) in families.items():
        name = f"precisions--{family}"
        if not only(name):
            continue

        def make() -> None:
            base, run, inputs, tolerance = build(name)
            load = lambda made, file: run(getattr(ort, kind).from_pretrained(made.model, subfolder="onnx", file_name=file))
            answered(base, load(base, "model.onnx"), inputs, tolerance)
            for precision, (suffix, convert) in PRECISIONS.items():

                def vary() -> None:
                    made = varied(base, precision, {})
                    made.extra["setting"] = [{"file": f"onnx/model{suffix}.onnx", "key": "precision", "value": precision}]
                    convert(base.model / "onnx/model.onnx", made.model / f"onnx/model{suffix}.onnx")
                    (made.model / "onnx/model.onnx").unlink()
                    answered(made, load(made, f"model{suffix}.onnx"), inputs, tolerance, base)

                attempt(f"{name}--{precision}", vary, draws=1)

        attempt(name, make)


FAMILIES = {"precisions": precisions}
