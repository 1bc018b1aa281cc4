"""Pictures to labels, boxes, masks and depth."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import transformers as tf
from PIL import Image
from transformers import pipeline

import media
from common import Json, Repository, apart, close, demand, randomise, seen
from text import labels

PLACES = ["cat", "remote control", "couch", "sea", "boat", "bridge", "tree", "house"]
IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}


def resnet_config(**more: Any) -> tf.ResNetConfig:
    """A backbone of four stages, as small as they come."""
    sizes = dict(embedding_size=8, hidden_sizes=[8, 12, 16, 20], depths=[1, 1, 1, 1], layer_type="basic")
    return tf.ResNetConfig(**{**sizes, **more})


def arrays_of(repository: Repository, call: Json, graph: str, wanted: np.ndarray | None, output: str = "logits") -> Json:
    """The first tensors with onnxruntime's outputs, once these agree with the library's."""
    session = repository.session(graph)
    feeds = {name: call[name] for name in session.inputs if name in call}
    raw = {name: value for name, value in session(feeds).items() if value.size < 20_000}
    if wanted is not None:
        close(raw[output], wanted)
    corner = {name: value if value.nbytes < 100_000 else value[:, :, :32] for name, value in feeds.items()}
    return {"tensors": corner, "raw": raw}


def forward(model: Any, call: Json, output: str = "logits") -> np.ndarray:
    """What the library's model gives for captured tensors."""
    with torch.no_grad():
        return model(pixel_values=torch.from_numpy(call["pixel_values"]))[output].numpy()


def classify(repository: Repository, model: Any, processor: Any, pictures: dict[str, Json]) -> None:
    """Cases of image classification."""
    run = pipeline("image-classification", model=model, image_processor=processor)
    for index, (file, options) in enumerate(pictures.items()):
        image = media.picture(repository.root, file)
        share = 0.5 if file.endswith(".jpg") else 0.05
        found, calls, tolerance = seen(model, lambda: run(str(image), top_k=options.get("top_k", 5)), share)
        apart([entry["score"] for entry in found])
        scores = [{"label": entry["label"], "score": entry["score"]} for entry in found]
        arrays = arrays_of(repository, calls[0], "onnx/model.onnx", forward(model, calls[0])) if index == 0 else {}
        given = {"image": {"file": file}, **options}
        repository.case(image.stem, given, {**scores[0], "scores": scores}, tolerance, **arrays)


def vit() -> None:
    name = "vit"
    config = tf.ViTConfig(
        hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48, image_size=48, patch_size=8,
        **labels(PLACES),
    )
    processor = tf.ViTImageProcessor(size={"height": 48, "width": 48})
    model = randomise(tf.ViTForImageClassification(config), name)
    repository = Repository(name, "image-classification")
    repository.export(model, "image-classification")
    repository.save(processor)
    pictures = {"scene.png": {}, "gray.png": {"top_k": 2}, "alpha.png": {"top_k": 1}, "rotated.jpg": {"top_k": 8}}
    classify(repository, model, processor, pictures)
    repository.write()


def resnet() -> None:
    name = "resnet"
    config = resnet_config(**labels(PLACES))
    processor = tf.ConvNextImageProcessor(size={"shortest_edge": 56}, crop_pct=0.875, resample=3, **IMAGENET)
    model = randomise(tf.ResNetForImageClassification(config), name, gain=2.0)
    repository = Repository(name, "image-classification")
    repository.export(model, "image-classification")
    repository.save(processor)
    classify(repository, model, processor, {"scene.png": {}, "tall.png": {"top_k": 3}, "rotated.jpg": {"top_k": 1}})
    repository.write()


def detect(repository: Repository, model: Any, processor: Any, cases: dict[str, Json]) -> None:
    """Cases of object detection, in the library's order and with its whole pixels."""
    run = pipeline("object-detection", model=model, image_processor=processor)
    for index, (name, given) in enumerate(cases.items()):
        image = media.picture(repository.root, given["image"]["file"])
        found, calls, tolerance = seen(model, lambda: run(str(image), threshold=given.get("threshold", 0.5)))
        demand(given.get("threshold", 0) > 0.9 or len(found) > 1, "too little was detected")
        width, height = upright(image).size
        output = {"detections": found, "width": width, "height": height}
        arrays = arrays_of(repository, calls[0], "onnx/model.onnx", forward(model, calls[0])) if index == 0 else {}
        repository.case(name, given, output, tolerance, box_tolerance=1, **arrays)


