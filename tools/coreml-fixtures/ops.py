"""Operations one by one, against numpy and PyTorch."""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from coremltools.converters.mil.mil import Builder as mb

import ops_layers  # noqa: F401  (its groups are added to the list)
import programs
from common import Fixture
from programs import Outcomes, group, ints, noise

T = torch.from_numpy
NARROW = np.clip(noise("narrow", 2, 3, 4), -0.9, 0.9)
WIDE = noise("wide", 2, 3, 4) * 2
WIDE[0, 0] = [-2.5, -0.5, 0.5, 1.5]
NUMBERS = ints(*[[-7, -3, 0, 2], [5, 8, -1, 3]])


def erf(x: np.ndarray) -> np.ndarray:
    return np.vectorize(math.erf)(x)


@group(x=WIDE, near=NARROW, n=NUMBERS)
def unary(v, a) -> Outcomes:
    positive, root = mb.abs(x=v.x), np.abs(a.x)
    yield "abs", mb.abs(x=v.x), np.abs(a.x)
    yield "abs__int", mb.abs(x=v.n), np.abs(a.n)
    yield "acos", mb.acos(x=v.near), np.arccos(a.near)
    yield "asin", mb.asin(x=v.near), np.arcsin(a.near)
    yield "atan", mb.atan(x=v.x), np.arctan(a.x)
    yield "atanh", mb.atanh(x=v.near), np.arctanh(a.near)
    yield "cast__down", mb.cast(x=v.x, dtype="int32"), np.trunc(a.x).astype(int)
    yield "cast__up", mb.cast(x=v.n, dtype="fp32"), a.n.astype(float)
    yield "cast__flag", mb.cast(x=v.n, dtype="bool"), a.n != 0
    yield "cast__half", mb.cast(x=mb.cast(x=v.x, dtype="fp16"), dtype="fp32"), a.x
    yield "ceil", mb.ceil(x=v.x), np.ceil(a.x)
    yield "clip", mb.clip(x=v.x, alpha=-0.7, beta=1.2), np.clip(a.x, -0.7, 1.2)
    yield "cos", mb.cos(x=v.x), np.cos(a.x)
    yield "cosh", mb.cosh(x=v.x), np.cosh(a.x)
    yield "erf", mb.erf(x=v.x), erf(a.x)
    yield "exp", mb.exp(x=v.x), np.exp(a.x)
    yield "exp2", mb.exp2(x=v.x), np.exp2(a.x)
    yield "floor", mb.floor(x=v.x), np.floor(a.x)
    yield "identity", mb.identity(x=v.x), a.x
    yield "inverse", mb.inverse(x=positive, epsilon=0.25), 1 / (root + 0.25)
    yield "log", mb.log(x=positive), np.log(root)
    yield "log__epsilon", mb.log(x=positive, epsilon=0.5), np.log(root + 0.5)
    yield "logical_not", mb.logical_not(x=mb.cast(x=v.n, dtype="bool")), a.n == 0
    yield "round", mb.round(x=v.x), np.round(a.x)
    yield "rsqrt", mb.rsqrt(x=positive), 1 / np.sqrt(root)
    yield "rsqrt__epsilon", mb.rsqrt(x=positive, epsilon=0.3), 1 / np.sqrt(root + 0.3)
    yield "sign", mb.sign(x=v.x), np.sign(a.x)
    yield "sin", mb.sin(x=v.x), np.sin(a.x)
    yield "sinh", mb.sinh(x=v.x), np.sinh(a.x)
    yield "sqrt", mb.sqrt(x=positive), np.sqrt(root)
    yield "square", mb.square(x=v.x), a.x**2
    yield "square__int", mb.square(x=v.n), a.n**2
    yield "tan", mb.tan(x=v.near), np.tan(a.near)
    yield "tanh", mb.tanh(x=v.x), np.tanh(a.x)
    yield "threshold", mb.threshold(x=v.x, alpha=0.3), np.maximum(a.x, 0.3)


