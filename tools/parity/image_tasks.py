"""Pictures to labels, boxes, masks and depth: every network, every processor class by every key, every format."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import torch
import transformers as tf
from PIL import Image
from torch import nn
from transformers import pipeline
from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING_NAMES

import archs
import media_files
import place
from common import Json, Repository, apart, capture, close, demand, outline, randomise, steady
from media_files import SIZED, is_lossy, opened, picture
from place import ABSENT, answered, attempt, repository, seeded, varied
from text import labels
from vision import PLACES, resnet_config

SCORES = 2e-4
"""Largest difference of a score where the pixels are equal: f32, a network of a few layers."""
DECODER = 2e-2
"""The same where two decoders of a lossy format differ by a level."""
CORNER = 40
RECORDED = 3_000_000
"""Numbers of the largest input that the engine records for comparison."""


def given_pixels(calls: list[Json], name: str) -> Json:
    """The first pixels that the network was given, or a corner of them; none of a format that two decoders read differently."""
    pixels = calls[0].get("pixel_values") if calls else None
    return {} if pixels is None or is_lossy(name) or pixels.size > RECORDED else {"pixel_values": pixels[:, :, :CORNER, :CORNER]}


def with_pixels(made: Repository, model: Any, given: Json, run: Callable[[], Any]) -> tuple[Any, Json]:
    """A result, and what its case records: the pixels, and the tolerance that its format needs."""
    name = given["image"]["file"].rsplit("/", 1)[-1]
    with capture(model) as calls:
        found = run()
    tensors = given_pixels(calls, name)
    return found, {**({"tensors": tensors} if tensors else {}), **({"tolerance": DECODER} if is_lossy(name) else {})}


def file_of(given: Json) -> str:
    return str(opened(given["image"]["file"].rsplit("/", 1)[-1]))


def classify(made: Repository, model: Any, processor: Any) -> place.Run:
    run = pipeline("image-classification", model=model, image_processor=processor)

    def answer(given: Json) -> Json:
        found, own = with_pixels(made, model, given, lambda: run(file_of(given), top_k=given.get("top_k", 5)))
        scores, least = [entry["score"] for entry in found], 2 * own.get("tolerance", SCORES)
        apart(scores[:2], least)
        ranked = all(left - right >= least for left, right in zip(scores, scores[1:]))
        return {**found[0], **({"scores": found} if ranked else {}), "__case__": own}

    return answer


def pictures(names: Any, **more: Any) -> dict[str, Json]:
    return {name: {"image": {"file": picture(name)}, **more} for name in names}


class Logits(nn.Module):
    """A classifier that gives its logits alone."""

    def __init__(self, model: nn.Module, output: str = "logits"):
        super().__init__()
        self.model, self.output = model, output

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        return getattr(self.model(pixel_values=pixel_values), self.output)


def traced(made: Repository, model: Any, side: int, output: str = "logits", outputs: Json | None = None) -> None:
    """A graph for pictures of one size, with torch's own exporter."""
    config = model.config
    config.architectures = [type(model).__name__]
    made.save(config)
    made.trace(Logits(model, output), (torch.zeros(1, 3, side, side),), {"pixel_values": {0: "batch_size"}}, outputs or {output: {0: "batch_size"}}, "onnx/model.onnx", opset=18)
    example = torch.randn(1, 3, side, side, generator=torch.Generator().manual_seed(8))
    with torch.no_grad():
        close(made.session()({"pixel_values": example.numpy()})[output], Logits(model, output)(example).numpy())


