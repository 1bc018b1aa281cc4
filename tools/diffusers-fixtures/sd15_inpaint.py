"""Stable Diffusion 1.5 inpainting: nine channels into the UNet, the rest as in `sd15`."""

from __future__ import annotations

from typing import Any

import parts
import pictures
import repository
import run
import sd15
from golden import Golden


def make() -> None:
    model = repository.fresh("sd15-inpaint")
    sd15.shared(model)
    repository.vae(model / "vae", "sd15-inpaint-vae", layers_per_block=1, block_out_channels=(32,) * 4, scaling_factor=0.18215)
    repository.unet(model / "unet", "sd15-inpaint-unet", **{**sd15.UNET, **sd15.SMALL, "in_channels": 9})
    sd15.index(model, "StableDiffusionInpaintPipeline")
    pipe, golden = run.load(model), Golden("sd15-inpaint")
    pictures.photo(golden.folder / "photo.png", 96, 80)
    pictures.mask(golden.folder / "mask.png", 96, 80)
    parts.unet(golden, pipe.unet)
    parts.preprocess(golden, "photo", pipe.image_processor, "image", "photo.png", (64, 64))
    parts.preprocess(golden, "mask", pipe.mask_processor, "mask", "mask.png", (64, 64))
    painted(golden, pipe)
    golden.write()


def painted(golden: Golden, pipe: Any) -> None:
    """The masked picture and the mask go into the UNet at every step."""
    files = {"image": "photo.png", "mask_image": "mask.png"}
    told = {"prompt": sd15.PROMPT, "negative_prompt": sd15.NEGATIVE, **files, "num_inference_steps": 5, "guidance_scale": 7.5}
    run.case(golden, pipe, "full", "inpainting", **told, strength=1.0, height=80, width=96)
    run.case(golden, pipe, "part", "inpainting", **told, strength=0.6, height=64, width=64)
    other = run.scheduler(pipe, "DPMSolverMultistepScheduler", use_karras_sigmas=True)
    run.case(golden, pipe, "dpm-karras", "inpainting", other=other, **told, strength=1.0, height=64, width=64, picture=False)
    told = {**told, "guidance_scale": 1.0, "num_images_per_prompt": 2}
    run.case(golden, pipe, "two", "inpainting", **told, strength=0.8, height=64, width=64, picture=False)
