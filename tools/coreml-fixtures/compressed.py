"""Compressed weights. What they stand for is read from what coremltools itself expands them to, and PyTorch computes with that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import coremltools as ct
import coremltools.optimize.coreml as cto
import numpy as np
import torch
import torch.nn.functional as F
from coremltools.converters.mil.mil import Builder as mb
from coremltools.converters.mil.mil import Function, Program

from common import Fixture, random
from programs import kinds, noise, save

Model = ct.models.MLModel
X = noise("compressed", 1, 8, 6, 6)
CONV, CONV_BIAS = random("compressed conv", 16, 8, 3, 3) / 8, noise("compressed conv bias", 16)
LINEAR, LINEAR_BIAS = random("compressed linear", 32, 64) / 8, noise("compressed linear bias", 32)


def plain(opset: str) -> Model:
    """A convolution and a linear layer with weights as they are."""
    target = getattr(ct.target, opset)
    with Function({"x": mb.placeholder(shape=X.shape)}, opset_version=target) as function:
        plane = mb.conv(x=function.inputs["x"], weight=CONV, bias=CONV_BIAS, strides=[2, 2], name="plane")
        row = mb.reshape(x=mb.relu(x=plane), shape=[1, 64])
        function.set_outputs([mb.linear(x=row, weight=LINEAR, bias=LINEAR_BIAS, name="y")])
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


def configured(config: Any) -> cto.OptimizationConfig:
    config.weight_threshold = 0
    return cto.OptimizationConfig(global_config=config)


def quantised(model: Model, joint: bool = False, **given: Any) -> Model:
    return cto.linear_quantize_weights(model, configured(cto.OpLinearQuantizerConfig(**given)), joint_compression=joint)


def palettised(model: Model, joint: bool = False, **given: Any) -> Model:
    return cto.palettize_weights(model, configured(cto.OpPalettizerConfig(**given)), joint_compression=joint)


def pruned(model: Model, sparsity: float = 0.6) -> Model:
    return cto.prune_weights(model, configured(cto.OpMagnitudePrunerConfig(target_sparsity=sparsity)))


def expected(model: Model) -> np.ndarray:
    """What the layers give with the weights that coremltools expands."""
    main = cto.decompress_weights(model)._mil_program.functions["main"]
    conv, linear = (main.find_ops(op_type=kind)[0] for kind in ("conv", "linear"))
    with torch.no_grad():
        plane = F.conv2d(torch.from_numpy(X), torch.from_numpy(conv.weight.val), torch.from_numpy(CONV_BIAS), stride=2)
        return F.linear(F.relu(plane).reshape(1, 64), torch.from_numpy(linear.weight.val), torch.from_numpy(LINEAR_BIAS)).numpy()


GROUPED = {"granularity": "per_grouped_channel", "group_size": 8}
BLOCKS = {"granularity": "per_block", "block_size": 8}
# Those whose program is kept as text too: what stands beside weights differs from form to form.
PRINTED = {"affine-channel", "palette-4", "sparse", "blocks-int4", "tables-vector", "sparse-tables"}
# A name, the operations that must be in it, the set of operations, and how it is made.
WAYS: list[tuple[str, set[str], str, Callable[[Model], Model]]] = [
    ("affine-channel", {"constexpr_affine_dequantize"}, "iOS16", lambda model: quantised(model, mode="linear", dtype="int8", granularity="per_channel")),
    ("affine-symmetric", {"constexpr_affine_dequantize"}, "iOS16", lambda model: quantised(model, mode="linear_symmetric", dtype="int8")),
    ("affine-tensor", {"constexpr_affine_dequantize"}, "iOS16", lambda model: quantised(model, mode="linear", dtype="uint8", granularity="per_tensor")),
    *((f"palette-{bits}", {"constexpr_lut_to_dense"}, "iOS16", lambda model, bits=bits: palettised(model, mode="uniform", nbits=bits)) for bits in (1, 2, 4, 6, 8)),
    ("sparse", {"constexpr_sparse_to_dense"}, "iOS16", pruned),
    ("blocks-int8", {"constexpr_blockwise_shift_scale"}, "iOS18", lambda model: quantised(model, mode="linear_symmetric", dtype="int8", **BLOCKS)),
    ("blocks-int4", {"constexpr_blockwise_shift_scale"}, "iOS18", lambda model: quantised(model, mode="linear_symmetric", dtype="int4", **BLOCKS)),
    ("blocks-uint4", {"constexpr_blockwise_shift_scale"}, "iOS18", lambda model: quantised(model, mode="linear", dtype="uint4", **BLOCKS)),
    ("blocks-32", {"constexpr_blockwise_shift_scale"}, "iOS18", lambda model: quantised(model, mode="linear_symmetric", dtype="int4", granularity="per_block", block_size=32)),
    ("channels-int8", {"constexpr_blockwise_shift_scale"}, "iOS18", lambda model: quantised(model, mode="linear", dtype="int8", granularity="per_channel")),
    *((f"tables-{bits}", {"constexpr_lut_to_dense"}, "iOS18", lambda model, bits=bits: palettised(model, mode="uniform", nbits=bits, **GROUPED)) for bits in (1, 2, 3, 4, 6)),
    ("tables-scaled", {"constexpr_lut_to_dense", "constexpr_blockwise_shift_scale"}, "iOS18", lambda model: palettised(model, mode="uniform", nbits=4, enable_per_channel_scale=True, **GROUPED)),
    ("tables-vector", {"constexpr_lut_to_dense"}, "iOS18", lambda model: palettised(model, mode="kmeans", nbits=4, cluster_dim=4, **GROUPED)),
    ("sparse-new", {"constexpr_sparse_to_dense"}, "iOS18", pruned),
    ("sparse-tables", {"constexpr_lut_to_sparse", "constexpr_sparse_to_dense"}, "iOS18", lambda model: palettised(pruned(model), True, mode="uniform", nbits=4, **GROUPED)),
    ("sparse-scaled", {"constexpr_sparse_blockwise_shift_scale", "constexpr_sparse_to_dense"}, "iOS18", lambda model: quantised(pruned(model), True, mode="linear_symmetric", dtype="int8", granularity="per_channel")),
    ("tables-of-int8", {"constexpr_lut_to_dense", "constexpr_blockwise_shift_scale"}, "iOS18", lambda model: quantised(palettised(model, mode="uniform", nbits=4, **GROUPED), True, mode="linear_symmetric", dtype="int8", granularity="per_tensor")),
]


def make() -> None:
    fixture = Fixture("compressed")
    arrays = {"in.x": X}
    models = {opset: plain(opset) for opset in ("iOS16", "iOS18")}
    for name, needed, opset, compress in WAYS:
        model = compress(models[opset])
        assert needed <= kinds(model), f"{name} has only {kinds(model)}"
        arrays[f"out.{name}"] = expected(model)
        # The text of every form is kept once: the others differ in numbers alone.
        fixture.save(model, name, text=name in PRINTED)
        step = {"inputs": {"x": "compressed.safetensors#in.x"}, "outputs": {"y": f"compressed.safetensors#out.{name}"}}
        fixture.cases.append({"name": name, "model": f"{name}.mlpackage", "function": None, "steps": [step], "tolerance": 1e-5})
    save(fixture.root / "compressed.safetensors", arrays)
    fixture.write()


FAMILIES = {"compressed": make}
