"""Writes a repository in the layout of a hub: configurations as published, weights in f16."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from diffusers import AutoencoderKL, UNet2DConditionModel
from torch import nn
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection

import vocabulary
import weights

FIXTURES = Path(__file__).resolve().parents[2] / "runtimes/diffusers/tests/fixtures"

Json = dict[str, Any]

NOISE = {"beta_end": 0.012, "beta_schedule": "scaled_linear", "beta_start": 0.00085, "num_train_timesteps": 1000}
"""The part of a scheduler's configuration that every Stable Diffusion shares."""


def fresh(name: str) -> Path:
    """An empty folder for a repository, and an empty one for its goldens beside it."""
    shutil.rmtree(FIXTURES / name, ignore_errors=True)
    (FIXTURES / name / "golden").mkdir(parents=True)
    model = FIXTURES / name / "model"
    model.mkdir()
    return model


def write_json(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def tokenizer(folder: Path, pad: str) -> None:
    """The four files of a CLIP tokenizer; a repository of today has no tokenizer.json for it."""
    vocabulary.write(folder)
    marked = {"lstrip": False, "normalized": True, "rstrip": False, "single_word": False}
    end = {"content": "<|endoftext|>", **marked}
    special = {"bos_token": {"content": "<|startoftext|>", **marked}, "eos_token": end, "pad_token": pad, "unk_token": end}
    write_json(folder / "special_tokens_map.json", special)
    config = {
        "add_prefix_space": False,
        "bos_token": {"__type": "AddedToken", **special["bos_token"]},
        "do_lower_case": True,
        "eos_token": {"__type": "AddedToken", **end},
        "errors": "replace",
        "model_max_length": 77,
        "pad_token": pad,
        "tokenizer_class": "CLIPTokenizer",
        "unk_token": {"__type": "AddedToken", **end},
    }
    write_json(folder / "tokenizer_config.json", config)


def text_encoder(folder: Path, seed: str, *, projected: bool = False, file: str = "model", **sizes: object) -> None:
    """A CLIP text encoder; `eos_token_id` 2 is the mistake that the real repositories carry."""
    config = {
        "attention_dropout": 0.0,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "layer_norm_eps": 1e-5,
        "max_position_embeddings": 77,
        "model_type": "clip_text_model",
        "pad_token_id": 1,
        "torch_dtype": "float16",
        "vocab_size": vocabulary.size(),
        **sizes,
    }
    kind = CLIPTextModelWithProjection if projected else CLIPTextModel
    model = weights.randomise(kind(CLIPTextConfig(**config)), seed)
    # The library dropped this prefix when it writes; the published files have it.
    tensors = {_prefixed(name): tensor for name, tensor in model.state_dict().items()}
    if not projected:
        tensors["text_model.embeddings.position_ids"] = torch.arange(77)[None]
    weights.save(tensors, folder / f"{file}.safetensors")
    write_json(folder / "config.json", {"architectures": [kind.__name__], **config})


def _prefixed(name: str) -> str:
    return name if name.startswith(("text_model.", "text_projection.")) else f"text_model.{name}"


def unet(folder: Path, seed: str, *, file: str = "diffusion_pytorch_model", decisive: float = 3.0, **config: object) -> None:
    """A UNet; settings that are not given have the library's default, which the file contains.

    Eight groups: with one channel for each, as 32 would be, a norm divides by what is hardly there, and rounding alone moves whole pictures.
    """
    config = {"norm_num_groups": 8, **config}
    model = weights.randomise(UNet2DConditionModel(**config), seed, decisive=decisive)
    _write_net(model, folder, file)


def vae(folder: Path, seed: str, *, file: str = "diffusion_pytorch_model", old_names: bool = False, **config: object) -> None:
    """A VAE whose pictures stay mostly within [-1, 1]."""
    config = {
        "down_block_types": ("DownEncoderBlock2D",) * 4,
        "up_block_types": ("UpDecoderBlock2D",) * 4,
        "block_out_channels": (32, 32, 32, 64),
        "latent_channels": 4,
        "norm_num_groups": 32,
        "sample_size": 64,
        **config,
    }
    model = weights.randomise(AutoencoderKL(**config), seed)
    weights.scale(model.decoder.conv_out, 0.4)
    _write_net(model, folder, file, old_names)


OLD = {".to_q.": ".query.", ".to_k.": ".key.", ".to_v.": ".value.", ".to_out.0.": ".proj_attn.", ".to_out.": ".proj_attn."}


def _write_net(model: nn.Module, folder: Path, file: str, old_names: bool = False) -> None:
    tensors = dict(model.state_dict())
    if old_names:
        tensors = {_renamed(name): tensor for name, tensor in tensors.items()}
    weights.save(tensors, folder / f"{file}.safetensors")
    config = {"_class_name": type(model).__name__, "_diffusers_version": "0.30.0", **model.config}
    config = {name: value for name, value in config.items() if name in ("_class_name", "_diffusers_version") or name[0] != "_"}
    write_json(folder / "config.json", config)


def _renamed(name: str) -> str:
    for new, old in OLD.items():
        name = name.replace(new, old)
    return name


def index(model: Path, pipeline: str, **more: object) -> None:
    """The model_index.json of what the folder holds."""
    classes = {
        "scheduler": ["diffusers", json.loads((model / "scheduler/scheduler_config.json").read_text())["_class_name"]],
        "text_encoder": ["transformers", "CLIPTextModel"],
        "text_encoder_2": ["transformers", "CLIPTextModelWithProjection"],
        "tokenizer": ["transformers", "CLIPTokenizer"],
        "tokenizer_2": ["transformers", "CLIPTokenizer"],
        "unet": ["diffusers", "UNet2DConditionModel"],
        "vae": ["diffusers", "AutoencoderKL"],
    }
    held = {name: kind for name, kind in classes.items() if (model / name).is_dir()}
    write_json(model / "model_index.json", {"_class_name": pipeline, "_diffusers_version": "0.30.0", **more, **held})