@group(x=WIDE, deep=noise("deep", 2, 3, 2, 2))
def activations(v, a) -> Outcomes:
    x, per = T(a.x), np.array([0.1, -0.3, 0.7], dtype=np.float32)
    beta = np.array([1.5, 0.4, 2.0], dtype=np.float32)
    shaped = lambda row: row.reshape(1, 3, 1)  # noqa: E731
    yield "clamped_relu", mb.clamped_relu(x=v.x, alpha=0.2, beta=1.1), np.minimum(np.where(a.x >= 0, a.x, 0.2 * a.x), 1.1)
    yield "elu", mb.elu(x=v.x, alpha=0.6), F.elu(x, 0.6).numpy()
    yield "gelu", mb.gelu(x=v.x), F.gelu(x).numpy()
    yield "gelu__tanh", mb.gelu(x=v.x, mode="TANH_APPROXIMATION"), F.gelu(x, approximate="tanh").numpy()
    yield "gelu__sigmoid", mb.gelu(x=v.x, mode="SIGMOID_APPROXIMATION"), a.x / (1 + np.exp(-1.702 * a.x))
    yield "leaky_relu", mb.leaky_relu(x=v.x, alpha=0.3), F.leaky_relu(x, 0.3).numpy()
    yield "linear_activation", mb.linear_activation(x=v.x, alpha=0.3, beta=-0.8), 0.3 * a.x - 0.8
    yield "prelu", mb.prelu(x=v.deep, alpha=per), F.prelu(T(a.deep), T(per)).numpy()
    yield "relu", mb.relu(x=v.x), np.maximum(a.x, 0)
    yield "relu6", mb.relu6(x=mb.mul(x=v.x, y=4.0)), np.clip(a.x * 4, 0, 6)
    yield "scaled_tanh", mb.scaled_tanh(x=v.x, alpha=1.7, beta=0.4), 1.7 * np.tanh(0.4 * a.x)
    yield "sigmoid", mb.sigmoid(x=v.x), torch.sigmoid(x).numpy()
    yield "sigmoid_hard", mb.sigmoid_hard(x=v.x, alpha=0.4, beta=0.6), np.clip(0.4 * a.x + 0.6, 0, 1)
    yield "silu", mb.silu(x=v.x), F.silu(x).numpy()
    yield "softmax", mb.softmax(x=v.x), F.softmax(x, -1).numpy()
    yield "softmax__axis", mb.softmax(x=v.x, axis=-2), F.softmax(x, 1).numpy()
    yield "softplus", mb.softplus(x=v.x), F.softplus(x).numpy()
    softplus = shaped(per) * np.log1p(np.exp(shaped(beta) * a.x.astype(np.float64)))
    yield "softplus_parametric", mb.softplus_parametric(x=v.x, alpha=per, beta=beta), softplus
    yield "softsign", mb.softsign(x=v.x), F.softsign(x).numpy()
    yield "thresholded_relu", mb.thresholded_relu(x=v.x, alpha=0.5), np.where(a.x >= 0.5, a.x, 0)


@group(x=WIDE, y=noise("other", 3, 1), n=NUMBERS, m=ints(3, -2, 4, -5))
def binary(v, a) -> Outcomes:
    some = [a.x > 0, a.y > 0]
    flags = [mb.greater(x=v.x, y=0.0), mb.greater(x=v.y, y=0.0)]
    yield "add", mb.add(x=v.x, y=v.y), a.x + a.y
    yield "add__int", mb.add(x=v.n, y=v.m), a.n + a.m
    yield "add__constant", mb.add(x=v.x, y=np.float32(0.125)), a.x + 0.125
    yield "equal", mb.equal(x=v.n, y=ints(-7, 8, 0, 3)), a.n == ints(-7, 8, 0, 3)
    yield "floor_div", mb.floor_div(x=v.n, y=v.m), a.n // a.m
    yield "floor_div__real", mb.floor_div(x=v.x, y=v.y), np.floor(a.x / a.y)
    yield "greater", mb.greater(x=v.x, y=v.y), a.x > a.y
    yield "greater_equal", mb.greater_equal(x=v.n, y=v.m), a.n >= a.m
    yield "less", mb.less(x=v.x, y=v.y), a.x < a.y
    yield "less_equal", mb.less_equal(x=v.n, y=v.m), a.n <= a.m
    yield "logical_and", mb.logical_and(x=flags[0], y=flags[1]), some[0] & some[1]
    yield "logical_or", mb.logical_or(x=flags[0], y=flags[1]), some[0] | some[1]
    yield "logical_xor", mb.logical_xor(x=flags[0], y=flags[1]), some[0] ^ some[1]
    yield "maximum", mb.maximum(x=v.x, y=v.y), np.maximum(a.x, a.y)
    yield "minimum", mb.minimum(x=v.n, y=v.m), np.minimum(a.n, a.m)
    yield "mod", mb.mod(x=v.n, y=v.m), a.n % a.m
    yield "mod__real", mb.mod(x=v.x, y=np.float32(-0.7)), np.mod(a.x, np.float32(-0.7))
    yield "mul", mb.mul(x=v.x, y=v.y), a.x * a.y
    yield "not_equal", mb.not_equal(x=v.n, y=v.m), a.n != a.m
    yield "pow", mb.pow(x=mb.abs(x=v.x), y=v.y), np.abs(a.x) ** a.y
    yield "real_div", mb.real_div(x=v.x, y=v.y), a.x / a.y
    yield "sub", mb.sub(x=v.x, y=v.y), a.x - a.y


