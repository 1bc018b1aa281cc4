"""Masks by query and masks by point: DETR's panoptic head and SAM."""

from __future__ import annotations

import numpy as np
import torch
import transformers as tf
from PIL import Image

import media
from common import Json, Repository, close, demand, randomise
from text import labels
from vision import PLACES, resnet_config, segment, upright


def detr_panoptic() -> None:
    name = "detr-panoptic"
    stages = ["stage1", "stage2", "stage3", "stage4"]
    config = tf.DetrConfig(
        use_timm_backbone=False, use_pretrained_backbone=False, backbone=None,
        backbone_config=resnet_config(out_features=stages, hidden_sizes=[8, 8, 8, 12]),
        d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=8, decoder_attention_heads=8,
        encoder_ffn_dim=16, decoder_ffn_dim=16, num_queries=10, **labels(PLACES[:4]),
    )
    processor = tf.DetrImageProcessor(size={"shortest_edge": 96, "longest_edge": 132}, format="coco_panoptic")
    model = randomise(tf.DetrForSegmentation(config), name, gain=2.0)
    spread(model, torch.from_numpy(processor(media.scene())["pixel_values"][0])[None])
    repository = Repository(name, "image-segmentation")
    repository.export(model, "image-segmentation")
    repository.save(processor)
    cases = {
        "scene": {"image": {"file": "scene.png"}, "threshold": 0.3},
        "gray": {"image": {"file": "gray.png"}, "threshold": 0.5, "overlap_mask_area_threshold": 0.7},
    }
    segment(repository, model, processor, cases, least=2, subtask="panoptic")
    repository.write()


def spread(model: tf.DetrForSegmentation, pixels: torch.Tensor) -> None:
    """Lets the queries differ, of which an untrained model makes nearly the same."""
    head = model.mask_head
    model.detr.model.query_position_embeddings.weight.data *= 8
    model.bbox_attention.q_linear.weight.data *= 10
    head.lay1.weight.data[:, model.config.d_model :] *= 80
    for adapter in (head.adapter1, head.adapter2, head.adapter3):
        adapter.weight.data *= 0.02
    with torch.no_grad():
        found = model(pixels)
        model.detr.class_labels_classifier.bias -= found.logits.mean((0, 1))
        model.detr.class_labels_classifier.bias[-1] -= 1
        head.out_lay.bias -= found.pred_masks.mean()
        head.out_lay.weight.data *= 3
    model.detr.class_labels_classifier.weight.data *= 1.5


def sam() -> None:
    name = "sam"
    size = 64
    vision = tf.SamVisionConfig(
        hidden_size=16, output_channels=16, num_hidden_layers=2, num_attention_heads=2, image_size=size, patch_size=8,
        mlp_dim=32, window_size=4, global_attn_indexes=[1], num_pos_feats=8, mlp_ratio=2,
    )
    prompts = tf.SamPromptEncoderConfig(
        hidden_size=16, image_size=size, patch_size=8, mask_input_channels=4, image_embedding_size=size // 8
    )
    decoder = tf.SamMaskDecoderConfig(
        hidden_size=16, mlp_dim=32, num_hidden_layers=2, num_attention_heads=2, iou_head_hidden_dim=16, iou_head_depth=2
    )
    config = tf.SamConfig(vision_config=vision, prompt_encoder_config=prompts, mask_decoder_config=decoder)
    model = randomise(tf.SamModel(config), name, gain=1.7)
    mask_size = {"height": size // 4, "width": size // 4}
    images = tf.SamImageProcessor(
        size={"longest_edge": size}, pad_size={"height": size, "width": size}, mask_size={"longest_edge": size // 4},
        mask_pad_size=mask_size,
    )
    processor = tf.SamProcessor(images)
    repository = Repository(name, "image-segmentation")
    repository.extra = {"reference": "the library's SamProcessor and SamModel; of three masks the one of the highest score"}
    repository.export(model, "feature-extraction")
    repository.save(processor)
    cases: Json = {
        "one-point": ("scene.png", [(60, 40, True)]),
        "two-points": ("scene.png", [(90, 60, True), (20, 80, False)]),
        "tall": ("tall.png", [(30, 100, True)]),
    }
    for index, (case, (file, points)) in enumerate(cases.items()):
        image = upright(media.picture(repository.root, file))
        given = {"image": {"file": file}, "points": [{"x": x, "y": y, "positive": good} for x, y, good in points]}
        inputs = processor(
            image, input_points=[[[float(x), float(y)] for x, y, _good in points]],
            input_labels=[[int(good) for *_place, good in points]], return_tensors="pt",
        )
        sizes = [inputs.pop(key) for key in ("original_sizes", "reshaped_input_sizes")]
        with torch.no_grad():
            found = model(**inputs)
        masks = processor.image_processor.post_process_masks(found.pred_masks, *sizes)[0][0].numpy()
        scores = found.iou_scores[0, 0].numpy()
        best = int(scores.argmax())
        demand(np.sort(scores)[-1] - np.sort(scores)[-2] > 0.02, "masks of one score")
        demand(0.05 < masks[best].mean() < 0.95, "an empty mask")
        Image.fromarray(masks[best].astype(np.uint8) * 255).save(repository.root / f"{case}.mask.png")
        part = {"label": "object", "score": float(scores[best]), "mask": {"file": f"{case}.mask.png"}}
        output = {"segments": [part], "width": image.width, "height": image.height}
        arrays = sam_arrays(repository, {key: value.numpy() for key, value in inputs.items()}, found) if index == 0 else {}
        repository.case(case, given, output, 0.01, mask_tolerance=0.02, **arrays)
    repository.write()


def sam_arrays(repository: Repository, feeds: Json, found: Json) -> Json:
    """Tensors and outputs of both graphs, once they agree with the library's."""
    states = repository.session("onnx/vision_encoder.onnx")(feeds)
    feeds = {**feeds, "input_points": feeds["input_points"].astype(np.float32)}
    raw = repository.session("onnx/prompt_encoder_mask_decoder.onnx")({**feeds, **states})
    close(raw["iou_scores"], found.iou_scores.numpy())
    close(raw["pred_masks"], found.pred_masks.numpy(), 1e-3)
    return {"tensors": feeds, "raw": raw}


FAMILIES = {"detr-panoptic": detr_panoptic, "sam": sam}
