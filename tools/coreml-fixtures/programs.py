"""Small programs of single operations: how they are built, and what is kept of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import coremltools as ct
import numpy as np
from coremltools.converters.mil.mil import Builder as mb
from coremltools.converters.mil.mil import Function, Program, types

from common import Arrays, Fixture, random

# A label, what the operation gives, and what numpy or PyTorch give for it.
Outcomes = Iterator[tuple[str, Any, np.ndarray]]
Build = Callable[[SimpleNamespace, SimpleNamespace], Outcomes]
GROUPS: list[tuple[str, str, Arrays, Build]] = []


def group(opset: str = "iOS17", **inputs: np.ndarray) -> Callable[[Build], Build]:
    """A program of several operations; its function sees the inputs as the program does, and as arrays."""

    def keep(build: Build) -> Build:
        GROUPS.append((build.__name__, opset, inputs, build))
        return build

    return keep


def noise(seed: str, *shape: int) -> np.ndarray:
    """Seeded noise that halves can hold."""
    return random(seed, *shape).astype(np.float16).astype(np.float32)


def ints(*values: Any) -> np.ndarray:
    """Whole numbers as Core ML takes them."""
    return np.array(values, dtype=np.int32)


def placeholder(array: np.ndarray) -> Any:
    kind = types.int32 if array.dtype.kind == "i" else types.fp32
    return mb.placeholder(shape=array.shape, dtype=kind)


def program(name: str, opset: str, inputs: Arrays, build: Build) -> tuple[ct.models.MLModel, Arrays]:
    """A package of a group, and what must come out of it."""
    target = getattr(ct.target, opset)
    wanted: Arrays = {}
    with Function({key: placeholder(array) for key, array in inputs.items()}, opset_version=target) as function:
        results = []
        for label, given, expected in build(SimpleNamespace(**function.inputs), SimpleNamespace(**inputs)):
            expected = np.asarray(expected)
            assert label not in wanted, f"{label} is there twice"
            if given.rank == 0:
                given, expected = mb.expand_dims(x=given, axes=[0]), expected.reshape(1)
            if given.dtype in (types.fp32, types.int32):
                results.append(mb.identity(x=given, name=label))
            else:
                results.append(mb.cast(x=given, dtype="int32", name=label))
            wanted[label] = expected.astype(np.float32 if expected.dtype.kind == "f" else np.int32)
        function.set_outputs(results)
    whole = Program()
    whole.add_function("main", function)
    model = ct.convert(
        whole,
        source="milinternal",
        convert_to="mlprogram",
        minimum_deployment_target=target,
        compute_precision=ct.precision.FLOAT32,
        pass_pipeline=ct.PassPipeline.EMPTY,
        skip_model_load=True,
    )
    there = kinds(model)
    missing = {label.split("__")[0] for label in wanted} - there
    assert not missing, f"{name} lost {missing}"
    return model, wanted


def kinds(model: ct.models.MLModel) -> set[str]:
    """The operations in a package."""
    found: set[str] = set()

    def walk(block: Any) -> None:
        for operation in block.operations:
            found.add(operation.type)
            for inner in operation.blocks:
                walk(inner)

    for function in model.get_spec().mlProgram.functions.values():
        walk(function.block_specializations[function.opset])
    return found


def save(path: Path, arrays: Arrays) -> None:
    """Several arrays in one file: the length of a JSON head, the head, the numbers."""
    head, data = {}, b""
    for name, array in arrays.items():
        array = np.asarray(array)
        kind = "F32" if array.dtype.kind == "f" else "I32"
        raw = np.ascontiguousarray(array, dtype=np.float32 if kind == "F32" else np.int32).tobytes()
        head[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(head, separators=(",", ":")).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def write(fixture: Fixture) -> None:
    """Every group as a package and a case of a fixture."""
    for name, opset, inputs, build in GROUPS:
        model, wanted = program(name, opset, inputs, build)
        fixture.save(model, name, text=False)
        file = f"{name}.safetensors"
        save(fixture.root / file, {f"in.{key}": array for key, array in inputs.items()} | {f"out.{key}": array for key, array in wanted.items()})
        fixture.cases.append({"name": name, "model": f"{name}.mlpackage", "function": None, "steps": [{"arrays": file}], "tolerance": 2e-5})