@group(x=WIDE, n=NUMBERS)
def reductions(v, a) -> Outcomes:
    positive, size = mb.abs(x=v.x), np.abs(a.x)
    yield "reduce_argmax", mb.reduce_argmax(x=v.x, axis=1), a.x.argmax(1)
    yield "reduce_argmax__kept", mb.reduce_argmax(x=v.x, axis=-1, keep_dims=True), a.x.argmax(-1, keepdims=True)
    yield "reduce_argmin", mb.reduce_argmin(x=v.x, axis=-2), a.x.argmin(1)
    yield "reduce_l1_norm", mb.reduce_l1_norm(x=v.x, axes=[1]), size.sum(1)
    yield "reduce_l2_norm", mb.reduce_l2_norm(x=v.x, axes=[-1], keep_dims=True), np.sqrt((a.x**2).sum(-1, keepdims=True))
    yield "reduce_log_sum", mb.reduce_log_sum(x=positive, axes=[0, 2]), np.log(size.sum((0, 2)))
    yield "reduce_log_sum_exp", mb.reduce_log_sum_exp(x=v.x, axes=[-1]), torch.logsumexp(T(a.x), -1).numpy()
    yield "reduce_max", mb.reduce_max(x=v.x, axes=[0]), a.x.max(0)
    yield "reduce_max__int", mb.reduce_max(x=v.n, axes=[1]), a.n.max(1)
    yield "reduce_mean", mb.reduce_mean(x=v.x, axes=[1, 2], keep_dims=True), a.x.mean((1, 2), keepdims=True)
    yield "reduce_mean__all", mb.reduce_mean(x=v.x), a.x.mean()
    yield "reduce_min", mb.reduce_min(x=v.x, axes=[-3]), a.x.min(0)
    yield "reduce_prod", mb.reduce_prod(x=v.x, axes=[-1]), a.x.prod(-1)
    yield "reduce_sum", mb.reduce_sum(x=v.x, axes=[0, -1]), a.x.sum((0, 2))
    yield "reduce_sum__int", mb.reduce_sum(x=v.n, axes=[0], keep_dims=True), a.n.sum(0, keepdims=True)
    yield "reduce_sum_square", mb.reduce_sum_square(x=v.x, axes=[1]), (a.x**2).sum(1)


SQUARE = noise("square", 2, 8, 4, 6)


