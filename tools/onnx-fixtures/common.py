"""What every family shares: folders, seeded weights, export, and the writing of cases."""

from __future__ import annotations

import copy
import functools
import json
import shutil
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import torch
from optimum.exporters.onnx import onnx_export_from_model
from torch import nn

from shrink import shrink

FIXTURES = Path(__file__).resolve().parents[2] / "runtimes/onnx/tests/fixtures"
LIMIT_BYTES = 450_000
SURPLUS = ("vocab.json", "merges.txt", "vocab.txt", "added_tokens.json", "*.model", "*.spm", "*.jinja", "normalizer.json")

Json = dict[str, Any]
Names = dict[str, dict[int, str]]


class Undecided(Exception):
    """These random weights give a tie somewhere; others may not."""


class Draw:
    """Which of the seeded draws of weights is in use."""

    number = 0


def until_decided(make: Callable[[], None], draws: int = 40) -> None:
    """Makes a fixture with the first draw of weights whose results are far enough apart."""
    for Draw.number in range(draws):
        torch.manual_seed(Draw.number)
        try:
            return make()
        except Undecided as reason:
            print(f"draw {Draw.number}: {str(reason)[:160]}", file=sys.stderr, flush=True)
            last = reason
    raise last


Arrays = dict[str, np.ndarray]


def randomise(model: nn.Module, seed: str, gain: float = 1.5, embedding: float = 1.0) -> nn.Module:
    """Fills every parameter with seeded noise of a size that keeps signals and lets outputs differ."""
    noise = torch.Generator().manual_seed(zlib.crc32(f"{seed}{Draw.number}".encode()))
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            sample = torch.randn(parameter.shape, generator=noise)
            parameter.data.copy_(_shaped(module, name, sample, gain, embedding))
        for name, buffer in module.named_buffers(recurse=False):
            if name == "running_mean":
                buffer.copy_(0.2 * torch.randn(buffer.shape, generator=noise))
            if name == "running_var":
                buffer.copy_(0.6 + torch.rand(buffer.shape, generator=noise))
    return model.eval()


def _shaped(module: nn.Module, name: str, sample: torch.Tensor, gain: float, embedding: float) -> torch.Tensor:
    if "Norm" in type(module).__name__ and name == "weight":
        return 1 + 0.2 * sample
    if isinstance(module, nn.Embedding):
        return embedding * sample
    if sample.dim() >= 2:
        return gain * sample / max(1, sample[0].numel()) ** 0.5
    return 0.2 * sample


class Session:
    """A graph in onnxruntime that takes what it declares and ignores the rest."""

    def __init__(self, path: Path):
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        self.session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.inputs = [node.name for node in self.session.get_inputs()]
        self.outputs = [node.name for node in self.session.get_outputs()]

    def __call__(self, feeds: Arrays) -> Arrays:
        feeds = {**self.blanks(feeds), **feeds}
        chosen = {name: feeds[name] for name in self.inputs if name in feeds}
        return dict(zip(self.outputs, self.session.run(None, chosen)))

    def blanks(self, feeds: Arrays) -> Arrays:
        """What a graph wants beside its feeds at the first step: positions, and caches of no length."""
        made: Arrays = {}
        for node in self.session.get_inputs():
            if node.name == "position_ids":
                made[node.name] = np.maximum(feeds["attention_mask"].cumsum(-1) - 1, 0)
            if node.name.startswith("past_key_values"):
                batch, heads, _past, width = node.shape
                made[node.name] = np.zeros((len(feeds["input_ids"]), heads, 0, width), np.float32)
        return made