STAGES = dict(hidden_sizes=[8, 12, 16, 20], depths=[1, 1, 1, 1])
PATCHES = dict(image_size=32, patch_size=8)
NETWORKS: dict[str, tuple[str, Json]] = {
    "vit": ("ViT", PATCHES), "deit": ("DeiT", PATCHES), "beit": ("Beit", PATCHES), "data2vec-vision": ("Beit", PATCHES), "vit_msn": ("ViT", PATCHES),
    "dinov2": ("Bit", PATCHES), "convnext": ("ConvNext", STAGES), "convnextv2": ("ConvNext", STAGES),
    "resnet": ("ConvNext", {**STAGES, "embedding_size": 8, "layer_type": "basic"}), "regnet": ("ConvNext", {**STAGES, "embedding_size": 8, "groups_width": 4}),
    "van": ("ConvNext", {**STAGES, "image_size": 64}), "bit": ("Bit", dict(hidden_sizes=[8, 16, 16, 32], depths=[1, 1, 1, 1], embedding_size=8, num_groups=4)),
    "swin": ("ViT", dict(image_size=32, patch_size=4, embed_dim=8, depths=[1, 1], num_heads=[2, 2], window_size=4)),
    "swinv2": ("ViT", dict(image_size=32, patch_size=4, embed_dim=8, depths=[1, 1], num_heads=[2, 2], window_size=4)),
    "focalnet": ("Bit", dict(image_size=32, patch_size=4, embed_dim=8, hidden_sizes=[8, 16], depths=[1, 1], focal_levels=[2, 2], focal_windows=[3, 3])),
    "pvt": ("Pvt", dict(image_size=32, hidden_sizes=[8, 8, 12, 16], depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 2, 2], sequence_reduction_ratios=[4, 2, 1, 1], mlp_ratios=[2, 2, 2, 2])),
    "pvt_v2": ("Pvt", dict(image_size=32, hidden_sizes=[8, 8, 12, 16], depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 2, 2], sr_ratios=[4, 2, 1, 1], mlp_ratios=[2, 2, 2, 2])),
    "poolformer": ("PoolFormer", dict(hidden_sizes=[8, 12, 16, 20], depths=[1, 1, 1, 1], mlp_ratio=2.0)),
    "segformer": ("Segformer", dict(hidden_sizes=[8, 12, 16, 20], depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 2, 2], sr_ratios=[8, 4, 2, 1], mlp_ratios=[2, 2, 2, 2])),
    "mobilenet_v1": ("MobileNetV1", dict(image_size=32, depth_multiplier=0.25, min_depth=4)),
    "mobilenet_v2": ("MobileNetV2", dict(image_size=32, depth_multiplier=0.25, min_depth=4)),
    "mobilevit": ("MobileViT", dict(image_size=64, hidden_sizes=[16, 20, 24], neck_hidden_sizes=[8, 8, 8, 12, 16, 16, 20], num_attention_heads=2)),
    "mobilevitv2": ("MobileViT", dict(image_size=64, width_multiplier=0.25, base_attn_unit_dims=[16, 16, 16], n_attn_blocks=[1, 1, 1])),
    "efficientnet": ("EfficientNet", dict(image_size=32, width_coefficient=0.25, depth_coefficient=0.25, hidden_dim=320)),
    "cvt": ("ConvNext", dict(embed_dim=[8, 12, 16], num_heads=[1, 2, 2], depth=[1, 2, 3])),
    "levit": ("Levit", dict(image_size=64, hidden_sizes=[16, 16, 16], num_attention_heads=[2, 2, 2], depths=[1, 1, 1], key_dim=[4, 4, 4])),
    "hiera": ("Bit", dict(image_size=[32, 32], embed_dim=8, depths=[1, 1], num_heads=[1, 2], query_stride=[2, 2], masked_unit_size=[2, 2], num_query_pool=1, patch_size=[7, 7], patch_stride=[4, 4], patch_padding=[3, 3])),
    "siglip": ("Siglip", {}),
    "ijepa": ("ViT", PATCHES),
}
CLASSES = labels(PLACES)
EXPLICIT = {"deit": tf.DeiTForImageClassification, "levit": tf.LevitForImageClassification}
"""Networks that the reference's automatic class finds two heads for."""


def even(model: Any, side: int) -> Any:
    """Scales the last layer so that no class has all of the probability."""
    noise = torch.Generator().manual_seed(4)
    with torch.no_grad():
        found = model(pixel_values=torch.randn(4, 3, side, side, generator=noise)).logits
        spread = float((found - found.mean(0)).std() + found.mean(0).std()) / 2
        heads = [part for part in model.modules() if isinstance(part, nn.Linear) and part.out_features == found.shape[-1]]
        for head in heads:
            head.weight.data /= max(spread, 1e-3)
            if head.bias is not None:
                head.bias.data /= max(spread, 1e-3)
    return model


