"""A package of several functions that share weights."""

from __future__ import annotations

import tempfile
from pathlib import Path

import coremltools as ct
import numpy as np
from coremltools.converters.mil.mil import Builder as mb
from coremltools.converters.mil.mil import Function, Program

from common import Fixture
from programs import noise

WEIGHT = noise("shared", 24, 16) / 4
ROWS = noise("rows of functions", 3, 16)


def part(sharpens: bool, rows: int) -> ct.models.MLModel:
    """One function: the same layer, and what comes behind it."""
    target = ct.target.iOS18
    with Function({"x": mb.placeholder(shape=(rows, 16))}, opset_version=target) as function:
        hidden = mb.linear(x=function.inputs["x"], weight=WEIGHT)
        function.set_outputs([mb.softmax(x=hidden, axis=-1, name="y") if sharpens else mb.tanh(x=hidden, name="y")])
    program = Program()
    program.add_function("main", function)
    return ct.convert(
        program,
        source="milinternal",
        convert_to="mlprogram",
        minimum_deployment_target=target,
        compute_precision=ct.precision.FLOAT32,
        pass_pipeline=ct.PassPipeline.EMPTY,
        skip_model_load=True,
    )


def make() -> None:
    fixture = Fixture("functions", function="bend")
    with tempfile.TemporaryDirectory() as folder:
        several = ct.utils.MultiFunctionDescriptor()
        for name, sharpens, rows in (("bend", False, 1), ("choose", True, 3)):
            path = str(Path(folder) / f"{name}.mlpackage")
            part(sharpens, rows).save(path)
            several.add_function(path, src_function_name="main", target_function_name=name)
        several.default_function_name = "choose"
        ct.utils.save_multifunction(several, str(fixture.model / "Model.mlpackage"))
    fixture.adopt(fixture.model / "Model.mlpackage")
    hidden = ROWS.astype(np.float64) @ WEIGHT.T
    shares = np.exp(hidden) / np.exp(hidden).sum(-1, keepdims=True)
    fixture.case("bend", [({"x": ROWS[:1]}, {"y": np.tanh(hidden[:1])})], function="bend")
    fixture.case("choose", [({"x": ROWS}, {"y": shares})], function="choose")
    fixture.case("default", [({"x": ROWS}, {"y": shares})])
    fixture.answer("named", {"inputs": {"x": ROWS[:1].tolist()}}, {"outputs": {"y": np.tanh(hidden[:1]).astype(np.float32).tolist()}})
    fixture.write()


FAMILIES = {"functions": make}
