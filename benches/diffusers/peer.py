"""Runs the same repository in torch and diffusers, controlled line by line on standard input."""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

import diffusers
import torch
from diffusers import StableDiffusionPipeline


def main(folder: Path, threads: int, dtype: torch.dtype, device: str = "cpu") -> None:
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    pipe = StableDiffusionPipeline.from_pretrained(folder, dtype=dtype).to(device)
    pipe.set_progress_bar_config(disable=True)
    print(json.dumps({"version": f"diffusers {diffusers.__version__}, torch {torch.__version__}"}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        size, ends = asked["size"], []

        def after(_pipe: object, _step: int, _timestep: object, values: dict[str, object]) -> dict[str, object]:
            if device != "cpu":
                torch.cuda.synchronize()
            ends.append(time.perf_counter())
            return values

        latents = pipe(
            "a lighthouse on a rocky island",
            height=size,
            width=size,
            num_inference_steps=asked["steps"],
            guidance_scale=asked.get("guidance_scale", 7.5),
            generator=torch.Generator().manual_seed(0),
            output_type="latent",
            callback_on_step_end=after,
        ).images
        # The first step also waits for pages of the file and the allocator.
        steps = [end - begin for begin, end in zip(ends, ends[1:])]
        begin = time.perf_counter()
        pipe.vae.decode(latents / pipe.vae.config.scaling_factor)
        told = {
            "size": size,
            "step_ms": round(1000 * sum(steps) / len(steps), 1) if steps else None,
            "steps_ms": [round(1000 * step, 1) for step in steps],
            "decode_ms": round(1000 * (time.perf_counter() - begin), 1),
            "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        }
        print(json.dumps(told), flush=True)


main(Path(sys.argv[1]), int(sys.argv[2]), getattr(torch, sys.argv[3]), *sys.argv[4:])