def side_of(settings: Any) -> int:
    side = getattr(settings, "image_size", 32)
    return side[0] if isinstance(side, (list, tuple)) else side if side in (32, 64) else 32


def processor_of(stem: str, side: int) -> Any:
    """The processor of a class for squares of a size."""
    kind = getattr(tf, f"{stem}ImageProcessor")
    square = {"height": side, "width": side}
    short = {"shortest_edge": side}
    sizes = {"ConvNext": short, "CLIP": short, "Bit": short, "MobileNetV1": short, "MobileNetV2": short, "MobileViT": short, "Levit": short, "PoolFormer": short}
    crops = {} if stem in ("ViT", "Pvt", "Segformer", "Siglip", "RTDetr", "ConvNext", "EfficientNet") else {"crop_size": square}
    return kind(size=sizes.get(stem, square), **crops)


def classifiers(only: Callable[[str], bool]) -> None:
    """Every image classifier, exported by optimum where it can."""
    from optimum.exporters.tasks import TasksManager
    import optimum.exporters.onnx.model_configs  # noqa: F401

    known = set(TasksManager.get_supported_model_type_for_task("image-classification", exporter="onnx"))
    for kind, (stem, sizes) in NETWORKS.items():
        name = f"image-classification--{kind}"
        if not only(name):
            continue

        def make() -> None:
            if kind == "siglip":
                vision = dict(hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, **PATCHES)
                settings = tf.SiglipConfig(vision_config=vision, **CLASSES)
            else:
                settings = archs.config(kind, **sizes, **CLASSES)
            side = side_of(settings)
            settings.image_size = getattr(settings, "image_size", side)
            model = even(archs.network(EXPLICIT.get(kind, tf.AutoModelForImageClassification), settings, name, gain=1.7), side)
            made = repository(name, "image-classification", architecture=kind)
            if kind in known and kind != "dinov2":
                made.export(model, "image-classification")
            else:
                traced(made, model, side)
            made.save(processor_of(stem, side))
            loaded = tf.AutoImageProcessor.from_pretrained(made.model, use_fast=False)
            answered(made, classify(made, model, loaded), pictures(SIZED), SCORES)

        attempt(name, make)


def resnet(name: str) -> tuple[Repository, Any]:
    """A classifier of pictures of any size."""
    model = randomise(tf.ResNetForImageClassification(resnet_config(**CLASSES)), seeded(name), gain=2.0)
    even(model, 56)
    made = repository(name, "image-classification", architecture="resnet")
    made.export(model, "image-classification")
    return made, model


def formats(only: Callable[[str], bool]) -> None:
    """Every format, mode, orientation and odd size."""
    for stem in ("ViT", "CLIP", "ConvNext"):
        name = f"formats--{stem}"
        if not only(name):
            continue

        def make() -> None:
            made, model = resnet(name)
            made.save(processor_of(stem, 40))
            loaded = tf.AutoImageProcessor.from_pretrained(made.model, use_fast=False)
            answered(made, classify(made, model, loaded), pictures(media_files.PICTURES), SCORES)

        attempt(name, make)


