"""Goldens of a pipeline's parts: token ids, text embeddings, one call of the UNet, both ways of the VAE, pictures taken in."""

from __future__ import annotations

from typing import Any

import torch
from diffusers import LatentConsistencyModelPipeline
from PIL import Image

from golden import Golden, normal

LONG = ", ".join(f"{n} small boats in a harbour at night" for n in range(1, 16))

PROMPTS = {
    "plain": "a photograph of a lighthouse on a rocky island at dawn",
    "empty": "",
    "blank": "   ",
    "spaces": "  two   dogs\tin\nthe \u00a0 garden\u3000now ",
    "capitals": "A Portrait Of An OLD SAILOR, ÉTÉ İstanbul STRASSE ẞ",
    "contractions": "they're here, it's what I've told you; we'll see, I'd go, don't, i'M 'S 'Tis rock'n'roll",  # words: ok
    "curly": "they’re “quoted” — isn’t…",
    "numbers": "4k 8K 1920x1080 3.14 ½ ² ١٢ Ⅷ 2nd",
    "punctuation": "!!! ... (fox:1.3), [snow]|{red} <lora:x:1> a_b-c/d\\e @#$%^&*~`+=",
    "exclamation": "hello! world!!",
    "accents": "café crème déjà vu naïve señor año",
    "decomposed": "cafe\u0301 cre\u0300me an\u0303o \u1112\u1161\u11ab",
    "scripts": "привет мир こんにちは世界 你好 नमस्ते שלום مرحبا ไทย",
    "emoji": "a cat 🐱 wearing a hat 🎩👩\u200d🚀 🇫🇷 ❤️",
    "marks": "a fox <|endoftext|> in <|startoftext|>snow<|EndOfText|>",
    "entities": "salt &amp; pepper &lt;b&gt; &#39;",
    "controls": "a\u0000b\u0007c\u200bd\ufeffe\u00adf\ufffdg",
    "width": "ｆｕｌｌ　ｗｉｄｔｈ ﬁne ﬂow",
    "joined": "photorealistic,ultradetailed;masterpiece",
    "long": LONG,
    "long-word": "lighthouse" * 60,
}


def tokens(golden: Golden, tokenizer: Any, folder: str) -> None:
    """The ids of many prompts."""
    for name, prompt in PROMPTS.items():
        ids = tokenizer(prompt, padding="max_length", max_length=77, truncation=True).input_ids
        golden.add("tokens", {"name": f"{folder}-{name}", "tokenizer": folder, "prompt": prompt, "ids": ids})


def encoder(golden: Golden, model: Any, tokenizer: Any, folder: str) -> None:
    """What one text encoder answers."""
    for name in ("plain", "long", "empty"):
        ids = tokenizer(PROMPTS[name], padding="max_length", max_length=77, truncation=True, return_tensors="pt").input_ids
        out = model(ids, output_hidden_states=True)
        pooled = out.text_embeds if hasattr(out, "text_embeds") else out.pooler_output
        case = {"name": f"{folder}-{name}", "encoder": folder, "ids": ids[0].tolist()}
        last = out.last_hidden_state
        golden.add("hidden", case, last=last, penultimate=out.hidden_states[-2], pooled=pooled)


def unet(golden: Golden, model: Any) -> None:
    """Calls of the UNet: a square at once, a wide one, and two at a timestep between two."""
    config = model.config
    asked = {"square": (1, 8, 8, 501), "wide": (1, 8, 12, 1), "pair": (2, 16, 8, 832.5)}
    for number, (name, (batch, height, width, timestep)) in enumerate(asked.items()):
        sample = normal(100 + number, batch, config.in_channels, height, width)
        states = normal(200 + number, batch, 77, config.cross_attention_dim)
        extra: dict[str, Any] = {}
        if config.addition_embed_type == "text_time":
            pooled = config.projection_class_embeddings_input_dim - 6 * config.addition_time_embed_dim
            ids = torch.tensor([[64.0, 96.0, 8.0, 16.0, 64.0, 64.0]] * batch)
            extra = {"text_embeds": normal(300 + number, batch, pooled), "time_ids": ids}
        case, condition = {"name": name, "timestep": timestep}, None
        if config.time_cond_proj_dim:
            case["guidance"] = 7.5 - number
            condition = embedded_guidance(torch.full((batch,), case["guidance"]), config.time_cond_proj_dim)

        def answer(time: float, text: torch.Tensor) -> torch.Tensor:
            return model(sample, time, text, added_cond_kwargs=extra or None, timestep_cond=condition).sample

        output = answer(timestep, states)
        for other in (answer(timestep + 100, states), answer(timestep, -states)):
            moved = (other - output).std() / output.std()
            assert moved > 0.05, f"time or text does not decide: {moved}"
        tensors = {"sample": sample, "states": states, "timestep_cond": condition, "output": output, **extra}
        golden.add("unet", case, **tensors)


def embedded_guidance(guidance: torch.Tensor, width: int) -> torch.Tensor:
    """The library's embedding of a guidance scale less one, which the pipeline computes from its arguments alone."""
    return LatentConsistencyModelPipeline.get_guidance_scale_embedding(None, guidance, embedding_dim=width)


def vae(golden: Golden, model: Any, sizes: dict[str, tuple[int, int]]) -> None:
    """Encodes and decodes pictures of each size in latents."""
    for number, (name, (height, width)) in enumerate(sizes.items()):
        image = normal(500 + number, 1, 3, 8 * height, 8 * width).mul(0.4).clamp(-1, 1)
        posterior = model.encode(image).latent_dist
        case = {"name": f"encode-{name}", "direction": "encode", "tiling": False}
        golden.add("vae", case, image=image, mean=posterior.mean, logvar=posterior.logvar)
        latents = normal(600 + number, 1, 4, height, width)
        case = {"name": f"decode-{name}", "direction": "decode", "tiling": False}
        golden.add("vae", case, latents=latents, image=model.decode(latents).sample)


def tiled(golden: Golden, model: Any, sizes: dict[str, tuple[int, int]]) -> None:
    """The VAE in tiles with the library's own sizes and overlap."""
    model.enable_tiling()
    told = {
        "tiling": True,
        "tile_latent": model.tile_latent_min_size,
        "tile_sample": model.tile_sample_min_size,
        "overlap": model.tile_overlap_factor,
    }
    for number, (name, (height, width)) in enumerate(sizes.items()):
        latents = normal(700 + number, 1, 4, height, width)
        image = model.decode(latents).sample
        golden.add("vae", {"name": f"decode-tiled-{name}", "direction": "decode", **told}, latents=latents, image=image)
        if name == "wide":
            posterior = model.encode(image.clamp(-1, 1)).latent_dist
            case = {"name": f"encode-tiled-{name}", "direction": "encode", **told}
            golden.add("vae", case, image=image.clamp(-1, 1), mean=posterior.mean, logvar=posterior.logvar)
    model.disable_tiling()


def preprocess(golden: Golden, name: str, processor: Any, kind: str, file: str, size: tuple[int, int] | None = None) -> None:
    """A picture as the pipeline feeds it to the VAE, or a mask in [0, 1]."""
    height, width = size or (None, None)
    picture = Image.open(golden.folder / file).convert("RGB")
    pixels = processor.preprocess(picture, height=height, width=width)
    case = {"name": name, "file": file, "kind": kind, "height": height, "width": width}
    golden.add("preprocess", case, pixels=pixels)
