"""Collects the answers of one fixture: JSON cases, and tensors under the cases' names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from diffusers.models.autoencoders import vae
from diffusers.pipelines.latent_consistency_models import pipeline_latent_consistency_img2img as lcm_image
from diffusers.pipelines.latent_consistency_models import pipeline_latent_consistency_text2img as lcm_text
from diffusers.pipelines.stable_diffusion import pipeline_stable_diffusion_img2img as image
from diffusers.pipelines.stable_diffusion import pipeline_stable_diffusion_inpaint as inpaint
from diffusers.pipelines.stable_diffusion_xl import pipeline_stable_diffusion_xl_img2img as xl_image
from diffusers.pipelines.stable_diffusion_xl import pipeline_stable_diffusion_xl_inpaint as xl_inpaint
from diffusers.schedulers import scheduling_ddim, scheduling_dpmsolver_multistep, scheduling_euler_ancestral_discrete
from diffusers.schedulers import scheduling_euler_discrete, scheduling_lcm
from safetensors.torch import save_file

from repository import FIXTURES, write_json

DRAWS = {
    "posterior": (vae,),
    "start": (image, inpaint, xl_image, xl_inpaint, lcm_image, lcm_text),
    "step": (
        scheduling_ddim, scheduling_dpmsolver_multistep, scheduling_euler_ancestral_discrete, scheduling_euler_discrete,
        scheduling_lcm,
    ),
}
"""Where the library draws noise, by what the draw is for."""


class Golden:
    """What is known so far about one fixture."""

    def __init__(self, name: str):
        self.folder = FIXTURES / name / "golden"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.cases: dict[str, list[dict[str, Any]]] = {}
        self.tensors: dict[str, torch.Tensor] = {}

    def add(self, kind: str, case: dict[str, Any], **tensors: torch.Tensor | None) -> None:
        """Keeps one case; absent tensors are left out."""
        listed = self.cases.setdefault(kind, [])
        assert case["name"] not in [other["name"] for other in listed], case["name"]
        listed.append(case)
        for name, tensor in tensors.items():
            if tensor is not None:
                assert tensor.isfinite().all(), f"{kind}/{case['name']}/{name}"
                self.tensors[f"{kind}/{case['name']}/{name}"] = tensor.detach().float().clone().contiguous()

    def write(self) -> None:
        """The two files."""
        write_json(self.folder / "cases.json", self.cases)
        text = (self.folder / "cases.json").read_text(encoding="utf-8")
        (self.folder / "cases.json").write_text(_flat_lists(text), encoding="utf-8")
        save_file(self.tensors, self.folder / "tensors.safetensors")


def _flat_lists(text: str) -> str:
    """Numbers of one list on one line."""
    return re.sub(r"\[[\d\s.,eE+\-]*\]", lambda match: " ".join(match.group().split()), text)


class Draws:
    """The noise that a call drew, by what it was for."""

    def __init__(self) -> None:
        self.drawn: dict[str, list[torch.Tensor]] = {kind: [] for kind in DRAWS}


@contextmanager
def recorded(draw: Callable[[tuple[int, ...]], torch.Tensor]) -> Iterator[Draws]:
    """Has every draw of the library made by `draw`, and keeps it."""
    draws, originals = Draws(), []

    def drawing(kind: str) -> Callable[..., torch.Tensor]:
        def drawn(shape: Any, *_: object, **__: object) -> torch.Tensor:
            draws.drawn[kind].append(draw(tuple(shape)))
            return draws.drawn[kind][-1]

        return drawn

    for kind, modules in DRAWS.items():
        for module in modules:
            originals.append((module, module.randn_tensor))
            module.randn_tensor = drawing(kind)
    try:
        yield draws
    finally:
        for module, original in originals:
            module.randn_tensor = original


def seeded(seed: int) -> Callable[[tuple[int, ...]], torch.Tensor]:
    """A source of unit normals."""
    noise = torch.Generator().manual_seed(seed)
    return lambda shape: torch.randn(shape, generator=noise)


def normal(seed: int, *shape: int) -> torch.Tensor:
    """A seeded draw of the unit normal."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))