RESIZED = [
    "ViT", "DeiT", "Beit", "CLIP", "ChineseCLIP", "Bit", "ConvNext", "MobileNetV1", "MobileNetV2", "MobileViT", "Segformer", "DPT", "GLPN", "RTDetr",
    "EfficientNet", "Levit", "PoolFormer", "Pvt", "Donut", "Siglip", "Blip", "ViTHybrid", "EfficientFormer", "LayoutLMv3", "Flava", "TextNet", "Nougat", "ImageGPT",
    "Perceiver", "BridgeTower", "ViTMatte", "OwlViT", "Owlv2", "Swin2SR", "SegGpt", "ZoeDepth", "SuperPoint", "LlavaNext", "Idefics2", "Qwen2VL", "Siglip2",
]
SQUARE = {"height": 48, "width": 48}
CHANGES: dict[str, Json] = {
    "as-saved": {}, "no-resize": {"do_resize": False}, "wide": {"size": {"height": 40, "width": 56}}, "shortest": {"size": {"shortest_edge": 44}},
    "longest": {"size": {"longest_edge": 60}}, "both-edges": {"size": {"shortest_edge": 44, "longest_edge": 56}}, "one-number": {"size": 44}, "two-numbers": {"size": [44, 52]},
    **{f"resample-{number}": {"resample": number} for number in range(6)},
    "no-crop": {"do_center_crop": False}, "crop": {"do_center_crop": True, "crop_size": {"height": 36, "width": 32}}, "crop-number": {"do_center_crop": True, "crop_size": 36},
    "crop-larger": {"do_center_crop": True, "crop_size": {"height": 61, "width": 70}}, "no-rescale": {"do_rescale": False, "image_mean": [100, 110, 120], "image_std": [60, 61, 62]},
    "rescale": {"rescale_factor": 1 / 127.5}, "no-normalize": {"do_normalize": False}, "mean": {"image_mean": [0.1, 0.4, 0.7], "image_std": [0.2, 0.3, 0.4]},
    "one-mean": {"image_mean": 0.3, "image_std": 0.4}, "no-rgb": {"do_convert_rgb": False}, "rgb": {"do_convert_rgb": True},
    "crop-pct": {"crop_pct": 0.7}, "crop-pct-one": {"crop_pct": 1.0}, "multiple": {"ensure_multiple_of": 16}, "keep-aspect": {"keep_aspect_ratio": True},
    "keep-aspect-multiple": {"keep_aspect_ratio": True, "ensure_multiple_of": 14}, "pad": {"do_pad": True}, "pad-size": {"do_pad": True, "pad_size": {"height": 80, "width": 90}},
    "no-pad": {"do_pad": False}, "divisor": {"size_divisor": 16}, "divisor-8": {"size_divisor": 8}, "offset": {"rescale_offset": True}, "top": {"include_top": False},
    "flip": {"do_flip_channel_order": True}, "no-flip": {"do_flip_channel_order": False}, "long-axis": {"do_align_long_axis": True}, "no-thumbnail": {"do_thumbnail": False},
    "reduce-labels": {"do_reduce_labels": True}, "unknown-key": {"do_everything": True}, "no-mean": {"image_mean": ABSENT, "image_std": ABSENT},
    "no-size": {"size": ABSENT}, "no-resample": {"resample": ABSENT}, "no-flags": {"do_center_crop": ABSENT, "do_resize": ABSENT, "do_normalize": ABSENT, "do_rescale": ABSENT},
    "no-crop-size": {"crop_size": ABSENT},
}
FILE = "preprocessor_config.json"


def processors(only: Callable[[str], bool]) -> None:
    """Every processor class by every key that it has, in front of a network for any size."""
    base = network = None
    for stem in RESIZED:
        kind = getattr(tf, f"{stem}ImageProcessor", None)
        if kind is None or not only(f"processor--{stem}"):
            continue
        if base is None:
            base, network = resnet("processors")
        usual = kind().to_dict()
        first: Repository | None = None
        names = ("rgb.png", "tall.png") if usual.get("do_resize", True) else SIZED
        for label, keys in {"defaults": {}, **CHANGES}.items():
            if label not in ("as-saved", "defaults", "unknown-key") and not any(key in usual for key in keys):
                continue
            if label == "defaults":
                content: Json = {"image_processor_type": f"{stem}ImageProcessor"}
            else:
                small = {key: value for key, value in _small(usual).items()}
                content = {**usual, **small, "image_processor_type": f"{stem}ImageProcessor"}
                content |= keys

            def make() -> Repository:
                made = varied(base, f"{stem}-{label}", {FILE: content})
                made.extra["setting"] = [{"file": FILE, "key": key, "value": "absent" if value is ABSENT else value} for key, value in (keys or {"image_processor_type": stem}).items()]
                written = {key: value for key, value in content.items() if value is not ABSENT}
                (made.model / FILE).write_text(json.dumps(written, indent=1, default=str) + "\n")
                loaded = tf.AutoImageProcessor.from_pretrained(made.model, use_fast=False)
                return answered(made, classify(made, network, loaded), pictures(names), SCORES, first)

            done = attempt(f"{stem}-{label}", make, draws=1)
            if label == "as-saved":
                first = done
    if base is not None:
        import shutil

        shutil.rmtree(base.root)


