"""Runs whole pipelines with recorded noise and keeps the latents after every step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import diffusers
import torch
from diffusers import DiffusionPipeline
from PIL import Image
from transformers import CLIPTextModel

import adapters
from golden import Draws, Golden, normal, recorded, seeded

Json = dict[str, Any]


def scheduler(pipe: Any, kind: str, **options: object) -> Any:
    """A scheduler made from the pipeline's own configuration, as users change it."""
    return getattr(diffusers, kind).from_config(pipe.scheduler.config, **options)


def described(scheduler: Any) -> Json:
    """A scheduler's whole configuration, with its class and without what is only a note of the library."""
    config = {name: value for name, value in scheduler.config.items() if name[0] != "_"}
    return {"_class_name": type(scheduler).__name__, **config}


@contextmanager
def flattened_encoder(asked: bool) -> Iterator[None]:
    """Lets this diffusers find the final norm for clip_skip, which it looks for where transformers 4 had it."""
    if asked:
        CLIPTextModel.text_model = property(lambda encoder: encoder)
    try:
        yield
    finally:
        if asked:
            del CLIPTextModel.text_model


def case(
    golden: Golden,
    pipe: Any,
    name: str,
    kind: str,
    *,
    seed: int = 1,
    other: Any = None,
    lora: list[Json] | None = None,
    picture: bool = True,
    **call: Any,
) -> None:
    """Calls the pipeline and adds the case; `other` is a scheduler in place of the repository's own."""
    pipe.set_progress_bar_config(disable=True)
    own, pipe.scheduler = pipe.scheduler, other or pipe.scheduler
    adapters.use(pipe, lora or [])
    told: Json = {"name": name, "kind": kind, "scheduler": described(other) if other else None, **call}
    if lora:
        told["lora"] = lora
    arguments, tensors = dict(call), {}
    for taken in ("image", "mask_image"):
        if taken in call:
            arguments[taken] = Image.open(golden.folder / call[taken]).convert("RGB")
    if kind == "text-to-image":
        size = [(call.get(side) or 64) // 8 for side in ("height", "width")]
        tensors["latents"] = normal(seed, call.get("num_images_per_prompt", 1), 4, *size)
        arguments["latents"] = tensors["latents"].clone()
    steps: list[torch.Tensor] = []

    def after(_pipe: Any, _step: int, timestep: Any, values: Json) -> Json:
        steps.append(values["latents"].clone())
        told.setdefault("timesteps", []).append(float(timestep))
        return values

    with recorded(seeded(seed + 1000)) as draws, flattened_encoder("clip_skip" in call):
        images = pipe(**arguments, output_type="pt", callback_on_step_end=after).images
    tensors |= named(draws, masked=kind == "inpainting")
    if pipe.unet.config.in_channels == 4:
        tensors.pop("masked_posterior_noise", None)  # Drawn by the library, and of no effect.
    golden.add("pipelines", told, **tensors, steps=torch.stack(steps), image=images if picture else None)
    pipe.scheduler = own


def named(draws: Draws, masked: bool) -> dict[str, torch.Tensor]:
    """The noise of a call by its names in the fixture; that of the masked picture is drawn last."""
    posterior, start, step = (draws.drawn[kind] for kind in ("posterior", "start", "step"))
    names = ["masked_posterior_noise", "posterior_noise"] if masked else ["posterior_noise"]
    assert len(posterior) <= len(names) and len(start) <= 1
    tensors = dict(zip(names, reversed(posterior)))
    if start:
        tensors["noise"] = start[0]
    if step:
        tensors["step_noise"] = torch.stack(step)
    return tensors


def load(model: Any, **components: Any) -> Any:
    """The repository as the library reads it, in f32."""
    return DiffusionPipeline.from_pretrained(model, dtype=torch.float32, **components)