@contextmanager
def capture(module: nn.Module, change: Callable[[Json], None] = lambda given: None) -> Iterator[list[Arrays]]:
    """Records the tensors that each call of a module is given by name, after a change to them."""
    calls: list[Arrays] = []

    inner = module.forward

    @functools.wraps(inner)
    def record(*args: Any, **kwargs: Any) -> Any:
        named = dict(kwargs)
        if args and torch.is_tensor(args[0]):
            assert len(args) == 1
            named[getattr(module, "main_input_name", "input_ids")] = args[0]
            args = ()
        change(named)
        calls.append({key: value.detach().numpy() for key, value in named.items() if torch.is_tensor(value)})
        return inner(*args, **named)

    module.forward = record
    try:
        yield calls
    finally:
        del module.forward


class Repository:
    """One fixture: a repository folder beside its cases and their files."""

    def __init__(self, name: str, task: str):
        self.name, self.task = name, task
        self.root = FIXTURES / name
        self.model = self.root / "model"
        self.cases: list[Json] = []
        self.extra: Json = {}
        shutil.rmtree(self.root, ignore_errors=True)
        self.model.mkdir(parents=True)

    def export(self, model: nn.Module, task: str, folder: str = "onnx", drop: tuple[str, ...] = (), **options: Any) -> None:
        """Writes the graphs with optimum and the configuration, and leaves out the graphs named in drop."""
        target = self.model / folder
        config = copy.deepcopy(model.config)
        config.architectures = [type(model).__name__]
        onnx_export_from_model(model, target, task=task, do_validation=False, **options)
        for file in list(target.iterdir()):
            if file.suffix == ".onnx":
                shrink(file) if file.stem not in drop else file.unlink()
            else:
                file.unlink()
        self.save(config, *([model.generation_config] if model.can_generate() else []))

    def trace(self, module: nn.Module, arguments: tuple[Any, ...], inputs: Names, outputs: Names, path: str, opset: int = 17) -> None:
        """Writes a graph with torch's own exporter; inputs and outputs map names to their dynamic axes."""
        file = self.model / path
        file.parent.mkdir(parents=True, exist_ok=True)
        axes = {name: axes for name, axes in {**inputs, **outputs}.items() if axes}
        torch.onnx.export(
            module, arguments, str(file), input_names=list(inputs), output_names=list(outputs), dynamic_axes=axes,
            opset_version=opset, dynamo=False,
        )
        shrink(file)

    def save(self, *parts: Any) -> None:
        """Saves configurations, tokenizers and processors as a hub repository has them."""
        for part in parts:
            part.save_pretrained(self.model)
        for surplus in SURPLUS:
            for file in self.model.glob(surplus):
                file.unlink()

    def session(self, path: str = "onnx/model.onnx") -> Session:
        return Session(self.model / path)

    def case(self, name: str, input: Json, output: Json, tolerance: float = 1e-4, **arrays: Any) -> None:
        """Adds a case; `tensors` and `raw` are arrays and are stored beside it."""
        entry: Json = {"name": name, "input": input, "output": rounded(output), "tolerance": tolerance}
        for kind in ("tensors", "raw"):
            if stored := arrays.pop(kind, None):
                entry[kind] = {key: self.store(f"{name}.{key}", value) for key, value in stored.items()}
        entry.update(arrays)
        self.cases.append(entry)

    def store(self, stem: str, value: np.ndarray) -> str:
        """Writes an array in numpy's format; 64-bit floats become 32-bit."""
        value = np.asarray(value)
        if value.dtype == np.float64:
            value = value.astype(np.float32)
        file = f"{stem}.npy"
        np.save(self.root / file, np.ascontiguousarray(value))
        return file

    def write(self) -> None:
        """Writes cases.json, ends lines of text files, and reports the size."""
        document = {"task": self.task, **self.extra, "cases": self.cases}
        text = json.dumps(document, indent=1, ensure_ascii=False)
        (self.root / "cases.json").write_text(text + "\n")
        for file in self.model.rglob("*.json"):
            compact(file)
        size = sum(file.stat().st_size for file in self.root.rglob("*") if file.is_file())
        print(f"{self.name:28} {size:8} bytes, {len(self.cases)} cases")
        assert size <= LIMIT_BYTES, f"{self.name} is too large"