def _small(usual: Json) -> Json:
    """Sizes of a test in the form that a class has."""
    size = usual.get("size")
    if isinstance(size, dict):
        size = {key: 48 if "long" not in key else 72 for key in size}
    crop = usual.get("crop_size")
    crop = {key: 40 for key in crop} if isinstance(crop, dict) else crop
    return {**({"size": size} if size is not None else {}), **({"crop_size": crop} if crop is not None else {})}


OF_DETECTORS = {f"{stem}ImageProcessor" for stem in ("Detr", "ConditionalDetr", "DeformableDetr", "GroundingDino", "Yolos", "Sam")}
"""Classes that other parts of the grid try."""


def others(only: Callable[[str], bool]) -> None:
    """Processor classes that are not served: each is refused by its name, whatever the picture."""
    known = {f"{stem}ImageProcessor" for stem in RESIZED}
    names = sorted({name for pair in IMAGE_PROCESSOR_MAPPING_NAMES.values() for name in pair if name and name.removesuffix("Fast") not in known | OF_DETECTORS})
    base = None
    for kind in names:
        if not only(f"class--{kind}"):
            continue
        if base is None:
            base, _network = resnet("classes")
        made = varied(base, kind, {FILE: {"image_processor_type": kind}})
        made.case("class", {"image": {"file": picture("rgb.png")}}, {"label": "-"})
        made.write()
    if base is not None:
        import shutil

        shutil.rmtree(base.root)


def detect(made: Repository, model: Any, processor: Any) -> place.Run:
    run = pipeline("object-detection", model=model, image_processor=processor)

    def answer(given: Json) -> Json:
        threshold = given.get("threshold", 0.5)
        once = lambda: run(file_of(given), threshold=threshold)
        found, own = with_pixels(made, model, given, once)
        demand(steady(model, lambda: outline(once())) == outline(found), "not steady")
        demand(all(abs(entry["score"] - threshold) > 2 * SCORES for entry in found), "a score at the threshold")
        width, height = tf.image_utils.load_image(file_of(given)).size
        return {"detections": found, "width": width, "height": height, "__case__": own}

    return answer


DETECTORS: dict[str, Json] = {
    "detr": dict(use_timm_backbone=False, use_pretrained_backbone=False, backbone=None, num_queries=12, d_model=16),
    "table-transformer": dict(use_timm_backbone=False, use_pretrained_backbone=False, backbone=None, num_queries=12, d_model=16),
    "conditional_detr": dict(use_timm_backbone=False, use_pretrained_backbone=False, backbone=None, num_queries=12, d_model=16),
    "yolos": dict(image_size=[64, 96], patch_size=16, num_detection_tokens=10),
    "rt_detr": {}, "rt_detr_v2": {}, "d_fine": {},
}


def detector(kind: str, name: str) -> Any:
    heads = labels(PLACES[:5])
    if kind in ("rt_detr", "rt_detr_v2", "d_fine"):
        backbone = tf.RTDetrResNetConfig(embedding_size=8, hidden_sizes=[8, 8, 12, 12], depths=[1, 1, 1, 1], layer_type="basic", out_features=["stage2", "stage3", "stage4"])
        if kind == "d_fine":
            backbone = tf.HGNetV2Config(
                embedding_size=8, stem_channels=[3, 8, 8], hidden_sizes=[8, 8, 12, 12], stage_in_channels=[8, 8, 8, 12], stage_mid_channels=[8, 8, 8, 8],
                stage_out_channels=[8, 8, 12, 12], stage_num_blocks=[1, 1, 1, 1], stage_numb_of_layers=[1, 1, 1, 1], stage_downsample=[False, True, True, True],
                stage_light_block=[False, False, True, True], stage_kernel_size=[3, 3, 3, 3], out_features=["stage2", "stage3", "stage4"], use_learnable_affine_block=True,
            )
        settings = archs.AutoConfig.for_model(
            kind, backbone_config=backbone, encoder_hidden_dim=16, encoder_in_channels=[8, 12, 12], encoder_layers=1, encoder_ffn_dim=16, encoder_attention_heads=2, d_model=16,
            num_queries=8, decoder_in_channels=[16, 16, 16], decoder_ffn_dim=16, decoder_layers=1 if kind != "d_fine" else 2, decoder_attention_heads=2, decoder_n_points=[2, 2, 2] if kind == "d_fine" else 2,
            hidden_expansion=0.5, feat_strides=[8, 16, 32], num_denoising=0, anchor_image_size=None, **heads,
        )
    elif kind == "yolos":
        settings = archs.config(kind, **DETECTORS[kind], **heads)
    else:
        settings = archs.AutoConfig.for_model(
            kind, **DETECTORS[kind], backbone_config=resnet_config(out_features=["stage4"]), encoder_layers=1, decoder_layers=2, encoder_attention_heads=2,
            decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32, **heads,
        )
    model = randomise(tf.AutoModelForObjectDetection.from_config(settings), seeded(name), gain=2.0)
    for part in ("bbox_predictor",):
        if hasattr(model, part):
            getattr(model, part).layers[-1].weight.data *= 0.6
    return model


