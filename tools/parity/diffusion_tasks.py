"""Settings of Stable Diffusion: five small pipelines with every class of scheduler, and every key of the tables at two values.

Each model is a repository in the form of the fixtures, whose generator's helpers are used. `diffusers` reads it from its files, so that what a pipeline
itself changes in the settings counts as well. Absent, null and unknown values are among the values of a key: what the library makes of them, or
that it fails, is the reference.
"""

from __future__ import annotations

import inspect
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import diffusers
import torch
import transformers
from PIL import Image

import golden
import lcm
import pictures
import repository
import run
import sd15
import sdxl
import weights
from changes import ABSENT, change, described, linked
from golden import Golden, normal

Json = dict[str, Any]

TOLERANCE = 5e-4
"""As a share of the largest number, with networks that hardly amplify rounding: the largest difference of a whole run is 4e-4, of a sample
that is clipped or a step that begins at a noise level of 4096, and 1e-5 elsewhere."""
SCHEDULER, UNET, VAE = "scheduler/scheduler_config.json", "unet/config.json", "vae/config.json"
ENCODER, INDEX = "text_encoder/config.json", "model_index.json"

SMALL_UNET: Json = {
    "sample_size": 8, "attention_head_dim": 4, "block_out_channels": (32, 32), "cross_attention_dim": 32, "layers_per_block": 1,
    "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"), "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"),
}
SMALL_VAE: Json = {"layers_per_block": 1, "block_out_channels": (16,) * 4, "norm_num_groups": 8, "scaling_factor": 0.18215}
SMALL_ENCODER: Json = {**sd15.ENCODER, "num_hidden_layers": 2}
XL_UNET: Json = {
    **sdxl.UNET, "attention_head_dim": [2, 4], "block_out_channels": (32, 32), "transformer_layers_per_block": [1, 2],
    "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"), "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D"),
}
VELOCITY = {**sd15.SCHEDULER, "_class_name": "DDIMScheduler", "prediction_type": "v_prediction"}

CLASSES = (
    "PNDMScheduler", "DDIMScheduler", "EulerDiscreteScheduler", "EulerAncestralDiscreteScheduler", "DPMSolverMultistepScheduler", "LCMScheduler",
    "UniPCMultistepScheduler",
)
BETAS = ([0.0005 + 0.00001 * at for at in range(1000)], [0.01] * 500 + [0.02] * 500)


@dataclass(frozen=True)
class Pipeline:
    """A small pipeline: its class, settings of its scheduler, the networks' options, and the task of its jobs."""

    kind: str
    scheduler: Json
    unet: Json
    task: str = "text-to-image"
    xl: bool = False
    guidance: float = 2.0


PIPELINES = {
    "plain": Pipeline("StableDiffusionPipeline", sd15.SCHEDULER, SMALL_UNET),
    "velocity": Pipeline("StableDiffusionPipeline", VELOCITY, {**SMALL_UNET, "use_linear_projection": True, "upcast_attention": True}),
    "inpaint": Pipeline("StableDiffusionInpaintPipeline", sd15.SCHEDULER, {**SMALL_UNET, "in_channels": 9}, "inpainting"),
    "xl": Pipeline("StableDiffusionXLPipeline", sdxl.SCHEDULER, XL_UNET, xl=True),
    "lcm": Pipeline("LatentConsistencyModelPipeline", lcm.SCHEDULER, {**SMALL_UNET, "time_cond_proj_dim": 32}, guidance=8.5),
}
IMAGES = {
    "StableDiffusionPipeline": "StableDiffusionImg2ImgPipeline", "StableDiffusionXLPipeline": "StableDiffusionXLImg2ImgPipeline",
    "LatentConsistencyModelPipeline": "LatentConsistencyModelImg2ImgPipeline",
}
"""The class that begins with an image, of the same parts."""


