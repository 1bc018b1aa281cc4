"""More pictures: detectors without a class for nothing, and depth."""

from __future__ import annotations

from typing import Any

import torch
import transformers as tf
from torch import nn
from transformers import pipeline
from transformers.models.depth_anything import modeling_depth_anything
from transformers.utils import torch_int

import media
from common import Repository, demand, randomise, seen
from text import labels
from vision import IMAGENET, PLACES, SCENES, arrays_of, detect, forward, upright


def rt_detr() -> None:
    name = "rt-detr"
    backbone = tf.RTDetrResNetConfig(
        embedding_size=8, hidden_sizes=[8, 8, 12, 12], depths=[1, 1, 1, 1], layer_type="basic",
        out_features=["stage2", "stage3", "stage4"],
    )
    config = tf.RTDetrConfig(
        backbone_config=backbone, encoder_hidden_dim=16, encoder_in_channels=[8, 12, 12], encoder_layers=1,
        encoder_ffn_dim=16, encoder_attention_heads=2, d_model=16, num_queries=8, decoder_in_channels=[16, 16, 16],
        decoder_ffn_dim=16, decoder_layers=1, decoder_attention_heads=2, decoder_n_points=2, hidden_expansion=0.5,
        feat_strides=[8, 16, 32], num_denoising=0, anchor_image_size=None, **labels(PLACES[:5]),
    )
    processor = tf.RTDetrImageProcessor(size={"height": 64, "width": 64})
    model = randomise(tf.RTDetrForObjectDetection(config), name, gain=1.7)
    repository = Repository(name, "object-detection")
    repository.export(model, "object-detection")
    repository.save(processor)
    detect(repository, model, processor, SCENES)
    repository.write()


def estimate(repository: Repository, model: Any, processor: Any, files: list[str]) -> None:
    """Cases of depth; a level of the picture may differ by the tolerance."""
    run = pipeline("depth-estimation", model=model, image_processor=processor)
    for index, file in enumerate(files):
        image = media.picture(repository.root, file)
        found, calls, _tolerance = seen(model, lambda: run(str(image)))
        demand(len(found["depth"].getcolors()) > 60, "flat depth")
        stem = f"{image.stem}.depth.png"
        found["depth"].save(repository.root / stem)
        width, height = upright(image).size
        output = {"depth": {"file": stem}, "width": width, "height": height}
        wanted = forward(model, calls[0], "predicted_depth")
        arrays = arrays_of(repository, calls[0], "onnx/model.onnx", wanted, "predicted_depth") if index == 0 else {}
        repository.case(image.stem, {"image": {"file": file}}, output, 3, **arrays)


def dpt() -> None:
    name = "dpt"
    config = tf.DPTConfig(
        hidden_size=16, num_hidden_layers=4, num_attention_heads=2, intermediate_size=32, image_size=64, patch_size=16,
        backbone_out_indices=[0, 1, 2, 3], neck_hidden_sizes=[8, 8, 12, 12], fusion_hidden_size=8, is_hybrid=False,
        reassemble_factors=[4, 2, 1, 0.5], use_auxiliary_head=False, head_in_index=-1,
    )
    processor = tf.DPTImageProcessor(size={"height": 64, "width": 64}, keep_aspect_ratio=False, ensure_multiple_of=1)
    model = randomise(tf.DPTForDepthEstimation(config), name, gain=1.7)
    repository = Repository(name, "depth-estimation")
    repository.export(model, "depth-estimation")
    repository.save(processor)
    estimate(repository, model, processor, ["scene.png", "tall.png"])
    repository.write()


class PredictedDepth(nn.Module):
    """A depth model that gives its map alone."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        return self.model(pixel_values).predicted_depth


def depth_anything() -> None:
    name = "depth-anything"
    backbone = tf.Dinov2Config(
        hidden_size=16, num_hidden_layers=4, num_attention_heads=2, mlp_ratio=2, image_size=70, patch_size=14,
        out_indices=[1, 2, 3, 4], reshape_hidden_states=False, apply_layernorm=True,
    )
    config = tf.DepthAnythingConfig(
        backbone_config=backbone, patch_size=14, reassemble_hidden_size=16, reassemble_factors=[4, 2, 1, 0.5],
        neck_hidden_sizes=[8, 8, 12, 12], fusion_hidden_size=8, head_hidden_size=8, head_in_index=-1,
    )
    processor = tf.DPTImageProcessor(
        size={"height": 70, "width": 70}, keep_aspect_ratio=True, ensure_multiple_of=14, resample=3, **IMAGENET
    )
    model = randomise(tf.DepthAnythingForDepthEstimation(config), name, gain=1.7)
    repository = Repository(name, "depth-estimation")
    config.architectures = ["DepthAnythingForDepthEstimation"]
    repository.save(config, processor)
    axes = {0: "batch_size", 2: "height", 3: "width"}
    example = torch.randn(1, 3, 84, 70)
    outputs = {"predicted_depth": {0: "batch_size", 1: "height", 2: "width"}}
    modeling_depth_anything.int = torch_int  # sizes must stay symbols of the graph
    repository.trace(PredictedDepth(model), (example,), {"pixel_values": axes}, outputs, "onnx/model.onnx")
    estimate(repository, model, processor, ["scene.png", "tall.png", "gray.png"])
    repository.write()


FAMILIES = {"rt-detr": rt_detr, "dpt": dpt, "depth-anything": depth_anything}