DETECTION = {"default": {}, "low": {"threshold": 0.3}, "none": {"threshold": 0.9999}}
BOX_CHANGES: dict[str, Json] = {
    "size-number": {"size": 48, "max_size": 72}, "size-square": {"size": {"height": 64, "width": 64}}, "size-longest": {"size": {"longest_edge": 72, "shortest_edge": 64}},
    "size-max": {"size": {"max_height": 70, "max_width": 60}}, "no-pad": {"do_pad": False}, "pad-size": {"do_pad": True, "pad_size": {"height": 96, "width": 128}},
    "panoptic": {"format": "coco_panoptic"}, "no-normalize": {"do_normalize": False}, "no-resize": {"do_resize": False}, "mean": {"image_mean": [0.1, 0.4, 0.7]},
    "annotations": {"do_convert_annotations": False}, "rescale": {"rescale_factor": 1 / 127.5}, "resample": {"resample": 3}, "old-pad": {"pad_and_return_pixel_mask": False},
}


def detectors(only: Callable[[str], bool]) -> None:
    """Every detector, and the keys of the processors that read pictures for them."""
    stems = {"detr": "Detr", "table-transformer": "Detr", "conditional_detr": "ConditionalDetr", "yolos": "Yolos"}
    for kind in DETECTORS:
        name = f"object-detection--{kind}"
        if not only(name):
            continue

        def make() -> None:
            model = detector(kind, name)
            stem = stems.get(kind, "RTDetr")
            size = {"height": 64, "width": 64} if stem == "RTDetr" else {"shortest_edge": 64, "longest_edge": 96}
            base = repository(name, "object-detection", architecture=kind)
            if kind == "conditional_detr":
                export_boxes(base, model)
            else:
                base.export(model, "object-detection")
            base.save(getattr(tf, f"{stem}ImageProcessor")(size=size))
            inputs = {f"{file}-{label}": {"image": {"file": picture(file)}, **more} for file in ("rgb.png", "tall.png", "gray.png") for label, more in DETECTION.items()}
            if kind == "yolos":
                inputs = {label: given for label, given in inputs.items() if "tall" not in label}
            loaded = tf.AutoImageProcessor.from_pretrained(base.model, use_fast=False)
            answered(base, detect(base, model, loaded), inputs, SCORES, box_tolerance=1)
            for label, keys in BOX_CHANGES.items():
                def vary() -> None:
                    made = varied(base, label, {FILE: keys})
                    again = tf.AutoImageProcessor.from_pretrained(made.model, use_fast=False)
                    answered(made, detect(made, model, again), inputs, SCORES, base, box_tolerance=1)

                if stem != "RTDetr" or label in ("no-normalize", "no-resize", "mean", "rescale", "resample", "pad-size"):
                    attempt(f"{name}--{label}", vary, draws=1)

        attempt(name, make, draws=6)


class Boxes(nn.Module):
    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, pixel_values: torch.Tensor, pixel_mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        found = self.model(pixel_values=pixel_values, pixel_mask=pixel_mask)
        return found.logits, found.pred_boxes


def export_boxes(made: Repository, model: Any) -> None:
    model.config.architectures = [type(model).__name__]
    made.save(model.config)
    axes = {0: "batch_size", 2: "height", 3: "width"}
    inputs = {"pixel_values": axes, "pixel_mask": {0: "batch_size", 1: "height", 2: "width"}}
    outputs = {"logits": {0: "batch_size"}, "pred_boxes": {0: "batch_size"}}
    made.trace(Boxes(model), (torch.randn(1, 3, 64, 80), torch.ones(1, 64, 80, dtype=torch.long)), inputs, outputs, "onnx/model.onnx")