def unfolded(x: np.ndarray, by: int) -> np.ndarray:
    """Blocks of space to channels, the place in the block before the channel."""
    n, c, h, w = x.shape
    return x.reshape(n, c, h // by, by, w // by, by).transpose(0, 3, 5, 1, 2, 4).reshape(n, c * by * by, h // by, w // by)


def folded(x: np.ndarray, by: int) -> np.ndarray:
    """Back."""
    n, c, h, w = x.shape
    return x.reshape(n, by, by, c // by**2, h, w).transpose(0, 3, 4, 1, 5, 2).reshape(n, c // by**2, h * by, w * by)


def to_batch(x: np.ndarray, down: int, across: int, pads: list[list[int]]) -> np.ndarray:
    wide = np.pad(x, [[0, 0], [0, 0], *pads])
    return np.concatenate([wide[:, :, y::down, x::across] for y in range(down) for x in range(across)])


def from_batch(x: np.ndarray, down: int, across: int, crops: list[list[int]]) -> np.ndarray:
    n, c, h, w = x.shape
    whole = np.zeros((n // (down * across), c, h * down, w * across), np.float32)
    for place, part in enumerate(np.split(x, down * across)):
        whole[:, :, place // across :: down, place % across :: across] = part
    (top, bottom), (left, right) = crops
    return whole[:, :, top : h * down - bottom, left : w * across - right]


@group(x=SQUARE, y=noise("flat", 2, 3, 4), batch=noise("batch", 12, 2, 3, 2), size=ints(6, -1))
def arrangement(v, a) -> Outcomes:
    yield "batch_to_space", mb.batch_to_space(x=v.batch, block_shape=[2, 3], crops=[[1, 0], [0, 2]]), from_batch(a.batch, 2, 3, [[1, 0], [0, 2]])
    yield "depth_to_space", mb.depth_to_space(x=v.x, block_size=2), folded(a.x, 2)
    yield "expand_dims", mb.expand_dims(x=v.y, axes=[0, -1]), a.y[None, ..., None]
    yield "flatten2d", mb.flatten2d(x=v.y, axis=-1), a.y.reshape(6, 4)
    yield "flatten2d__one", mb.flatten2d(x=v.y), a.y.reshape(2, 12)
    yield "pixel_shuffle", mb.pixel_shuffle(x=v.x, upscale_factor=2), F.pixel_shuffle(T(a.x), 2).numpy()
    yield "pixel_unshuffle", mb.pixel_unshuffle(x=v.x, downscale_factor=np.uint32(2)), F.pixel_unshuffle(T(a.x), 2).numpy()
    yield "reshape", mb.reshape(x=v.y, shape=[4, -1]), a.y.reshape(4, 6)
    yield "reshape__kept", mb.reshape(x=v.y, shape=[0, -1, 2]), a.y.reshape(2, 6, 2)
    yield "reshape__more", mb.reshape(x=v.y, shape=[1, 2, 0, 0]), a.y.reshape(1, 2, 3, 4)
    yield "reshape__late", mb.reshape(x=v.y, shape=v.size), a.y.reshape(6, 4)
    like = mb.reshape_like(x=v.y, ref_tensors=(v.size, v.batch), begins=(0, 0), ends=(1, 1), end_masks=(False, False))
    yield "reshape_like", like, a.y.reshape(2, 12)
    yield "reverse", mb.reverse(x=v.y, axes=[0, -1]), a.y[::-1, :, ::-1]
    yield "reverse__all", mb.reverse(x=v.y), a.y[::-1, ::-1, ::-1]
    turned = a.y.copy()
    turned[0, :2], turned[1, :3] = a.y[0, 1::-1], a.y[1, 2::-1]
    yield "reverse_sequence", mb.reverse_sequence(x=v.y, lengths=[2, 3], seq_axis=1, batch_axis=0), turned
    yield "shape", mb.shape(x=v.y), np.array(a.y.shape)
    yield "space_to_batch", mb.space_to_batch(x=v.x, block_shape=[2, 3], paddings=[[1, 1], [0, 3]]), to_batch(a.x, 2, 3, [[1, 1], [0, 3]])
    yield "space_to_depth", mb.space_to_depth(x=v.x, block_size=2), unfolded(a.x, 2)
    single = mb.reshape(x=v.y, shape=[1, 6, 1, 4])
    yield "squeeze", mb.squeeze(x=single), a.y.reshape(6, 4)
    yield "squeeze__axes", mb.squeeze(x=single, axes=[-2]), a.y.reshape(1, 6, 4)
    yield "transpose", mb.transpose(x=v.y, perm=[-1, 0, 1]), a.y.transpose(2, 0, 1)


LINE = noise("line", 3, 5, 6)


@group("iOS18", x=LINE, begin=ints(1, 0, -4), end=ints(3, 4, -1), part=noise("part", 2, 5, 3), thin=noise("thin", 5, 2), size=ints(2, -1, 3))
def slices(v, a) -> Outcomes:
    def cut(**given):
        return mb.slice_by_index(x=v.x, **given)

    image, wide = mb.expand_dims(x=v.x, axes=[0]), a.x[None]
    yield "crop", mb.crop(x=image, crop_height=[1, 2], crop_width=[0, 3]), wide[:, :, 1:-2, :-3]
    yield "slice_by_index", cut(begin=[1, 0, 2], end=[3, 5, 5]), a.x[1:3, 0:5, 2:5]
    yield "slice_by_index__stride", cut(begin=[0, 4, 1], end=[3, 0, 6], stride=[2, -2, 3]), a.x[0:3:2, 4:0:-2, 1:6:3]
    masked = cut(begin=[9, 1, 2], end=[9, 9, -1], begin_mask=[True, False, False], end_mask=[True, True, False])
    yield "slice_by_index__mask", masked, a.x[:, 1:, 2:-1]
    back = cut(begin=[0, 0, 0], end=[0, 0, 0], stride=[1, -1, -2], begin_mask=[True] * 3, end_mask=[True] * 3)
    yield "slice_by_index__back", back, a.x[:, ::-1, ::-2]
    yield "slice_by_index__squeeze", cut(begin=[-1, 2, 0], end=[0, 0, 6], squeeze_mask=[True, True, False]), a.x[-1, 2]
    yield "slice_by_index__late", cut(begin=v.begin, end=v.end), a.x[1:3, 0:4, -4:-1]
    late = cut(begin=v.begin, end=v.end, begin_mask=[False, True, True], end_mask=[False, False, True], squeeze_mask=[True, False, False])
    yield "slice_by_index__late_masked", late, a.x[1, :4]
    yield "slice_by_size", mb.slice_by_size(x=v.x, begin=v.begin, size=[2, -1, 3]), a.x[1:3, 0:, 2:5]
    yield "slice_by_size__late", mb.slice_by_size(x=v.x, begin=[1, 2, 0], size=v.size), a.x[1:3, 2:, 0:3]
    changed = a.x.copy()
    changed[1:3, :, 2:5] = a.part
    yield "slice_update", mb.slice_update(x=v.x, update=v.part, begin=[1, 0, 2], end=[3, 5, 5]), changed
    strided = a.x.copy()
    strided[::2, :, 0:6:2] = a.part
    yield "slice_update__stride", mb.slice_update(x=v.x, update=v.part, begin=[0, 0, 0], end=[3, 5, 6], stride=[2, 1, 2]), strided
    late = a.x.copy()
    late[1:3, :, -4:-1] = a.part
    yield "slice_update__late", mb.slice_update(x=v.x, update=v.part, begin=v.begin, end=v.end, end_mask=[False, True, False]), late
    single = a.x.copy()
    single[-1, :, 4:6] = a.thin
    given = {"begin": [-1, 0, 4], "end": [0, 5, 6], "squeeze_mask": [True, False, False]}
    yield "slice_update__squeeze", mb.slice_update(x=v.x, update=v.thin, **given), single
    windows = np.stack([a.x[:, at : at + 3] for at in (0, 2)], 1)
    yield "sliding_windows", mb.sliding_windows(x=v.x, axis=1, size=3, stride=2), windows
    windows = np.stack([a.x[..., at : at + 4] for at in (0, 1, 2)], -2)
    yield "sliding_windows__last", mb.sliding_windows(x=v.x, axis=-1, size=4), windows


SORTED = np.random.default_rng(7).permutation(24).astype(np.float32).reshape(2, 3, 4) / 8


@group(x=SORTED, n=NUMBERS, few=ints(0, 3, 1), wide=noise("pads", 2, 3, 4, 5), shape=ints(2, 3), pads=ints(1, 0, 0, 2, 3, 1), step=ints(3))
def tensors(v, a) -> Outcomes:
    flag, flags = mb.greater(x=v.x, y=1.0), a.x > 1
    yield "argsort", mb.argsort(x=v.x), (-a.x).argsort(-1)
    yield "argsort__up", mb.argsort(x=v.x, axis=1, ascending=True), a.x.argsort(1)
    yield "band_part", mb.band_part(x=v.x, lower=0, upper=-1), np.triu(a.x)
    yield "band_part__both", mb.band_part(x=v.x, lower=1, upper=2), np.tril(np.triu(a.x, -1), 2)
    yield "concat", mb.concat(values=[v.x, v.x], axis=-2), np.concatenate([a.x, a.x], 1)
    yield "concat__int", mb.concat(values=[v.few, ints(9), v.step], axis=0), np.concatenate([a.few, [9], a.step])
    woven = np.stack([a.x, -a.x], 2).reshape(2, 6, 4)
    yield "concat__woven", mb.concat(values=[v.x, mb.mul(x=v.x, y=-1.0)], axis=1, interleave=True), woven
    yield "cumsum", mb.cumsum(x=v.x), a.x.cumsum(0)
    yield "cumsum__exclusive", mb.cumsum(x=v.x, axis=-1, exclusive=True), a.x.cumsum(-1) - a.x
    yield "cumsum__reverse", mb.cumsum(x=v.n, axis=1, reverse=True), a.n[:, ::-1].cumsum(1)[:, ::-1]
    yield "fill", mb.fill(shape=v.shape, value=1.5), np.full((2, 3), 1.5)
    yield "fill__int", mb.fill(shape=[2, 2], value=np.int32(7)), np.full((2, 2), 7)
    yield "fill_like", mb.fill_like(ref_tensor=v.n, value=0.5), np.full((2, 4), 0.5)
    yield "non_zero", mb.non_zero(x=v.n), np.argwhere(a.n)
    yield "one_hot", mb.one_hot(indices=v.few, one_hot_vector_size=4), np.eye(4, dtype=int)[a.few]
    hot = np.where(np.eye(4)[a.few].T > 0, 2.5, -1.0)
    yield "one_hot__axis", mb.one_hot(indices=v.few, one_hot_vector_size=4, axis=0, on_value=2.5, off_value=-1.0), hot
    yield "pad", mb.pad(x=v.wide, pad=[1, 0, 0, 2], constant_val=0.5), np.pad(a.wide, [[0, 0], [0, 0], [1, 0], [0, 2]], constant_values=0.5)
    yield "pad__reflect", mb.pad(x=v.wide, pad=[2, 1, 0, 3], mode="reflect"), np.pad(a.wide, [[0, 0], [0, 0], [2, 1], [0, 3]], mode="reflect")
    yield "pad__edge", mb.pad(x=v.wide, pad=[0, 2, 1, 1], mode="replicate"), np.pad(a.wide, [[0, 0], [0, 0], [0, 2], [1, 1]], mode="edge")
    yield "pad__late", mb.pad(x=v.x, pad=v.pads), np.pad(a.x, [[1, 0], [0, 2], [3, 1]])
    yield "range_1d", mb.range_1d(start=1, end=mb.squeeze(x=v.step, axes=[0]), step=1), np.arange(1, 3)
    yield "range_1d__real", mb.range_1d(start=np.float32(0.5), end=mb.reduce_max(x=v.x, keep_dims=False), step=np.float32(0.5)), np.arange(0.5, a.x.max(), 0.5)
    yield "select", mb.select(cond=flag, a=v.x, b=np.float32(-1)), np.where(flags, a.x, -1)
    yield "select__int", mb.select(cond=mb.greater(x=v.n, y=0), a=v.n, b=mb.mul(x=v.n, y=3)), np.where(a.n > 0, a.n, a.n * 3)
    halves = mb.split(x=v.x, num_splits=2, axis=-1)
    yield "split", halves[1], a.x[..., 2:]
    yield "split__sizes", mb.split(x=v.x, split_sizes=[1, 2], axis=1)[1], a.x[:, 1:]
    yield "stack", mb.stack(values=[v.x, v.x], axis=-1), np.stack([a.x, a.x], -1)
    yield "stack__int", mb.stack(values=[v.few, v.few], axis=0), np.stack([a.few, a.few])
    yield "tile", mb.tile(x=v.x, reps=[1, 2, 3]), np.tile(a.x, [1, 2, 3])
    best = mb.topk(x=v.x, k=2, axis=1)
    order = (-a.x).argsort(1)[:, :2]
    yield "topk", best[0], np.take_along_axis(a.x, order, 1)
    yield "topk__places", best[1], order
    yield "topk__up", mb.topk(x=v.x, k=3, ascending=True)[1], a.x.argsort(-1)[..., :3]
    yield "topk__short", mb.topk(x=v.n, k=1, output_indices_dtype="uint16")[1], a.n.argmax(-1)[:, None]


PLACES = ints([2, 0, 1, 2], [-1, 1, 0, -3])


def scattered(data: np.ndarray, index: tuple, updates: np.ndarray, mode: str) -> np.ndarray:
    data = data.astype(np.float64)
    how = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "max": np.maximum, "min": np.minimum}
    if mode == "update":
        data[index] = updates
    else:
        how[mode].at(data, index, updates)
    return data


@group(x=noise("gathered", 3, 4, 5), i=PLACES, j=ints(1, -1), pairs=ints([0, 3], [2, 1]), deep=ints([[1], [3]], [[0], [2]], [[2], [2]]), rows=noise("rows", 2, 4, 5), cells=noise("cells", 2, 5), same=noise("same", 3, 2, 5))
def places(v, a) -> Outcomes:
    checked = {"validate_indices": False}
    yield "gather", mb.gather(x=v.x, indices=v.i, axis=0, **checked), a.x[a.i]
    yield "gather__axis", mb.gather(x=v.x, indices=v.j, axis=-1, **checked), a.x[:, :, a.j]
    yield "gather__one", mb.gather(x=v.x, indices=np.int32(-2), axis=1, **checked), a.x[:, -2]
    shared = np.stack([a.x[at][place] for at, place in enumerate([[1, 3], [0, 2], [2, 2]])])
    flat = mb.squeeze(x=v.deep, axes=[-1])
    yield "gather__batch", mb.gather(x=v.x, indices=flat, axis=1, batch_dims=1, **checked), shared
    between = np.stack([a.x[at][:, place] for at, place in enumerate([[1, 3], [0, 2], [2, 2]])])
    yield "gather__between", mb.gather(x=v.x, indices=flat, axis=2, batch_dims=1, **checked), between
    index = np.broadcast_to(a.deep, (3, 2, 5)).astype(np.int32)
    along = mb.gather_along_axis(x=v.x, indices=np.ascontiguousarray(index), axis=-2, **checked)
    yield "gather_along_axis", along, np.take_along_axis(a.x, index, 1)
    yield "gather_nd", mb.gather_nd(x=v.x, indices=v.pairs, **checked), a.x[[0, 2], [3, 1]]
    yield "gather_nd__batch", mb.gather_nd(x=v.x, indices=v.deep, batch_dims=1, **checked), shared
    for mode in ("update", "add", "sub", "mul", "div", "max", "min"):
        given = mb.scatter_nd(data=v.x, indices=v.pairs, updates=v.cells, mode=mode, **checked)
        yield f"scatter_nd__{mode}", given, scattered(a.x, ([0, 2], [3, 1]), a.cells, mode)
    yield "scatter", mb.scatter(data=v.x, indices=v.j, updates=v.rows, axis=0, mode="add", **checked), scattered(a.x, ([1, 2],), a.rows, "add")
    rows = a.rows.transpose(1, 0, 2)[:3]
    moved = mb.slice_by_index(x=mb.transpose(x=v.rows, perm=[1, 0, 2]), begin=[0, 0, 0], end=[3, 2, 5])
    yield "scatter__axis", mb.scatter(data=v.x, indices=ints(3, 0), updates=moved, axis=-2, mode="update", **checked), scattered(a.x, (slice(None), [3, 0]), rows, "update")
    single = mb.scatter_along_axis(data=v.x, indices=np.ascontiguousarray(index), updates=v.same, axis=1, mode="add", **checked)
    grid = np.meshgrid(*(np.arange(size) for size in index.shape), indexing="ij")
    yield "scatter_along_axis", single, scattered(a.x, (grid[0], index, grid[2]), a.same, "add")


def make() -> None:
    fixture = Fixture("operations")
    programs.write(fixture)
    fixture.write()


FAMILIES = {"operations": make}
