"""SDXL: two text encoders, sizes as conditions, deep transformer blocks; and SDXL-Turbo's scheduler on it."""

from __future__ import annotations

from typing import Any

from diffusers import EulerAncestralDiscreteScheduler, StableDiffusionXLImg2ImgPipeline, StableDiffusionXLInpaintPipeline

import adapters
import parts
import pictures
import repository
import run
from golden import Golden

SCHEDULER = {
    "_class_name": "EulerDiscreteScheduler",
    "_diffusers_version": "0.19.0.dev0",
    **repository.NOISE,
    "clip_sample": False,
    "interpolation_type": "linear",
    "prediction_type": "epsilon",
    "sample_max_value": 1.0,
    "set_alpha_to_one": False,
    "skip_prk_steps": True,
    "steps_offset": 1,
    "timestep_spacing": "leading",
    "trained_betas": None,
    "use_karras_sigmas": False,
}

TURBO = {
    **repository.NOISE,
    "prediction_type": "epsilon",
    "steps_offset": 1,
    "timestep_spacing": "trailing",
    "trained_betas": None,
}

FIRST = {"hidden_act": "quick_gelu", "hidden_size": 32, "intermediate_size": 128, "num_attention_heads": 4, "num_hidden_layers": 3}
SECOND = {
    "hidden_act": "gelu",
    "hidden_size": 48,
    "intermediate_size": 192,
    "num_attention_heads": 6,
    "num_hidden_layers": 4,
    "projection_dim": 40,
}