def segment(made: Repository, model: Any, processor: Any, **options: Any) -> place.Run:
    run = pipeline("image-segmentation", model=model, image_processor=processor, **options)

    def answer(given: Json) -> Json:
        chosen = {key: value for key, value in given.items() if key != "image"}
        found, own = with_pixels(made, model, given, lambda: run(file_of(given), **chosen))
        stem = len(list(made.root.glob("*.png")))
        segments = []
        for index, entry in enumerate(found):
            file = f"{stem}.mask{index}.png"
            entry["mask"].save(made.root / file)
            segments.append({"label": entry["label"], **({} if entry["score"] is None else {"score": entry["score"]}), "mask": {"file": file}})
        demand(len(segments) > 0, "no segment")
        width, height = tf.image_utils.load_image(file_of(given)).size
        return {"segments": segments, "width": width, "height": height, "__case__": own}

    return answer


def segmenters(only: Callable[[str], bool]) -> None:
    """Networks that give a class for each pixel or a mask for each query."""
    heads = labels(PLACES[:6])
    shapes = NETWORKS["segformer"][1]
    kinds: dict[str, tuple[Any, Any, Any]] = {
        "segformer": (lambda: tf.SegformerConfig(**shapes, decoder_hidden_size=16, **heads), tf.SegformerForSemanticSegmentation, tf.SegformerImageProcessor(size={"height": 64, "width": 64})),
        "mobilevit": (
            lambda: tf.MobileViTConfig(**{**NETWORKS["mobilevit"][1], "aspp_out_channels": 16, "atrous_rates": [1, 2, 3]}, num_hidden_layers=2, **heads),
            tf.MobileViTForSemanticSegmentation, tf.MobileViTImageProcessor(size={"shortest_edge": 64}, crop_size={"height": 64, "width": 64}),
        ),
        "dpt": (
            lambda: tf.DPTConfig(
                hidden_size=16, num_hidden_layers=4, num_attention_heads=2, intermediate_size=32, image_size=64, patch_size=16, backbone_out_indices=[0, 1, 2, 3],
                neck_hidden_sizes=[8, 8, 12, 12], fusion_hidden_size=8, is_hybrid=False, reassemble_factors=[4, 2, 1, 0.5], use_auxiliary_head=False, **heads,
            ),
            tf.DPTForSemanticSegmentation, tf.DPTImageProcessor(size={"height": 64, "width": 64}),
        ),
        "beit": (lambda: tf.BeitConfig(
            hidden_size=24, num_hidden_layers=4, num_attention_heads=2, intermediate_size=32, image_size=64, patch_size=16, out_indices=[1, 2, 3, 4], pool_scales=[1, 2],
            use_auxiliary_head=False, **heads), tf.BeitForSemanticSegmentation, tf.BeitImageProcessor(size={"height": 64, "width": 64}, do_center_crop=False)),
        "maskformer": (
            lambda: tf.MaskFormerConfig(
                backbone_config=tf.SwinConfig(image_size=64, patch_size=4, embed_dim=8, depths=[1, 1, 1, 1], num_heads=[1, 1, 2, 2], window_size=2, out_features=["stage1", "stage2", "stage3", "stage4"]),
                decoder_config=tf.DetrConfig(d_model=16, encoder_layers=1, decoder_layers=2, encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16, num_queries=10),
                fpn_feature_size=32, mask_feature_size=32, **heads,
            ),
            tf.MaskFormerForInstanceSegmentation, tf.MaskFormerImageProcessor(size={"shortest_edge": 64, "longest_edge": 96}, size_divisor=32),
        ),
    }
    for kind, (settings, auto, processor) in kinds.items():
        name = f"image-segmentation--{kind}"
        if not only(name):
            continue

        def make() -> None:
            model = randomise(auto(settings()), seeded(name), gain=2.5)
            base = repository(name, "image-segmentation", architecture=kind)
            if kind == "beit":
                traced(base, model, 64)
            else:
                base.export(model, "image-segmentation")
            base.save(processor)
            inputs = pictures(("rgb.png", "tall.png", "gray.png"))
            loaded = tf.AutoImageProcessor.from_pretrained(base.model, use_fast=False)
            answered(base, segment(base, model, loaded), inputs, SCORES, mask_tolerance=0.002)
            for label, keys in {"reduce": {"do_reduce_labels": True}, "nearest": {"resample": 0}, "mean": {"image_mean": [0.1, 0.4, 0.7]}}.items():
                def vary() -> None:
                    made = varied(base, label, {FILE: keys})
                    again = tf.AutoImageProcessor.from_pretrained(made.model, use_fast=False)
                    answered(made, segment(made, model, again), inputs, SCORES, base, mask_tolerance=0.002)

                attempt(f"{name}--{label}", vary, draws=1)

        attempt(name, make, draws=6)


