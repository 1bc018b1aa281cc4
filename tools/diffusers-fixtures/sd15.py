"""Stable Diffusion 1.5: epsilon, PNDM, eight heads everywhere, the VAE's attention under its old names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from diffusers import StableDiffusionImg2ImgPipeline, StableDiffusionInpaintPipeline
from diffusers.image_processor import VaeImageProcessor

import adapters
import parts
import pictures
import repository
import run
from golden import Golden

SCHEDULER = {
    "_class_name": "PNDMScheduler",
    "_diffusers_version": "0.6.0",
    **repository.NOISE,
    "set_alpha_to_one": False,
    "skip_prk_steps": True,
    "steps_offset": 1,
    "trained_betas": None,
    "clip_sample": False,
}

ENCODER = {
    "hidden_act": "quick_gelu",
    "hidden_size": 32,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_hidden_layers": 4,
}

UNET = {
    "sample_size": 8,
    "attention_head_dim": 8,
    "block_out_channels": (32, 32, 64),
    "cross_attention_dim": 32,
    "down_block_types": ("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"),
    "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"),
    "layers_per_block": 2,
}

SMALL = {"block_out_channels": (32, 32, 32), "layers_per_block": 1, "norm_num_groups": 8}
"""A smaller UNet for further repositories. A group of one channel would take out what time adds to it."""

PROMPT = "a photograph of a lighthouse on a rocky island at dawn"
NEGATIVE = "blurry, low quality, watermark"


def shared(model: Path) -> None:
    """What the plain and the inpainting repository have in common."""
    repository.write_json(model / "scheduler/scheduler_config.json", SCHEDULER)
    repository.tokenizer(model / "tokenizer", "<|endoftext|>")
    repository.text_encoder(model / "text_encoder", "sd15-text", **ENCODER)


def index(model: Path, pipeline: str) -> None:
    without = {"feature_extractor": [None, None], "safety_checker": [None, None]}
    repository.index(model, pipeline, requires_safety_checker=False, **without)


def make() -> None:
    model = repository.fresh("sd15")
    shared(model)
    repository.vae(model / "vae", "sd15-vae", old_names=True, layers_per_block=2, scaling_factor=0.18215)
    repository.unet(model / "unet", "sd15-unet", **UNET)
    index(model, "StableDiffusionPipeline")
    pipe, golden = run.load(model), Golden("sd15")
    pictures.photo(golden.folder / "photo.png", 96, 80)
    pictures.photo(golden.folder / "odd.png", 77, 59)
    pictures.photo(golden.folder / "alpha.png", 64, 64, "RGBA")
    pictures.photo(golden.folder / "grey.png", 64, 72, "L")
    pictures.mask(golden.folder / "mask.png", 96, 80)
    parts.tokens(golden, pipe.tokenizer, "tokenizer")
    parts.encoder(golden, pipe.text_encoder, pipe.tokenizer, "text_encoder")
    texts(golden, pipe)
    parts.unet(golden, pipe.unet)
    parts.vae(golden, pipe.vae, {"square": (8, 8), "wide": (6, 10)})
    parts.tiled(golden, pipe.vae, {"tall": (13, 8), "wide": (10, 18)})
    taken_in(golden)
    drawn_from_text(golden, pipe)
    drawn_from_images(golden, StableDiffusionImg2ImgPipeline(**pipe.components, requires_safety_checker=False))
    painted_in(golden, StableDiffusionInpaintPipeline(**pipe.components, requires_safety_checker=False))
    adapted(golden, pipe)
    golden.write()


def texts(golden: Golden, pipe: Any) -> None:
    """Embeddings as the pipeline makes them."""
    asked = {
        "both": (PROMPT, NEGATIVE, None),
        "no-negative": (PROMPT, None, None),
        "skip-1": (PROMPT, NEGATIVE, 1),
        "skip-2": (parts.LONG, "", 2),
    }
    for name, (prompt, negative, skip) in asked.items():
        with run.flattened_encoder(skip is not None):
            embeds, opposite = pipe.encode_prompt(prompt, "cpu", 1, True, negative, clip_skip=skip)
        case = {"name": name, "prompt": prompt, "negative_prompt": negative, "clip_skip": skip}
        golden.add("text", case, prompt=embeds, negative=opposite)


def taken_in(golden: Golden) -> None:
    """Pictures and masks in every form that the pipelines make of them."""
    image = VaeImageProcessor(vae_scale_factor=8)
    mask = VaeImageProcessor(vae_scale_factor=8, do_normalize=False, do_binarize=True, do_convert_grayscale=True)
    for file in ("photo", "odd", "alpha", "grey"):
        parts.preprocess(golden, file, image, "image", f"{file}.png")
    parts.preprocess(golden, "photo-smaller", image, "image", "photo.png", (48, 64))
    parts.preprocess(golden, "odd-larger", image, "image", "odd.png", (96, 128))
    parts.preprocess(golden, "mask", mask, "mask", "mask.png")
    parts.preprocess(golden, "mask-smaller", mask, "mask", "mask.png", (64, 64))
    parts.preprocess(golden, "mask-of-colours", mask, "mask", "photo.png", (64, 64))  # words: ok


def drawn_from_text(golden: Golden, pipe: Any) -> None:
    """Text to image, also with each scheduler that a job may request."""
    kind, both = "text-to-image", {"prompt": PROMPT, "negative_prompt": NEGATIVE}
    run.case(golden, pipe, "plain", kind, **both, num_inference_steps=5, guidance_scale=7.5)
    run.case(golden, pipe, "no-guidance", kind, prompt=PROMPT, num_inference_steps=4, guidance_scale=1.0)
    run.case(golden, pipe, "no-negative", kind, prompt=PROMPT, num_inference_steps=4, guidance_scale=5.0, picture=False)
    run.case(golden, pipe, "two", kind, **both, num_inference_steps=4, guidance_scale=7.5, num_images_per_prompt=2, seed=2)
    run.case(golden, pipe, "wide", kind, **both, num_inference_steps=4, guidance_scale=7.5, height=64, width=96, seed=3)
    run.case(golden, pipe, "tall", kind, **both, num_inference_steps=4, guidance_scale=7.5, height=88, width=56, seed=3)
    run.case(golden, pipe, "clip-skip", kind, **both, num_inference_steps=4, guidance_scale=7.5, clip_skip=1, picture=False)
    run.case(golden, pipe, "rescale", kind, **both, num_inference_steps=4, guidance_scale=7.5, guidance_rescale=0.7, picture=False)
    run.case(golden, pipe, "one-step", kind, **both, num_inference_steps=1, guidance_scale=7.5, picture=False)
    run.case(golden, pipe, "long", kind, prompt=parts.LONG, num_inference_steps=4, guidance_scale=7.5, picture=False)
    schedulers = {
        "ddim": run.scheduler(pipe, "DDIMScheduler"),
        "euler": run.scheduler(pipe, "EulerDiscreteScheduler"),
        "euler-a": run.scheduler(pipe, "EulerAncestralDiscreteScheduler"),
        "dpm": run.scheduler(pipe, "DPMSolverMultistepScheduler"),
        "dpm-karras": run.scheduler(pipe, "DPMSolverMultistepScheduler", use_karras_sigmas=True),
        "lcm": run.scheduler(pipe, "LCMScheduler"),
        "unipc": run.scheduler(pipe, "UniPCMultistepScheduler"),
    }
    told = {"num_inference_steps": 6, "guidance_scale": 7.5, "seed": 4, "picture": False}
    for name, other in schedulers.items():
        run.case(golden, pipe, name, kind, other=other, **both, **told)
    told = {"other": schedulers["ddim"], "num_inference_steps": 5, "guidance_scale": 7.5, "eta": 0.6}
    run.case(golden, pipe, "ddim-eta", kind, **both, **told)


def drawn_from_images(golden: Golden, pipe: Any) -> None:
    """Image to image at three strengths, and with schedulers that keep sigmas."""
    kind, both = "image-to-image", {"prompt": PROMPT, "negative_prompt": NEGATIVE, "image": "photo.png"}
    for strength in (0.3, 0.8, 1.0):
        told = {"strength": strength, "num_inference_steps": 6, "guidance_scale": 7.5}
        run.case(golden, pipe, f"image-{strength}", kind, **both, **told)
    for name in ("DDIM", "EulerDiscrete", "EulerAncestralDiscrete", "DPMSolverMultistep", "LCM", "UniPCMultistep"):
        told = {"strength": 0.6, "num_inference_steps": 6, "guidance_scale": 7.5}
        other = run.scheduler(pipe, f"{name}Scheduler")
        run.case(golden, pipe, f"image-{name.lower()}", kind, other=other, **both, **told, seed=5, picture=False)
    told = {"strength": 0.5, "num_inference_steps": 4, "guidance_scale": 7.5}
    run.case(golden, pipe, "image-two", kind, **both, **told, num_images_per_prompt=2)
    run.case(golden, pipe, "image-odd", kind, **{**both, "image": "odd.png"}, **told)


def painted_in(golden: Golden, pipe: Any) -> None:
    """Inpainting with four channels: the known part is blended in after every step."""
    files = {"image": "photo.png", "mask_image": "mask.png"}
    both = {"prompt": PROMPT, "negative_prompt": NEGATIVE, **files, "num_inference_steps": 5, "guidance_scale": 7.5}
    run.case(golden, pipe, "paint-full", "inpainting", **both, strength=1.0, height=80, width=96)
    run.case(golden, pipe, "paint-part", "inpainting", **both, strength=0.6, height=64, width=64)
    other = run.scheduler(pipe, "EulerDiscreteScheduler")
    run.case(golden, pipe, "paint-euler", "inpainting", other=other, **both, strength=1.0, height=64, width=64, seed=6)
    run.case(golden, pipe, "paint-euler-part", "inpainting", other=other, **both, strength=0.6, height=64, width=64, seed=6)


def adapted(golden: Golden, pipe: Any) -> None:
    """LoRA files of every naming, alone and two at once."""
    unet = adapters.changes(pipe.unet, adapters.ATTENTION, "peft-unet")
    text = adapters.changes(pipe.text_encoder, adapters.ENCODER, "peft-text")
    adapters.write("sd15-peft", adapters.peft({"unet": unet, "text_encoder": text}))
    unet = adapters.changes(pipe.unet, adapters.ATTENTION, "older-unet")
    text = adapters.changes(pipe.text_encoder, adapters.ENCODER, "older-text")
    adapters.write("sd15-older", adapters.older({"unet": unet, "text_encoder": text}))
    unet = adapters.changes(pipe.unet, adapters.EVERYTHING, "kohya-unet")
    text = adapters.changes(pipe.text_encoder, adapters.ENCODER, "kohya-text")
    adapters.write("sd15-kohya", adapters.kohya({"lora_unet": unet, "lora_te": text}, alpha=1.0))
    told = {"prompt": PROMPT, "negative_prompt": NEGATIVE, "num_inference_steps": 4, "guidance_scale": 7.5}
    asked = {
        "peft-1.0": [("peft", 1.0)],
        "peft-0.5": [("peft", 0.5)],
        "older-0.8": [("older", 0.8)],
        "kohya-1.0": [("kohya", 1.0)],
        "kohya-0.5": [("kohya", 0.5)],
        "two": [("peft", 0.7), ("kohya", 0.4)],
    }
    for name, files in asked.items():
        lora = [{"file": f"sd15-{file}.safetensors", "scale": scale} for file, scale in files]
        run.case(golden, pipe, f"lora-{name}", "text-to-image", **told, lora=lora, picture=False)
    adapters.use(pipe, [])