UNET = {
    "sample_size": 8,
    "addition_embed_type": "text_time",
    "addition_time_embed_dim": 16,
    "attention_head_dim": [2, 4, 8],
    "block_out_channels": (32, 32, 64),
    "cross_attention_dim": 80,
    "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
    "up_block_types": ("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
    "layers_per_block": 1,
    "projection_class_embeddings_input_dim": 6 * 16 + 40,
    "transformer_layers_per_block": [1, 1, 2],
    "use_linear_projection": True,
}

PROMPT = "a castle in the clouds, fantasy, digital art, ultra detailed"
NEGATIVE = "blurry, low quality, text"


def make() -> None:
    model = repository.fresh("sdxl")
    repository.write_json(model / "scheduler/scheduler_config.json", SCHEDULER)
    repository.tokenizer(model / "tokenizer", "<|endoftext|>")
    repository.tokenizer(model / "tokenizer_2", "!")
    repository.text_encoder(model / "text_encoder", "sdxl-text", **FIRST)
    repository.text_encoder(model / "text_encoder_2", "sdxl-text-2", projected=True, **SECOND)
    repository.vae(model / "vae", "sdxl-vae", layers_per_block=1, scaling_factor=0.13025, force_upcast=True)
    # With the usual factor its cross-attention is so sharp that rounding alone changes whole images: f32 and f64 differ by 13 % after five
    # steps, and by two millionths with this one.
    repository.unet(model / "unet", "sdxl-unet", decisive=1.5, **UNET)
    repository.index(model, "StableDiffusionXLPipeline", force_zeros_for_empty_prompt=True, add_watermarker=None)
    pipe, golden = run.load(model, add_watermarker=False), Golden("sdxl")
    pictures.photo(golden.folder / "photo.png", 72, 64)
    pictures.mask(golden.folder / "mask.png", 72, 64)
    parts.encoder(golden, pipe.text_encoder, pipe.tokenizer, "text_encoder")
    parts.encoder(golden, pipe.text_encoder_2, pipe.tokenizer_2, "text_encoder_2")
    parts.tokens(golden, pipe.tokenizer_2, "tokenizer_2")
    texts(golden, pipe)
    parts.unet(golden, pipe.unet)
    parts.vae(golden, pipe.vae, {"square": (8, 8)})
    drawn(golden, pipe)
    from_images(golden, pipe)
    adapted(golden, pipe)
    golden.write()


def texts(golden: Golden, pipe: Any) -> None:
    """Embeddings as the pipeline makes them: both encoders side by side, the pooled one of the second."""
    asked = {
        "both": (PROMPT, NEGATIVE, None),
        "no-negative": (PROMPT, None, None),
        "empty-negative": (PROMPT, "", None),
        "skip-1": (PROMPT, NEGATIVE, 1),
    }
    for name, (prompt, negative, skip) in asked.items():
        embeds = pipe.encode_prompt(prompt, device="cpu", negative_prompt=negative, clip_skip=skip)
        names = ("prompt", "negative", "pooled", "negative_pooled")
        case = {"name": name, "prompt": prompt, "negative_prompt": negative, "clip_skip": skip}
        golden.add("text", case, **dict(zip(names, embeds)))


def drawn(golden: Golden, pipe: Any) -> None:
    """Text to image with and without given sizes, and SDXL-Turbo's way of calling."""
    kind, both = "text-to-image", {"prompt": PROMPT, "negative_prompt": NEGATIVE}
    run.case(golden, pipe, "plain", kind, **both, num_inference_steps=5, guidance_scale=5.0)
    run.case(golden, pipe, "no-guidance", kind, prompt=PROMPT, num_inference_steps=4, guidance_scale=1.0, picture=False)
    run.case(golden, pipe, "no-negative", kind, prompt=PROMPT, num_inference_steps=4, guidance_scale=5.0, picture=False)
    told = {"num_inference_steps": 4, "guidance_scale": 5.0, "height": 64, "width": 96}
    run.case(golden, pipe, "wide", kind, **both, **told, num_images_per_prompt=2)
    sizes = {
        "original_size": [96, 128],
        "crops_coords_top_left": [8, 16],
        "target_size": [64, 72],
        "negative_original_size": [32, 48],
        "negative_crops_coords_top_left": [2, 4],
        "negative_target_size": [56, 40],
    }
    told = {"num_inference_steps": 4, "guidance_scale": 5.0, "guidance_rescale": 0.7}
    run.case(golden, pipe, "sizes", kind, **both, **told, **sizes, picture=False)
    told = {"num_inference_steps": 6, "guidance_scale": 5.0, "clip_skip": 1}
    other = run.scheduler(pipe, "DPMSolverMultistepScheduler", use_karras_sigmas=True)
    run.case(golden, pipe, "dpm-karras", kind, other=other, **both, **told, picture=False)
    turbo = EulerAncestralDiscreteScheduler.from_config(TURBO)
    for steps in (1, 4):
        told = {"prompt": PROMPT, "num_inference_steps": steps, "guidance_scale": 0.0}
        run.case(golden, pipe, f"turbo-{steps}", kind, other=turbo, **told, picture=steps == 1)


def from_images(golden: Golden, pipe: Any) -> None:
    """Image to image and inpainting."""
    both = {"prompt": PROMPT, "negative_prompt": NEGATIVE, "image": "photo.png", "guidance_scale": 5.0}
    image = StableDiffusionXLImg2ImgPipeline(**pipe.components, add_watermarker=False)
    run.case(golden, image, "image-0.3", "image-to-image", **both, num_inference_steps=7, strength=0.3)
    run.case(golden, image, "image-1.0", "image-to-image", **both, num_inference_steps=4, strength=1.0, picture=False)
    turbo = EulerAncestralDiscreteScheduler.from_config(TURBO)
    told = {"prompt": PROMPT, "image": "photo.png", "guidance_scale": 0.0, "num_inference_steps": 2, "strength": 0.5}
    run.case(golden, image, "turbo-image", "image-to-image", other=turbo, **told, picture=False)
    paint = StableDiffusionXLInpaintPipeline(**pipe.components, add_watermarker=False)
    told = {**both, "mask_image": "mask.png", "num_inference_steps": 5, "height": 64, "width": 64}
    run.case(golden, paint, "paint-full", "inpainting", **told, strength=1.0)
    run.case(golden, paint, "paint-part", "inpainting", **told, strength=0.6, picture=False)


def adapted(golden: Golden, pipe: Any) -> None:
    """LoRA on the UNet and both encoders."""
    unet = adapters.changes(pipe.unet, adapters.ATTENTION, "sdxl-unet")
    first = adapters.changes(pipe.text_encoder, adapters.ENCODER, "sdxl-text")
    second = adapters.changes(pipe.text_encoder_2, adapters.ENCODER, "sdxl-text-2")
    layers = {"unet": unet, "text_encoder": first, "text_encoder_2": second}
    adapters.write("sdxl-peft", adapters.peft(layers))
    named = {"lora_unet": unet, "lora_te1": first, "lora_te2": second}
    adapters.write("sdxl-kohya", adapters.kohya(named, alpha=2.0))
    told = {"prompt": PROMPT, "negative_prompt": NEGATIVE, "num_inference_steps": 4, "guidance_scale": 5.0}
    for file, scale in (("peft", 1.0), ("kohya", 0.5)):
        lora = [{"file": f"sdxl-{file}.safetensors", "scale": scale}]
        run.case(golden, pipe, f"lora-{file}-{scale}", "text-to-image", **told, lora=lora, picture=False)
    adapters.use(pipe, [])
