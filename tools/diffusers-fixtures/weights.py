"""Seeded weights, rounded to f16, and their files under the names that real repositories use."""

from __future__ import annotations

import zlib
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

SALT = ""
"""Makes other weights of the same seeds; the fixtures have none."""
DECISIVE = ("time_embedding", "time_emb_proj", "add_embedding", "attn2")
"""Layers through which time and text reach the picture; random ones would hardly move it."""


def randomise(model: nn.Module, seed: str, gain: float = 1.0, decisive: float = 3.0) -> nn.Module:
    """Fills every parameter with seeded noise that keeps signals at their size, as f16 can hold it; decisive layers get more."""
    noise = torch.Generator().manual_seed(zlib.crc32(f"{seed}{SALT}".encode()))
    for path, module in model.named_modules():
        stronger = decisive * gain if any(part in path for part in DECISIVE) else gain
        for name, parameter in module.named_parameters(recurse=False):
            sample = torch.randn(parameter.shape, generator=noise)
            parameter.data.copy_(_shaped(module, name, sample, stronger).half().float())
    return model.eval()


def _shaped(module: nn.Module, name: str, sample: torch.Tensor, gain: float) -> torch.Tensor:
    if "Norm" in type(module).__name__ and name == "weight":
        return 1 + 0.2 * sample
    if isinstance(module, nn.Embedding):
        return 0.7 * sample
    if sample.dim() >= 2:
        return gain * sample / max(1, sample[0].numel()) ** 0.5
    return 0.1 * sample


def scale(layer: nn.Module, factor: float) -> None:
    """Brings a last layer's output to another size."""
    for parameter in layer.parameters():
        parameter.data.copy_((factor * parameter.data).half().float())


def halve(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors as they are stored: floats in f16, the rest as they are."""
    return {name: (t.half() if t.is_floating_point() else t).contiguous() for name, t in tensors.items()}


def save(tensors: dict[str, torch.Tensor], path: Path) -> None:
    """Writes a file as the Python libraries do, who name its format inside."""
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(halve(tensors), path, metadata={"format": "pt"})