def depths(only: Callable[[str], bool]) -> None:
    """Networks that give the depth of each pixel."""
    neck = dict(backbone_out_indices=[0, 1, 2, 3], neck_hidden_sizes=[8, 8, 12, 12], fusion_hidden_size=8, reassemble_factors=[4, 2, 1, 0.5])
    kinds: dict[str, tuple[Any, Any, Any, Json]] = {
        "dpt": (
            tf.DPTConfig(hidden_size=16, num_hidden_layers=4, num_attention_heads=2, intermediate_size=32, image_size=64, patch_size=16, is_hybrid=False, use_auxiliary_head=False, head_in_index=-1, **neck),
            tf.DPTForDepthEstimation, tf.DPTImageProcessor(size={"height": 64, "width": 64}),
            {"aspect": {"keep_aspect_ratio": False, "ensure_multiple_of": 16}, "mean": {"image_mean": [0.1, 0.4, 0.7]}, "pad": {"do_pad": True, "size_divisor": 16}, "bilinear": {"resample": 2}},
        ),
        "glpn": (
            tf.GLPNConfig(hidden_sizes=[8, 12, 16, 20], depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 2, 2], decoder_hidden_size=16, sr_ratios=[8, 4, 2, 1], mlp_ratios=[2, 2, 2, 2]),
            tf.GLPNForDepthEstimation, tf.GLPNImageProcessor(), {"divisor": {"size_divisor": 64}, "bicubic": {"resample": 3}, "no-resize": {"do_resize": False}},
        ),
    }
    for kind, (settings, auto, processor, changes) in kinds.items():
        name = f"depth-estimation--{kind}"
        if not only(name):
            continue

        def make() -> None:
            model = randomise(auto(settings), seeded(name), gain=1.7)
            base = repository(name, "depth-estimation", architecture=kind)
            base.export(model, "depth-estimation")
            base.save(processor)
            inputs = pictures(("rgb.png", "tall.png", "gray.png", "square.png") if kind == "dpt" else ("rgb.png", "large.png"))
            for label, keys in {"": {}, **changes}.items():
                def vary() -> None:
                    made = varied(base, label, {FILE: keys}) if label else base
                    loaded = tf.AutoImageProcessor.from_pretrained(made.model, use_fast=False)
                    answered(made, estimate(made, model, loaded), inputs, 1.0, base if label else None, mask_tolerance=0.002)

                vary() if not label else attempt(f"{name}--{label}", vary, draws=1)

        attempt(name, make, draws=6)


def estimate(made: Repository, model: Any, processor: Any) -> place.Run:
    run = pipeline("depth-estimation", model=model, image_processor=processor)

    def answer(given: Json) -> Json:
        found, own = with_pixels(made, model, given, lambda: run(file_of(given)))
        demand(len(found["depth"].getcolors() or [0] * 256) > 30, "flat depth")
        file = f"{len(list(made.root.glob('*.png')))}.depth.png"
        found["depth"].save(made.root / file)
        width, height = Image.open(file_of(given)).size
        return {"depth": {"file": file}, "width": width, "height": height, "__case__": own}

    return answer


FAMILIES = {
    "image-classifiers": classifiers, "image-formats": formats, "image-processors": processors, "image-classes": others, "image-detectors": detectors,
    "image-segmenters": segmenters, "image-depth": depths,
}
