"""Every scheduler alone: spacings, predictions, sigmas, and a start amid the steps, with given model outputs and noise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import diffusers
import torch

import lcm
import sd15
import sd21
import sdxl
from golden import Golden, normal, recorded
from run import described

KINDS = {
    "pndm": "PNDMScheduler",
    "ddim": "DDIMScheduler",
    "euler": "EulerDiscreteScheduler",
    "euler-a": "EulerAncestralDiscreteScheduler",
    "dpm": "DPMSolverMultistepScheduler",
    "lcm": "LCMScheduler",
    "unipc": "UniPCMultistepScheduler",
}
SIGMAS = ("euler", "dpm", "unipc")
SPACINGS = ("leading", "trailing", "linspace")
STEPS = (1, 4, 7, 30)
FAMILIES = {"sd15": sd15.SCHEDULER, "sd21": sd21.SCHEDULER, "sdxl": sdxl.SCHEDULER, "lcm": lcm.SCHEDULER}

Case = tuple[str, Any, int, int]


def make() -> None:
    golden = Golden("schedulers")
    golden.tensors = {"start": normal(1, 1, 4, 2, 2), "outputs": normal(2, 8, 1, 4, 2, 2), "noises": normal(3, 40, 1, 4, 2, 2)}
    for name, scheduler, steps, begin in cases():
        walk(golden, name, scheduler, steps, begin)
    golden.write()


def cases() -> Iterator[Case]:
    """What to walk: a name, a scheduler, its number of steps, and the step to begin at."""
    for family, config in FAMILIES.items():
        # As users change a scheduler: from the configuration that the repository's own one has, its defaults included.
        own = getattr(diffusers, config["_class_name"]).from_config(config).config
        for kind, known in KINDS.items():
            for steps in STEPS if family in ("sd15", "sd21") else (4,):
                yield f"{family}-{kind}-{steps}", _of(known, own), steps, 0
            yield f"{family}-{kind}-7-from-3", _of(known, own), 7, 3
    yield from variants()


def variants() -> Iterator[Case]:
    """The options that configurations differ in, one or two at once."""
    for kind, known in KINDS.items():
        for spacing in SPACINGS:
            for prediction in ("epsilon", "v_prediction"):
                options = {"timestep_spacing": spacing, "prediction_type": prediction}
                for steps in (1, 7):
                    yield f"{kind}-{spacing}-{prediction}-{steps}", _of(known, sd15.SCHEDULER, **options), steps, 0
    for kind in SIGMAS:
        for spacing in SPACINGS:
            for steps in (1, 7, 30):
                options = {"timestep_spacing": spacing, "use_karras_sigmas": True}
                yield f"{kind}-karras-{spacing}-{steps}", _of(KINDS[kind], sd15.SCHEDULER, **options), steps, 0
        options = {"use_karras_sigmas": True, "prediction_type": "v_prediction"}
        yield f"{kind}-karras-v-7-from-3", _of(KINDS[kind], sd15.SCHEDULER, **options), 7, 3
    zero = {"rescale_betas_zero_snr": True, "timestep_spacing": "trailing", "prediction_type": "v_prediction"}
    for kind in ("ddim", "euler", "euler-a", "dpm", "unipc"):
        yield f"{kind}-zero-snr-7", _of(KINDS[kind], sd15.SCHEDULER, **zero), 7, 0
    for steps in (1, 4):
        yield f"sd-turbo-{steps}", _of(KINDS["euler"], sd21.TURBO), steps, 0
        yield f"sdxl-turbo-{steps}", _of(KINDS["euler-a"], sdxl.TURBO), steps, 0
    for kind in ("ddim", "pndm"):
        yield f"{kind}-alpha-one-7", _of(KINDS[kind], sd15.SCHEDULER, set_alpha_to_one=True, steps_offset=0), 7, 0
    yield "ddim-clipped-7", _of(KINDS["ddim"], sd15.SCHEDULER, clip_sample=True), 7, 0
    for schedule in ("linear", "squaredcos_cap_v2"):
        yield f"ddim-{schedule}-7", _of(KINDS["ddim"], sd15.SCHEDULER, beta_schedule=schedule), 7, 0
        yield f"euler-{schedule}-7", _of(KINDS["euler"], sd15.SCHEDULER, beta_schedule=schedule), 7, 0


def _of(kind: str, config: Any, **options: object) -> Any:
    return getattr(diffusers, kind).from_config({**config}, **options)


def walk(golden: Golden, name: str, scheduler: Any, steps: int, begin: int) -> None:
    """Takes the steps and keeps the sample after each."""
    start, outputs, noises = (golden.tensors[part] for part in ("start", "outputs", "noises"))
    scheduler.set_timesteps(steps)
    timesteps = scheduler.timesteps
    sample = start * scheduler.init_noise_sigma
    if begin:
        if hasattr(scheduler, "set_begin_index"):
            scheduler.set_begin_index(begin)
        sample = scheduler.add_noise(start, noises[39], timesteps[begin : begin + 1])
    given = iter(noises)
    samples = []
    with recorded(lambda _shape: next(given)):
        for number, timestep in enumerate(timesteps[begin:]):
            output = 0.3 * scheduler.scale_model_input(sample, timestep) + outputs[number % 8]
            sample = scheduler.step(output, timestep, sample, return_dict=False)[0]
            samples.append(sample)
    sigmas = getattr(scheduler, "sigmas", None)
    case = {
        "name": name,
        "config": described(scheduler),
        "steps": steps,
        "begin": begin,
        "timesteps": [float(t) for t in timesteps],
        "sigmas": None if sigmas is None else [float(sigma) for sigma in sigmas],
        "init_noise_sigma": float(scheduler.init_noise_sigma),
    }
    golden.add("schedulers", case, samples=torch.stack(samples))