@dataclass
class Setting:
    """Values of settings, and those beside them without which they have no effect."""

    name: str
    changes: dict[str, Json] = field(default_factory=dict)
    beside: dict[str, Json] = field(default_factory=dict)
    networks: dict[str, Json] = field(default_factory=dict)
    """Options with which networks are made anew, by their folder."""
    pipeline: str = "plain"
    task: str = ""
    is_sized: bool = True
    """Whether the job names a size."""


# Keys of a scheduler with their values, and what is set beside them.
KEYS: list[tuple[str, tuple[Any, ...], Json]] = [
    ("num_train_timesteps", (500, 300), {}),
    ("beta_start", (0.0001, 0.005, ABSENT), {}),
    ("beta_end", (0.02, 0.03, ABSENT), {}),
    ("beta_schedule", ("linear", "squaredcos_cap_v2", ABSENT), {}),
    ("trained_betas", BETAS, {}),
    ("prediction_type", ("sample", "v_prediction", "epsilon", ABSENT), {}),
    ("timestep_spacing", ("linspace", "leading", "trailing", ABSENT), {}),
    ("steps_offset", (0, 3, ABSENT), {}),
    ("steps_offset", (0, 3), {"timestep_spacing": "leading"}),
    ("skip_prk_steps", (False, ABSENT), {}),
    ("set_alpha_to_one", (True, False, ABSENT, None), {}),
    ("clip_sample", (True, False, ABSENT, None), {}),
    ("clip_sample_range", (0.5, 0.2), {"clip_sample": True}),
    ("rescale_betas_zero_snr", (True,), {}),
    ("rescale_betas_zero_snr", (True,), {"timestep_spacing": "trailing", "prediction_type": "v_prediction"}),
    ("use_karras_sigmas", (True, None), {}),
    ("use_karras_sigmas", (True,), {"timestep_spacing": "trailing"}),
    ("use_karras_sigmas", (True,), {"timestep_spacing": "leading"}),
    ("use_exponential_sigmas", (True, None), {}),
    ("use_exponential_sigmas", (True,), {"timestep_spacing": "leading"}),
    ("final_sigmas_type", ("sigma_min", "zero"), {}),
    ("final_sigmas_type", ("sigma_min",), {"use_karras_sigmas": True}),
    ("final_sigmas_type", ("sigma_min",), {"use_exponential_sigmas": True, "timestep_spacing": "trailing"}),
    ("sigma_min", (0.1, 0.5), {"use_karras_sigmas": True}),
    ("sigma_min", (0.1, 0.5), {}),
    ("sigma_min", (0.1,), {"use_karras_sigmas": True, "final_sigmas_type": "sigma_min"}),
    ("sigma_max", (5.0, 20.0), {"use_karras_sigmas": True}),
    ("sigma_max", (5.0, 20.0), {"use_exponential_sigmas": True}),
    ("sigma_max", (5.0,), {}),
    ("solver_order", (1, 3), {}),
    ("solver_type", ("midpoint", "heun", "bh1", "bh2", "logrho"), {}),
    ("solver_type", ("heun", "bh1"), {"solver_order": 3}),
    ("algorithm_type", ("sde-dpmsolver++", "deis", "dpmsolver", "sde-dpmsolver"), {}),
    ("algorithm_type", ("sde-dpmsolver++",), {"solver_type": "heun"}),
    ("algorithm_type", ("deis",), {"solver_type": "midpoint"}),
    ("lower_order_final", (False,), {}),
    ("lower_order_final", (False,), {"final_sigmas_type": "sigma_min"}),
    ("lower_order_final", (False, None), {"solver_order": 3, "final_sigmas_type": "sigma_min"}),
    ("euler_at_final", (True, None), {"final_sigmas_type": "sigma_min", "lower_order_final": False}),
    ("disable_corrector", ([0], [0, 1, 2], None), {}),
    ("original_inference_steps", (20, 100), {}),
    ("timestep_scaling", (0.02, 0.001), {}),
    # Those that are refused, and those of which the tables state that they have no effect.
    ("thresholding", (True,), {}),
    ("use_lu_lambdas", (True,), {}),
    ("use_flow_sigmas", (True,), {}),
    ("predict_x0", (False,), {}),
    ("timestep_type", ("continuous",), {}),
    ("interpolation_type", ("log_linear",), {}),
    ("lambda_min_clipped", (-5.1, None), {}),
    ("variance_type", ("fixed_small", "fixed_large", "learned_range"), {}),
    ("dynamic_thresholding_ratio", (0.5, 0.1), {}),
    ("sample_max_value", (3.0, 0.5), {}),
    ("flow_shift", (3.0, 7.0), {}),
    ("time_shift_type", ("linear",), {}),
]


