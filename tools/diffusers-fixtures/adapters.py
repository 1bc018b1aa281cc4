"""LoRA files in the three ways of naming that are met, and their use in a pipeline."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

import weights
from repository import FIXTURES

FOLDER = FIXTURES / "lora"
RANK = 4
ATTENTION = ("to_q", "to_k", "to_v", "to_out.0")
ENCODER = ("q_proj", "v_proj", "out_proj", "fc1")
EVERYTHING = (*ATTENTION, "net.0.proj", "net.2", "proj_in", "proj_out", "conv1", "time_emb_proj")

Change = tuple[torch.Tensor, torch.Tensor]


def changes(model: nn.Module, endings: Iterable[str], seed: str) -> dict[str, Change]:
    """A way down and one up for each layer with such an ending, as large as the layer's own weights."""
    noise = torch.Generator().manual_seed(zlib.crc32(seed.encode()))
    made = {}
    for name, layer in model.named_modules():
        if not name.endswith(tuple(f".{ending}" for ending in endings)):
            continue
        out, *into = layer.weight.shape
        down = torch.randn((RANK, *into), generator=noise) / layer.weight[0].numel() ** 0.5
        up = torch.randn((out, RANK, *[1] * len(into[1:])), generator=noise) / RANK**0.5
        made[name] = (down, up)
    return made


def full(name: str) -> str:
    """A layer of a text encoder under the name that it has in files."""
    return name if name.startswith("text_model.") else f"text_model.{name}"


def peft(parts: dict[str, dict[str, Change]]) -> dict[str, torch.Tensor]:
    """`unet.LAYER.lora_A.weight`, as peft names them; no alpha, so the product counts once."""
    tensors = {}
    for part, layers in parts.items():
        for name, (down, up) in layers.items():
            layer = name if part == "unet" else full(name)
            tensors[f"{part}.{layer}.lora_A.weight"] = down
            tensors[f"{part}.{layer}.lora_B.weight"] = up
    return tensors


def older(parts: dict[str, dict[str, Change]]) -> dict[str, torch.Tensor]:
    """`unet.LAYER.lora.down.weight`, as the training scripts of diffusers write them."""
    tensors = {}
    for part, layers in parts.items():
        for name, (down, up) in layers.items():
            layer = f"{name}.lora" if part == "unet" else f"{full(name)}.lora_linear_layer"
            tensors[f"{part}.{layer}.down.weight"] = down
            tensors[f"{part}.{layer}.up.weight"] = up
    return tensors


def kohya(parts: dict[str, dict[str, Change]], alpha: float) -> dict[str, torch.Tensor]:
    """`lora_unet_LAYER.lora_down.weight` with dots as underscores, and an alpha for each layer."""
    tensors = {}
    for part, layers in parts.items():
        for name, (down, up) in layers.items():
            layer = f"{part}_{name if part == 'lora_unet' else full(name)}".replace(".", "_")
            tensors[f"{layer}.lora_down.weight"] = down
            tensors[f"{layer}.lora_up.weight"] = up
            tensors[f"{layer}.alpha"] = torch.tensor(alpha)
    return tensors


def write(name: str, tensors: dict[str, torch.Tensor]) -> None:
    weights.save(tensors, FOLDER / f"{name}.safetensors")


def use(pipe: Any, asked: list[dict[str, Any]]) -> None:
    """Removes every adapter, then adds those requested."""
    if getattr(pipe, "adapters_in", False):
        pipe.unload_lora_weights()
    pipe.adapters_in = bool(asked)
    names = [f"adapter_{number}" for number in range(len(asked))]
    for name, adapter in zip(names, asked):
        pipe.load_lora_weights(FOLDER, weight_name=adapter["file"], adapter_name=name)
    if asked:
        pipe.set_adapters(names, [adapter["scale"] for adapter in asked])
