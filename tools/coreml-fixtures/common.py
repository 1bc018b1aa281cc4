"""What every fixture shares: folders, seeded weights, conversion, and the writing of cases."""

from __future__ import annotations

import json
import shutil
import uuid
import zlib
from pathlib import Path
from typing import Any

import coremltools as ct
import numpy as np
import torch
from torch import nn

import miltext

FIXTURES = Path(__file__).resolve().parents[2] / "runtimes/coreml/tests/fixtures"
LIMIT_BYTES = 500_000
SALT = ""
"""Makes other noise of the same seeds; the fixtures have none."""

Arrays = dict[str, np.ndarray]
Json = dict[str, Any]


def seeded(module: nn.Module, seed: str, gain: float = 1.5) -> nn.Module:
    """Fills every parameter with seeded noise that halves can hold, of a size that keeps signals and lets outputs differ."""
    noise = torch.Generator().manual_seed(number(seed))
    for name, parameter in module.named_parameters():
        sample = torch.randn(parameter.shape, generator=noise)
        if parameter.dim() >= 2:
            sample *= gain / max(1, parameter[0].numel()) ** 0.5
        elif name.endswith("weight"):
            sample = 1 + 0.2 * sample
        else:
            sample *= 0.2
        parameter.data = sample.half().float()
    for name, buffer in module.named_buffers():
        if name.endswith("running_mean"):
            buffer.copy_(0.2 * torch.randn(buffer.shape, generator=noise))
        if name.endswith("running_var"):
            buffer.copy_(0.6 + torch.rand(buffer.shape, generator=noise))
    return module.eval()


def random(seed: str, *shape: int) -> np.ndarray:
    """Seeded normal noise."""
    return np.random.default_rng(number(seed)).standard_normal(shape).astype(np.float32)


def number(seed: str) -> int:
    """A seed as a number."""
    return zlib.crc32(f"{seed}{SALT}".encode())


class Fixture:
    """A repository folder beside its cases and their arrays."""

    def __init__(self, name: str, task: str = "tensors", **engine: Any):
        self.name, self.task, self.engine = name, task, engine
        self.root = FIXTURES / name
        self.model = self.root / "model"
        self.cases: list[Json] = []
        self.answers: list[Json] = []
        shutil.rmtree(self.root, ignore_errors=True)
        self.model.mkdir(parents=True)

    def save(self, model: ct.models.MLModel, name: str = "Model", text: bool = True) -> None:
        """Writes a package, with names that do not change from run to run, and its program as text in both spellings."""
        folder = self.model / f"{name}.mlpackage"
        model.save(str(folder))
        self.adopt(folder, text)

    def adopt(self, folder: Path, text: bool = True) -> None:
        """Makes the manifest of a package the same at every run."""
        manifest = json.loads((folder / "Manifest.json").read_text())
        entries = sorted(manifest["itemInfoEntries"].items(), key=lambda entry: entry[1]["path"])
        known = {old: str(uuid.uuid5(uuid.NAMESPACE_URL, entry["path"])).upper() for old, entry in entries}
        manifest["itemInfoEntries"] = {known[old]: entry for old, entry in entries}
        manifest["rootModelIdentifier"] = known[manifest["rootModelIdentifier"]]
        (folder / "Manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
        path = folder / "Data/com.apple.CoreML/model.mlmodel"
        spec = ct.models.utils.load_spec(str(path))
        for key in list(spec.description.metadata.userDefined):
            del spec.description.metadata.userDefined[key]
        if not text:
            for function in spec.mlProgram.functions.values():
                for block in function.block_specializations.values():
                    unnamed(block)
        path.write_bytes(spec.SerializeToString(deterministic=True))
        if text:
            for spelling in ("old", "new"):
                (self.root / f"{folder.stem}.{spelling}.mil").write_text(miltext.program(spec.mlProgram, spelling == "new"))

    def case(self, name: str, steps: list[tuple[Arrays, Arrays]], function: str | None = None, **more: Any) -> None:
        """Arrays that go in and must come out, in one step or, with a state, in several."""
        stored = [
            {"inputs": self._store(f"{name}.{index}.in", given), "outputs": self._store(f"{name}.{index}.out", wanted)}
            for index, (given, wanted) in enumerate(steps)
        ]
        self.cases.append({"name": name, "function": function, "steps": stored, **more})

    def answer(self, name: str, given: Json, wanted: Json, **more: Any) -> None:
        """What a job is given and must be answered."""
        self.answers.append({"name": name, "input": given, "output": wanted, **more})

    def _store(self, stem: str, arrays: Arrays) -> dict[str, str]:
        files = {}
        for name, array in arrays.items():
            array = np.asarray(array)
            if array.dtype.kind == "f":
                array = array.astype(np.float32)
            elif array.dtype.kind in "iu":
                array = array.astype(np.int32)
            files[name] = f"{stem}.{name}.npy"
            np.save(self.root / files[name], np.ascontiguousarray(array) if array.shape else array)
        return files

    def write(self, limit: int = LIMIT_BYTES) -> None:
        """Writes cases.json and reports the size."""
        document = {"task": self.task, "engine": self.engine, "cases": self.cases, "answers": self.answers}
        (self.root / "cases.json").write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
        size = sum(file.stat().st_size for file in self.root.rglob("*") if file.is_file())
        print(f"{self.name:28} {size:8} bytes, {len(self.cases)} cases, {len(self.answers)} answers", flush=True)
        assert size <= limit, f"{self.name} is too large"


def unnamed(block: Any) -> None:
    """Removes the names of operations, which carry no information and are half of a small program."""
    for operation in block.operations:
        operation.attributes.pop("name", None)
        for inner in operation.blocks:
            unnamed(inner)


def traced(module: nn.Module, *examples: torch.Tensor) -> torch.jit.ScriptModule:
    """A module as the converter takes it."""
    with torch.no_grad():
        return torch.jit.trace(module, examples, check_trace=False)


def numpy(value: torch.Tensor) -> np.ndarray:
    """A tensor as an array."""
    return value.detach().numpy()