def schedulers(pipeline: str) -> Iterator[Setting]:
    """Every class of scheduler, and with it every key: those that other classes alone know are tried with the first pipeline."""
    for kind in CLASSES if pipeline != "lcm" else ("LCMScheduler", "DDIMScheduler"):
        class_of = {SCHEDULER: {"_class_name": kind}, INDEX: {"scheduler": ["diffusers", kind]}}
        short = kind.removesuffix("Scheduler").lower()
        yield Setting(short, class_of, pipeline=pipeline)
        if pipeline == "lcm" and kind != "LCMScheduler":
            # This pipeline passes an argument that no other scheduler takes.
            continue
        known = inspect.signature(getattr(diffusers, kind).__init__).parameters
        tried = set()
        for key, values, beside in KEYS:
            has_none = any(other not in known for other in (key, *beside))
            if pipeline != "plain":
                # One row of a key, and the values of a file as published.
                values = () if has_none or key in tried else tuple(value for value in values if value not in (None, ABSENT))[:2]
            elif has_none:
                # A key of another class must have no effect.
                values = values[:1] if key not in tried else ()
            tried.add(key)
            around = {**class_of, SCHEDULER: {**class_of[SCHEDULER], **beside}}
            given = "".join(f"-{other}-{value}" for other, value in beside.items())
            for value in values:
                yield Setting(f"{short}--{key}-{shown(value)}{given}", {SCHEDULER: {key: value}}, around, pipeline=pipeline)


def shown(value: object) -> str:
    """A value in the name of a model."""
    if value is ABSENT:
        return "absent"
    return f"{len(value)}-of-{value[0]}" if isinstance(value, list) and len(value) > 4 else str(value).replace(" ", "")


