"""Stable Diffusion 2.1: v prediction, linear projections, heads by block, "!" as padding; and SD-Turbo's scheduler on it."""

from __future__ import annotations

from typing import Any

from diffusers import EulerDiscreteScheduler, StableDiffusionImg2ImgPipeline

import parts
import pictures
import repository
import run
from golden import Golden

SCHEDULER = {
    "_class_name": "DDIMScheduler",
    "_diffusers_version": "0.8.0",
    **repository.NOISE,
    "clip_sample": False,
    "prediction_type": "v_prediction",
    "set_alpha_to_one": False,
    "skip_prk_steps": True,
    "steps_offset": 1,
    "trained_betas": None,
}

TURBO = {
    **repository.NOISE,
    "interpolation_type": "linear",
    "prediction_type": "epsilon",
    "steps_offset": 1,
    "timestep_spacing": "trailing",
    "trained_betas": None,
    "use_karras_sigmas": False,
}

ENCODER = {"hidden_act": "gelu", "hidden_size": 48, "intermediate_size": 192, "num_attention_heads": 4, "num_hidden_layers": 3}

UNET = {
    "sample_size": 8,
    "attention_head_dim": [2, 4, 8],
    "block_out_channels": (32, 32, 64),
    "cross_attention_dim": 48,
    "down_block_types": ("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"),
    "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"),
    "layers_per_block": 1,
    "upcast_attention": True,
    "use_linear_projection": True,
}

PROMPT = "an oil painting of a small harbour with fishing boats! warm colours"  # words: ok
NEGATIVE = "blurry, low quality"


def make() -> None:
    model = repository.fresh("sd21")
    repository.write_json(model / "scheduler/scheduler_config.json", SCHEDULER)
    repository.tokenizer(model / "tokenizer", "!")
    repository.text_encoder(model / "text_encoder", "sd21-text", **ENCODER)
    repository.vae(model / "vae", "sd21-vae", layers_per_block=1, block_out_channels=(32,) * 4, scaling_factor=0.18215)
    repository.unet(model / "unet", "sd21-unet", **UNET)
    repository.index(model, "StableDiffusionPipeline", requires_safety_checker=False, safety_checker=[None, None])
    pipe, golden = run.load(model), Golden("sd21")
    pictures.photo(golden.folder / "photo.png", 72, 64)
    parts.tokens(golden, pipe.tokenizer, "tokenizer")
    parts.encoder(golden, pipe.text_encoder, pipe.tokenizer, "text_encoder")
    parts.unet(golden, pipe.unet)
    parts.vae(golden, pipe.vae, {"square": (8, 8)})
    drawn(golden, pipe)
    golden.write()


def drawn(golden: Golden, pipe: Any) -> None:
    """v prediction with every scheduler, and SD-Turbo's way of calling."""
    kind, both = "text-to-image", {"prompt": PROMPT, "negative_prompt": NEGATIVE}
    run.case(golden, pipe, "plain", kind, **both, num_inference_steps=5, guidance_scale=7.5)
    schedulers = {
        "pndm": run.scheduler(pipe, "PNDMScheduler"),
        "euler": run.scheduler(pipe, "EulerDiscreteScheduler"),
        "euler-a": run.scheduler(pipe, "EulerAncestralDiscreteScheduler"),
        "dpm": run.scheduler(pipe, "DPMSolverMultistepScheduler"),
        "unipc": run.scheduler(pipe, "UniPCMultistepScheduler"),
        "zero-snr": run.scheduler(pipe, "DDIMScheduler", rescale_betas_zero_snr=True, timestep_spacing="trailing"),
    }
    told = {"num_inference_steps": 5, "guidance_scale": 7.5, "guidance_rescale": 0.0, "seed": 4, "picture": False}
    for name, other in schedulers.items():
        told["guidance_rescale"] = 0.7 if name == "zero-snr" else 0.0
        run.case(golden, pipe, name, kind, other=other, **both, **told)
    turbo = EulerDiscreteScheduler.from_config(TURBO)
    for steps in (1, 4):
        told = {"prompt": PROMPT, "num_inference_steps": steps, "guidance_scale": 0.0}
        run.case(golden, pipe, f"turbo-{steps}", kind, other=turbo, **told)
    image = StableDiffusionImg2ImgPipeline(**pipe.components, requires_safety_checker=False)
    told = {"image": "photo.png", "strength": 0.5, "num_inference_steps": 2, "guidance_scale": 0.0}
    run.case(golden, image, "turbo-image", "image-to-image", other=turbo, prompt=PROMPT, **told)