def compact(file: Path) -> None:
    """Drops what is not of the repository: paths of this machine and the padding of long vocabularies."""
    value = json.loads(file.read_text())
    if isinstance(value, dict):
        for key in ("_name_or_path", "name_or_path", "tokenizer_file", "vocab_file"):
            value.pop(key, None)
    dense = file.name == "tokenizer.json"
    text = json.dumps(value, ensure_ascii=False, indent=None if dense else 2)
    file.write_text(text + "\n")


def rounded(value: Any) -> Any:
    """The same value with plain numbers, floats at nine significant digits."""
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(item) for item in value]
    if isinstance(value, (float, np.floating)):
        return float(f"{float(value):.9g}")
    if isinstance(value, np.integer):
        return int(value)
    return value


def close(found: np.ndarray, wanted: np.ndarray, within: float = 2e-4) -> None:
    """Stops the program where onnxruntime and the library disagree."""
    scale = max(1.0, float(np.abs(wanted).max()))
    difference = float(np.abs(np.asarray(found, np.float64) - np.asarray(wanted, np.float64)).max()) / scale
    assert difference <= within, f"onnxruntime differs from the library by {difference}"


def apart(scores: list[float], least: float = 2e-3) -> None:
    """Refuses ranked scores that are too near each other to decide anything."""
    gaps = [left - right for left, right in zip(scores, scores[1:])]
    demand(not gaps or min(gaps) >= least, f"scores too near each other: {scores}")


def demand(holds: bool, otherwise: str) -> None:
    """Refuses the present draw of weights unless a condition holds."""
    if not holds:
        raise Undecided(otherwise)


def steady(model: nn.Module, run: Callable[[], Any]) -> Any:
    """The result of run, which must be the same with weights that differ in the sixth digit."""
    result = run()
    kept = {name: value.clone() for name, value in model.state_dict().items()}
    noise = torch.Generator().manual_seed(7)
    for parameter in model.parameters():
        parameter.data *= 1 + 1e-5 * torch.randn(parameter.shape, generator=noise)
    again = run()
    model.load_state_dict(kept)
    demand(result == again, f"not steady: {result} and {again}")
    return result


def pixel_noise(share: float) -> Callable[[Json], None]:
    """A change of one level in a share of the pixels, as another resampler makes it."""

    def change(given: Json) -> None:
        pixels = given["pixel_values"]
        noise = torch.Generator().manual_seed(3)
        hit = torch.rand(pixels.shape, generator=noise) < share
        sign = torch.randint(0, 2, pixels.shape, generator=noise) * 2 - 1
        given["pixel_values"] = pixels + hit * sign * 0.0174

    return change


def numbers(value: Any) -> list[float]:
    """Every number in a result, in order."""
    if isinstance(value, (float, int)):
        return [value]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [number for item in items for number in numbers(item)]


def outline(value: Any) -> Any:
    """A result without its numbers and pictures."""
    if isinstance(value, dict):
        return {key: outline(item) for key, item in value.items()}
    if isinstance(value, list):
        return [outline(item) for item in value]
    return value if isinstance(value, str) else None


def seen(model: nn.Module, run: Callable[[], Any], share: float = 0.05) -> tuple[Any, list[Arrays], float]:
    """A result, its tensors, and the tolerance that a slightly different resampler needs; labels must not need any."""
    with capture(model) as calls:
        found = run()
    with capture(model, pixel_noise(share)):
        other = run()
    demand(outline(found) == outline(other), "another resampler would see something else")
    pairs = list(zip(numbers(found), numbers(other)))
    demand(all(abs(left - right) <= 1 for left, right in pairs), "an edge moves by more than a pixel")
    spread = [abs(left - right) for left, right in pairs if isinstance(left, float)]
    return found, calls, float(f"{max([5e-4, *spread]) * 2:.1g}")
