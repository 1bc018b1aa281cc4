"""A latent consistency model: the guidance goes into the UNet as an embedding, one pass a step."""

from __future__ import annotations

from diffusers import LatentConsistencyModelImg2ImgPipeline

import parts
import pictures
import repository
import run
import sd15
from golden import Golden

SCHEDULER = {
    "_class_name": "LCMScheduler",
    "_diffusers_version": "0.22.0.dev0",
    **repository.NOISE,
    "clip_sample": False,
    "clip_sample_range": 1.0,
    "dynamic_thresholding_ratio": 0.995,
    "original_inference_steps": 50,
    "prediction_type": "epsilon",
    "rescale_betas_zero_snr": False,
    "sample_max_value": 1.0,
    "set_alpha_to_one": True,
    "steps_offset": 0,
    "thresholding": False,
    "timestep_spacing": "leading",
    "trained_betas": None,
}


def make() -> None:
    model = repository.fresh("lcm")
    repository.write_json(model / "scheduler/scheduler_config.json", SCHEDULER)
    repository.tokenizer(model / "tokenizer", "<|endoftext|>")
    repository.text_encoder(model / "text_encoder", "lcm-text", **{**sd15.ENCODER, "num_hidden_layers": 2})
    repository.vae(model / "vae", "lcm-vae", layers_per_block=1, block_out_channels=(32,) * 4, scaling_factor=0.18215)
    repository.unet(model / "unet", "lcm-unet", **{**sd15.UNET, **sd15.SMALL, "time_cond_proj_dim": 32})
    sd15.index(model, "LatentConsistencyModelPipeline")
    pipe, golden = run.load(model), Golden("lcm")
    pictures.photo(golden.folder / "photo.png", 72, 64)
    parts.unet(golden, pipe.unet)
    kind = "text-to-image"
    for steps in (1, 4, 6):
        told = {"num_inference_steps": steps, "guidance_scale": 8.5}
        run.case(golden, pipe, f"steps-{steps}", kind, prompt=sd15.PROMPT, **told)
    told = {"num_inference_steps": 4, "guidance_scale": 1.0, "height": 64, "width": 96}
    run.case(golden, pipe, "wide", kind, prompt=sd15.PROMPT, **told, num_images_per_prompt=2, picture=False)
    image = LatentConsistencyModelImg2ImgPipeline(**pipe.components, requires_safety_checker=False)
    for strength in (0.5, 1.0):
        told = {"image": "photo.png", "strength": strength, "num_inference_steps": 4, "guidance_scale": 8.5}
        run.case(golden, image, f"image-{strength}", "image-to-image", prompt=sd15.PROMPT, **told, picture=False)
    golden.write()