def upright(file: Any) -> Image.Image:
    """The picture as the library opens it."""
    return tf.image_utils.load_image(str(file))


SCENES = {
    "default": {"image": {"file": "scene.png"}},
    "low-threshold": {"image": {"file": "tall.png"}, "threshold": 0.3},
    "gray": {"image": {"file": "gray.png"}, "threshold": 0.4},
    "nothing": {"image": {"file": "gray.png"}, "threshold": 0.9999},
}


def detr() -> None:
    name = "detr"
    config = tf.DetrConfig(
        use_timm_backbone=False, use_pretrained_backbone=False, backbone=None,
        backbone_config=resnet_config(out_features=["stage4"]),
        d_model=16, encoder_layers=1, decoder_layers=2, encoder_attention_heads=2, decoder_attention_heads=2,
        encoder_ffn_dim=32, decoder_ffn_dim=32, num_queries=12, **labels(PLACES[:5]),
    )
    processor = tf.DetrImageProcessor(size={"shortest_edge": 48, "longest_edge": 72})
    model = randomise(tf.DetrForObjectDetection(config), name, gain=2.0)
    repository = Repository(name, "object-detection")
    model.bbox_predictor.layers[-1].weight.data *= 0.6
    repository.export(model, "object-detection")
    repository.save(processor)
    detect(repository, model, processor, SCENES)
    repository.write()


def yolos() -> None:
    name = "yolos"
    config = tf.YolosConfig(
        hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48, image_size=[64, 96],
        patch_size=16, num_detection_tokens=10, **labels(PLACES[:5]),
    )
    processor = tf.YolosImageProcessor(size={"shortest_edge": 64, "longest_edge": 96})
    model = randomise(tf.YolosForObjectDetection(config), name, gain=2.0)
    repository = Repository(name, "object-detection")
    model.bbox_predictor.layers[-1].weight.data *= 0.6
    repository.export(model, "object-detection")
    repository.save(processor)
    detect(repository, model, processor, SCENES)
    repository.write()


def segment(repository: Repository, model: Any, processor: Any, cases: dict[str, Json], least: int = 3, **options: Any) -> None:
    """Cases of segmentation; a mask may differ in one pixel of a hundred."""
    run = pipeline("image-segmentation", model=model, image_processor=processor, **options)
    for index, (name, given) in enumerate(cases.items()):
        image = media.picture(repository.root, given["image"]["file"])
        chosen = {key: value for key, value in given.items() if key != "image"}
        found, calls, tolerance = seen(model, lambda: run(str(image), **chosen))
        demand(index or len(found) >= least, "too few segments")
        segments = [{**part(entry), "mask": {"file": f"{name}.mask{at}.png"}} for at, entry in enumerate(found)]
        for entry, shown in zip(found, segments):
            entry["mask"].save(repository.root / shown["mask"]["file"])
        width, height = upright(image).size
        output = {"segments": segments, "width": width, "height": height}
        arrays = arrays_of(repository, calls[0], "onnx/model.onnx", forward(model, calls[0])) if index == 0 else {}
        repository.case(name, given, output, tolerance, mask_tolerance=0.01, **arrays)


def part(entry: Json) -> Json:
    """The label of a segment, and its score where it has one."""
    scored = {} if entry["score"] is None else {"score": entry["score"]}
    return {"label": entry["label"], **scored}


def segformer() -> None:
    name = "segformer"
    config = tf.SegformerConfig(
        hidden_sizes=[8, 12, 16, 20], depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 2, 2], decoder_hidden_size=16,
        sr_ratios=[8, 4, 2, 1], mlp_ratios=[2, 2, 2, 2], **labels(PLACES[:6]),
    )
    processor = tf.SegformerImageProcessor(size={"height": 64, "width": 64}, **IMAGENET)
    model = randomise(tf.SegformerForSemanticSegmentation(config), name, gain=2.5)
    repository = Repository(name, "image-segmentation")
    model.decode_head.classifier.weight.data *= 3
    repository.export(model, "image-segmentation")
    repository.save(processor)
    cases = {"scene": {"image": {"file": "scene.png"}}, "gray": {"image": {"file": "gray.png"}}}
    segment(repository, model, processor, cases)
    repository.write()


FAMILIES = {"vit": vit, "resnet": resnet, "detr": detr, "yolos": yolos, "segformer": segformer}