def unets() -> Iterator[Setting]:
    """Keys of the denoising network: where the shapes depend on them, the network is made anew."""
    same: list[tuple[str, tuple[Any, ...]]] = [
        ("norm_eps", (1e-3, 0.1)), ("flip_sin_to_cos", (False, ABSENT)), ("freq_shift", (1, 0.5)), ("norm_num_groups", (4, 16)),
        ("attention_head_dim", (2, 8, [4, 8])), ("num_attention_heads", (2, None)), ("upcast_attention", (True, None)), ("dropout", (0.5, 0.1)),
        ("act_fn", ("swish", "gelu")), ("downsample_padding", (0,)), ("mid_block_scale_factor", (2, 1.0)), ("resnet_time_scale_shift", ("scale_shift",)),
        ("center_input_sample", (True, False)), ("only_cross_attention", (True,)), ("dual_cross_attention", (True,)), ("attention_type", ("gated",)),
        ("mid_block_type", (None, "UNetMidBlock2D", "UNetMidBlock2DSimpleCrossAttn", ABSENT)), ("resnet_out_scale_factor", (2.0,)), ("resnet_skip_time_act", (True,)),
        ("time_embedding_act_fn", ("relu",)), ("timestep_post_act", ("silu",)), ("cross_attention_norm", ("layer_norm",)), ("class_embed_type", ("timestep",)),
        ("mid_block_only_cross_attention", (True, False)), ("_diffusers_version", ("0.42.0", ABSENT)),
    ]
    for key, values in same:
        for value in values:
            yield Setting(f"unet--{key}-{shown(value)}", {UNET: {key: value}})
    shaped: list[Json] = [
        {"layers_per_block": 2}, {"layers_per_block": [1, 2]}, {"transformer_layers_per_block": 2}, {"transformer_layers_per_block": [2, 1]},
        {"block_out_channels": (16, 32)}, {"block_out_channels": (32, 32, 64), "down_block_types": sd15.UNET["down_block_types"], "up_block_types": sd15.UNET["up_block_types"]},
        {"down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D")}, {"up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D")},
        {"down_block_types": ("DownBlock2D", "DownBlock2D"), "up_block_types": ("UpBlock2D", "UpBlock2D")}, {"cross_attention_dim": [32, 32]},
        {"use_linear_projection": True}, {"time_cond_proj_dim": 32}, {"time_cond_proj_dim": 16}, {"conv_in_kernel": 1}, {"conv_out_kernel": 1},
        {"time_embedding_dim": 64}, {"time_embedding_type": "fourier"}, {"num_class_embeds": 3}, {"addition_embed_type": "text"}, {"encoder_hid_dim": 32},
        {"in_channels": 8}, {"mid_block_type": None}, {"only_cross_attention": True}, {"dual_cross_attention": True}, {"attention_head_dim": 32},
    ]
    for options in shaped:
        key, value = next(iter(options.items()))
        yield Setting(f"unet--made-{key}-{shown(value)}-{len(options)}", {UNET: dict(options)}, networks={"unet": options})
    of_xl: list[Json] = [
        {"addition_time_embed_dim": 8, "projection_class_embeddings_input_dim": 6 * 8 + 40}, {"transformer_layers_per_block": [[1, 1], 2]},
        {"time_cond_proj_dim": 32}, {"reverse_transformer_layers_per_block": [[2], 1]},
    ]
    for options in of_xl:
        key, value = next(iter(options.items()))
        yield Setting(f"unet--xl-{key}-{shown(value)}", {UNET: dict(options)}, networks={"unet": options}, pipeline="xl")
    # The size of an image for which a job names none, which the first versions of diffusers chose otherwise. A job with recorded noise has its size.
    for pipeline in ("plain", "inpaint", "xl", "lcm"):
        for size in (8, 12, [8, 8], [6, 10], None, ABSENT):
            for version in ("0.6.0", "0.30.0"):
                changes = {UNET: {"sample_size": size, "_diffusers_version": version}}
                yield Setting(f"unet--{pipeline}-sample_size-{shown(size)}-{version}", changes, pipeline=pipeline, is_sized=False)


def others() -> Iterator[Setting]:
    """Keys of the autoencoder, of the text encoder and of the pipeline."""
    for key, values in (
        ("scaling_factor", (0.13025, 1.0, ABSENT)), ("norm_num_groups", (4, 16)), ("force_upcast", (False, True)), ("act_fn", ("swish", "gelu")),
        ("shift_factor", (0.1, 0.0)), ("latents_mean", ([0.1] * 4,)), ("sample_size", (32, 512)),
    ):
        for value in values:
            yield Setting(f"vae--{key}-{shown(value)}", {VAE: {key: value}}, task="image-to-image")
    for options in ({"layers_per_block": 2}, {"block_out_channels": (16, 32, 32, 32)}, {"use_quant_conv": False}, {"use_post_quant_conv": False}, {"mid_block_add_attention": False}):
        key, value = next(iter(options.items()))
        yield Setting(f"vae--made-{key}-{shown(value)}", {VAE: dict(options)}, networks={"vae": options}, task="image-to-image")
    for key, values in (
        ("hidden_act", ("gelu", "quick_gelu", "relu")), ("layer_norm_eps", (1e-3, 0.1)), ("eos_token_id", (2, 5, 832, ABSENT)), ("num_attention_heads", (2, 8)),
        ("bos_token_id", (5,)), ("pad_token_id", (5,)), ("attention_dropout", (0.5,)),
    ):
        for pipeline, file in (("plain", ENCODER), ("xl", "text_encoder_2/config.json")):
            for value in values:
                yield Setting(f"encoder--{pipeline}-{key}-{shown(value)}", {file: {key: value}}, pipeline=pipeline)
    for value in (True, False, ABSENT, None):
        yield Setting(f"index--force_zeros-{shown(value)}", {INDEX: {"force_zeros_for_empty_prompt": value}}, pipeline="xl")
    for pipeline, kind in IMAGES.items():
        base = next(name for name, known in PIPELINES.items() if known.kind == pipeline)
        yield Setting(f"index--class-{kind.lower()}", {INDEX: {"_class_name": kind}}, pipeline=base, task="image-to-image")
    yield Setting("index--class-inpaint-plain", {INDEX: {"_class_name": "StableDiffusionInpaintPipeline"}}, task="inpainting")
    yield Setting("index--class-inpaint-xl", {INDEX: {"_class_name": "StableDiffusionXLInpaintPipeline"}}, pipeline="xl", task="inpainting")
    yield Setting("index--class-lcm-plain", {INDEX: {"_class_name": "LatentConsistencyModelPipeline"}})
    yield Setting("index--tokenizer-fast", {INDEX: {"tokenizer": ["transformers", "CLIPTokenizerFast"]}})
    yield Setting("index--encoder-projected", {INDEX: {"text_encoder": ["transformers", "CLIPTextModelWithProjection"]}})
    for kind in CLASSES:
        # The pipeline names the class, whatever class wrote the settings.
        yield Setting(f"index--scheduler-{kind.lower()}", {INDEX: {"scheduler": ["diffusers", kind]}})


def build(name: str, pipeline: Pipeline, networks: dict[str, Json]) -> Path:
    """The repository of a pipeline, and the pictures that its jobs take in."""
    model = repository.fresh(name)
    repository.write_json(model / SCHEDULER, pipeline.scheduler)
    repository.tokenizer(model / "tokenizer", "<|endoftext|>")
    first = {**SMALL_ENCODER, **(sdxl.FIRST if pipeline.xl else {})}
    repository.text_encoder(model / "text_encoder", "parity-text", **first)
    if pipeline.xl:
        repository.tokenizer(model / "tokenizer_2", "!")
        repository.text_encoder(model / "text_encoder_2", "parity-text-2", projected=True, **sdxl.SECOND)
    repository.vae(model / "vae", "parity-vae", **{**SMALL_VAE, **networks.get("vae", {})})
    # With sharper attention the rounding of one step moves the next ones by more than a setting does.
    repository.unet(model / "unet", "parity-unet", decisive=1.5, **{**pipeline.unet, **networks.get("unet", {})})
    if pipeline.xl:
        repository.index(model, pipeline.kind, force_zeros_for_empty_prompt=True, add_watermarker=None)
    else:
        sd15.index(model, pipeline.kind)
    folder = model.parent / "golden"
    pictures.photo(folder / "photo.png", 64, 64)
    pictures.mask(folder / "mask.png", 64, 64)
    return model


def jobs(pipeline: Pipeline, task: str, is_long: bool) -> dict[str, Json]:
    """Jobs of few steps, of one, and of more than those of which a solver lowers the order."""
    options: Json = {"prompt": sd15.PROMPT, "guidance_scale": pipeline.guidance}
    if pipeline.kind != "LatentConsistencyModelPipeline":
        options["negative_prompt"] = sd15.NEGATIVE
    if task == "inpainting":
        options |= {"image": "photo.png", "mask_image": "mask.png", "strength": 1.0, "height": 64, "width": 64}
    if task == "image-to-image":
        options |= {"image": "photo.png", "strength": 0.6}
    given = {"few": {**options, "num_inference_steps": 4 if task != "image-to-image" else 6}}
    if is_long:
        given["more"] = {**options, "num_inference_steps": 17}
    if task == "text-to-image":
        given["one"] = {**options, "num_inference_steps": 1}
    if task == "text-to-image" and pipeline.xl:
        given["no-negative"] = {name: value for name, value in given["few"].items() if name != "negative_prompt"}
    return given


class SizeChosen(Exception):
    """The size of an image that a pipeline is about to make."""


def default_size(pipe: Any, options: Json, folder: Path) -> tuple[int, int]:
    """The height and width that a pipeline chooses, in pixels."""

    def prepare(*given: Any, **named: Any) -> Any:
        bound = inspect.signature(original).bind(*given, **named).arguments
        raise SizeChosen(int(bound["height"]), int(bound["width"]))

    original = pipe.prepare_latents
    pipe.prepare_latents = prepare
    try:
        pipe(**{name: Image.open(folder / value).convert("RGB") if name in ("image", "mask_image") else value for name, value in options.items()})
    except SizeChosen as chosen:
        return chosen.args
    finally:
        del pipe.prepare_latents
    raise AssertionError("the pipeline prepared no latents")


class Bases:
    """Repositories and answers that settings are compared with, each made once."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.answers: dict[str, dict[str, torch.Tensor]] = {}

    def model(self, pipeline: str) -> Path:
        model = self.folder / pipeline / "model"
        return model if model.exists() else build(pipeline, PIPELINES[pipeline], {})


def answer(made: Golden, model: Path, setting: Setting) -> dict[str, str]:
    """Runs the jobs of a setting; returns why some have no answer."""
    pipeline = PIPELINES[setting.pipeline]
    xl = {"add_watermarker": False} if pipeline.xl else {}
    pipe = run.load(model, **xl)
    pipe.set_progress_bar_config(disable=True)
    tasks = [setting.task] if setting.task else [pipeline.task]
    if not setting.task and setting.is_sized and setting.pipeline in ("plain", "lcm", "xl"):
        tasks.append("image-to-image")
    failures = {}
    for task in tasks:
        of_task = pipe
        other = IMAGES.get(type(pipe).__name__)
        if task == "image-to-image" and other:
            needless = {} if pipeline.xl else {"requires_safety_checker": False}
            of_task = getattr(diffusers, other)(**pipe.components, **needless, **xl)
        is_long = task == "text-to-image" and any(kind in setting.name for kind in ("dpmsolver", "unipc"))
        for name, options in jobs(pipeline, task, is_long).items():
            if not setting.is_sized and name != "one" and task != "inpainting":
                continue
            name = f"{task.split('-')[0]}-{name}"
            try:
                if setting.is_sized:
                    run.case(made, of_task, name, task, picture="few" in name, **options)
                else:
                    sized(made, of_task, name, task, options)
            except Exception as error:
                failures[name] = f"{type(error).__name__}: {str(error)[:300]}"
                # Numbers that are not finite are found when the case is half written.
                cases = made.cases.get("pipelines", [])
                made.cases["pipelines"] = [case for case in cases if case["name"] != name]
    return failures


def sized(made: Golden, pipe: Any, name: str, task: str, options: Json) -> None:
    """A job that names no size; the reference gets the one that it would choose."""
    options = {key: value for key, value in options.items() if key not in ("height", "width")}
    height, width = default_size(pipe, options, made.folder)
    run.case(made, pipe, name, task, picture=False, **{**options, "num_inference_steps": 1}, height=height, width=width)
    case = made.cases["pipelines"][-1]
    del case["height"], case["width"]


def effects(before: dict[str, torch.Tensor], after: dict[str, torch.Tensor], names: list[str]) -> Json:
    """How far the latents of each job are from those without the setting, as a share of the largest number."""
    found = {}
    for name in names:
        one, other = (tensors.get(f"pipelines/{name}/steps") for tensors in (before, after))
        if one is None or other is None:
            found[name] = None
        elif one.shape != other.shape:
            found[name] = 1.0
        else:
            found[name] = float((one - other).abs().max() / one.abs().max().clamp(min=1e-9))
    return found


def write(bases: Bases, setting: Setting) -> str:
    """Makes the model of a setting; returns why it has no case, or an empty text."""
    pipeline = PIPELINES[setting.pipeline]
    base = bases.model(setting.pipeline)
    before = reference(bases, setting, base)
    name = slug(f"{setting.pipeline}--{setting.name}")
    if setting.networks:
        try:
            model = build(name, pipeline, setting.networks)
        except Exception as error:
            shutil.rmtree(bases.folder / name, ignore_errors=True)
            return f"{type(error).__name__}: {str(error)[:300]}"
    else:
        model = bases.folder / name / "model"
        shutil.rmtree(model.parent, ignore_errors=True)
        linked(base.parent, model.parent)
        for file in ("cases.json", "tensors.safetensors"):
            (model.parent / "golden" / file).unlink(missing_ok=True)
        for changed in (setting.beside, setting.changes):
            for file, keys in changed.items():
                change(model / file, keys)
    made = Golden(name)
    try:
        failures = answer(made, model, setting)
    except Exception as error:
        failures = {"load": f"{type(error).__name__}: {str(error)[:300]}"}
    if not made.cases.get("pipelines"):
        shutil.rmtree(model.parent)
        return f"no case: unanswered {failures}"
    names = [case["name"] for case in made.cases["pipelines"]]
    more: Json = {
        "setting": described(setting.changes), "beside": described(setting.beside), "effects": effects(before, made.tensors, names),
        "unanswered": failures, "tolerance": TOLERANCE,
    }
    made.cases |= more
    made.write()
    return ""


def reference(bases: Bases, setting: Setting, base: Path) -> dict[str, torch.Tensor]:
    """The answers without a setting, but with what is beside it."""
    if not setting.is_sized:
        return {}
    key = f"{setting.pipeline} {setting.task} {described(setting.beside)}"
    if key not in bases.answers:
        made = Golden("without")
        model = made.folder.parent / "model"
        linked(base.parent, made.folder.parent)
        for file, keys in setting.beside.items():
            change(model / file, keys)
        try:
            answer(made, model, setting)
        except Exception:
            # A setting can be needed by those beside it.
            pass
        bases.answers[key] = made.tensors
        shutil.rmtree(made.folder.parent)
    return bases.answers[key]


def slug(name: str) -> str:
    """A name of a folder."""
    return "".join(letter if letter.isalnum() or letter in "-._" else "-" for letter in name.lower())[:120]


def settings() -> Iterator[Setting]:
    """The whole grid."""
    for pipeline in PIPELINES:
        yield from schedulers(pipeline)
    yield from unets()
    yield from others()


def families(folder: Path, seed: int, only: str, failures: list[Json]) -> None:
    """Makes every model of the grid whose name contains `only`."""
    repository.FIXTURES = golden.FIXTURES = folder
    weights.SALT = f"@{seed}.0"
    torch.set_num_threads(1)
    transformers.logging.disable_progress_bar()
    bases = Bases(folder)
    for setting in settings():
        if only not in f"{setting.pipeline}--{setting.name}":
            continue
        why = write(bases, setting)
        if why:
            failures.append({"family": folder.name, "model": f"{setting.pipeline}--{setting.name}", "error": why})
            print(f"{setting.pipeline}--{setting.name}: not made: {why}", file=sys.stderr, flush=True)
    for pipeline in PIPELINES:
        # Without cases: the first settings of each class are its scheduler as it is.
        if not (folder / pipeline / "golden/cases.json").exists():
            shutil.rmtree(folder / pipeline, ignore_errors=True)
