"""Operations that are layers, against numpy and PyTorch."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from coremltools.converters.mil.mil import Builder as mb

from programs import Outcomes, group, ints, noise

T = torch.from_numpy
PLANE = noise("plane", 2, 4, 7, 6)
ROW = noise("row", 2, 4, 9)


def same(x: np.ndarray, kernel: list[int], strides: list[int], dilations: list[int], lower: bool = False, fill: float = 0) -> torch.Tensor:
    """With edges so wide that only the strides make it smaller."""
    pads: list[int] = []
    for size, width, stride, dilation in zip(x.shape[2:], kernel, strides, dilations):
        surplus = max(0, (-(-size // stride) - 1) * stride + (width - 1) * dilation + 1 - size)
        less, more = surplus // 2, surplus - surplus // 2
        pads = [more, less, *pads] if lower else [less, more, *pads]
    return F.pad(T(x), pads, value=fill)


@group(x=PLANE, row=ROW, cube=noise("cube", 1, 2, 4, 4, 5), late=noise("late", 3, 4, 2, 2))
def convolutions(v, a) -> Outcomes:
    w, b = noise("conv", 6, 4, 3, 2) / 4, noise("conv bias", 6)
    grouped, deep = noise("grouped", 6, 2, 3, 3) / 4, noise("deep", 3, 2, 2, 2, 2) / 4
    line = noise("line conv", 5, 4, 3) / 3
    x = T(a.x)
    yield "conv", mb.conv(x=v.x, weight=w, bias=b), F.conv2d(x, T(w), T(b)).numpy()
    yield "conv__strides", mb.conv(x=v.x, weight=w, strides=[2, 3]), F.conv2d(x, T(w), stride=(2, 3)).numpy()
    given = mb.conv(x=v.x, weight=w, bias=b, strides=[2, 1], dilations=[1, 2], pad_type="same")
    yield "conv__same", given, F.conv2d(same(a.x, [3, 2], [2, 1], [1, 2]), T(w), T(b), stride=(2, 1), dilation=(1, 2)).numpy()
    given = mb.conv(x=v.x, weight=w, pad_type="same_lower", strides=[2, 2])
    yield "conv__same_lower", given, F.conv2d(same(a.x, [3, 2], [2, 2], [1, 1], lower=True), T(w), stride=2).numpy()
    given = mb.conv(x=v.x, weight=w, pad_type="custom", pad=[2, 0, 1, 3], dilations=[2, 1])
    yield "conv__custom", given, F.conv2d(F.pad(x, (1, 3, 2, 0)), T(w), dilation=(2, 1)).numpy()
    yield "conv__groups", mb.conv(x=v.x, weight=grouped, groups=2), F.conv2d(x, T(grouped), groups=2).numpy()
    yield "conv__line", mb.conv(x=v.row, weight=line, pad_type="custom", pad=[1, 2]), F.conv1d(F.pad(T(a.row), (1, 2)), T(line)).numpy()
    yield "conv__cube", mb.conv(x=v.cube, weight=deep), F.conv3d(T(a.cube), T(deep)).numpy()
    yield "conv__late", mb.conv(x=v.x, weight=v.late), F.conv2d(x, T(a.late)).numpy()
    turned, bias = noise("transposed", 4, 3, 3, 2) / 4, noise("transposed bias", 3)
    full = F.conv_transpose2d(x, T(turned), T(bias), stride=(2, 3)).numpy()
    yield "conv_transpose", mb.conv_transpose(x=v.x, weight=turned, bias=bias, strides=[2, 3]), full
    yield "conv_transpose__custom", mb.conv_transpose(x=v.x, weight=turned, bias=bias, strides=[2, 3], pad_type="custom", pad=[1, 0, 2, 1]), full[:, :, 1:, 2:-1]
    shaped = mb.conv_transpose(x=v.x, weight=turned, bias=bias, strides=[2, 2], pad_type="custom", pad=[1, 1, 0, 0], output_shape=[2, 3, 14, 12])
    wanted = F.conv_transpose2d(x, T(turned), T(bias), stride=2, padding=(1, 0), output_padding=(1, 0)).numpy()
    yield "conv_transpose__shape", shaped, wanted
    few = noise("transposed groups", 4, 2, 3, 3) / 4
    given = mb.conv_transpose(x=v.x, weight=few, strides=[2, 2], groups=2, dilations=[1, 2])
    yield "conv_transpose__groups", given, F.conv_transpose2d(x, T(few), stride=2, groups=2, dilation=(1, 2)).numpy()
    given = mb.conv_transpose(x=v.x, weight=turned, strides=[2, 2], pad_type="same")
    full = F.conv_transpose2d(x, T(turned), stride=2).numpy()
    yield "conv_transpose__same", given, full[:, :, :14, :12]
    yield "conv_transpose__line", mb.conv_transpose(x=v.row, weight=noise("tl", 4, 2, 3)), F.conv_transpose1d(T(a.row), T(noise("tl", 4, 2, 3))).numpy()


@group(x=PLANE, row=ROW)
def pools(v, a) -> Outcomes:
    x, row = T(a.x), T(a.row)
    yield "max_pool", mb.max_pool(x=v.x, kernel_sizes=[3, 2], strides=[2, 2], pad_type="valid"), F.max_pool2d(x, (3, 2), 2).numpy()
    given = mb.max_pool(x=v.x, kernel_sizes=[3, 2], strides=[2, 2], pad_type="same")
    yield "max_pool__same", given, F.max_pool2d(same(a.x, [3, 2], [2, 2], [1, 1], fill=-np.inf), (3, 2), 2).numpy()
    given = mb.max_pool(x=v.x, kernel_sizes=[2, 2], strides=[2, 2], pad_type="custom", pad=[1, 1, 1, 1], ceil_mode=True)
    yield "max_pool__ceil", given, F.max_pool2d(x, 2, 2, padding=1, ceil_mode=True).numpy()
    yield "max_pool__line", mb.max_pool(x=v.row, kernel_sizes=[3], strides=[2], pad_type="valid"), F.max_pool1d(row, 3, 2).numpy()
    yield "avg_pool", mb.avg_pool(x=v.x, kernel_sizes=[3, 3], strides=[2, 1], pad_type="valid"), F.avg_pool2d(x, 3, (2, 1)).numpy()
    padded = {"kernel_sizes": [3, 3], "strides": [2, 2], "pad_type": "custom", "pad": [1, 1, 1, 1]}
    yield "avg_pool__edges", mb.avg_pool(x=v.x, **padded), F.avg_pool2d(x, 3, 2, 1).numpy()
    yield "avg_pool__inside", mb.avg_pool(x=v.x, exclude_padding_from_average=True, **padded), F.avg_pool2d(x, 3, 2, 1, count_include_pad=False).numpy()
    given = mb.avg_pool(x=v.x, kernel_sizes=[2, 2], strides=[2, 2], pad_type="same", exclude_padding_from_average=True)
    yield "avg_pool__same", given, F.avg_pool2d(x, 2, 2, ceil_mode=True, count_include_pad=False).numpy()
    yield "avg_pool__line", mb.avg_pool(x=v.row, kernel_sizes=[4], strides=[1], pad_type="valid"), F.avg_pool1d(row, 4, 1).numpy()
    yield "l2_pool", mb.l2_pool(x=v.x, kernel_sizes=[3, 2], strides=[2, 2], pad_type="valid"), F.lp_pool2d(x.abs(), 2, (3, 2), 2).numpy()


@group(x=PLANE, row=ROW, y=noise("normed", 2, 3, 4))
def normalisations(v, a) -> Outcomes:
    x, row, y = T(a.x), T(a.row), T(a.y)
    gamma, beta = 1 + noise("gamma", 4) / 4, noise("beta", 4)
    mean, spread = noise("mean", 4) / 4, np.abs(noise("variance", 4)) + 0.25
    yield "batch_norm", mb.batch_norm(x=v.x, mean=mean, variance=spread, gamma=gamma, beta=beta, epsilon=1e-3), F.batch_norm(x, T(mean), T(spread), T(gamma), T(beta), eps=1e-3).numpy()
    yield "batch_norm__line", mb.batch_norm(x=v.row, mean=mean, variance=spread), F.batch_norm(row, T(mean), T(spread)).numpy()
    yield "instance_norm", mb.instance_norm(x=v.x, gamma=gamma, beta=beta, epsilon=1e-4), F.instance_norm(x, weight=T(gamma), bias=T(beta), eps=1e-4).numpy()
    yield "instance_norm__line", mb.instance_norm(x=v.row), F.instance_norm(row).numpy()
    yield "l2_norm", mb.l2_norm(x=v.x, epsilon=1e-3), a.x / np.sqrt((a.x**2).sum((1, 2, 3), keepdims=True) + 1e-3)
    yield "l2_norm__three", mb.l2_norm(x=v.y), a.y / np.sqrt((a.y**2).sum() + 1e-6)
    yield "layer_norm", mb.layer_norm(x=v.y, axes=[-1], gamma=gamma, beta=beta, epsilon=1e-5), F.layer_norm(y, (4,), T(gamma), T(beta)).numpy()
    yield "layer_norm__plain", mb.layer_norm(x=v.y, axes=[1, 2], epsilon=1e-3), F.layer_norm(y, (3, 4), eps=1e-3).numpy()
    channels = F.layer_norm(y.transpose(1, 2), (3,), T(gamma[:3]), T(beta[:3]), 1e-5).transpose(1, 2).numpy()
    yield "layer_norm__middle", mb.layer_norm(x=v.y, axes=[1], gamma=gamma[:3], beta=beta[:3], epsilon=1e-5), channels
    yield "local_response_norm", mb.local_response_norm(x=v.x, size=3, alpha=0.3, beta=0.6, k=1.5), F.local_response_norm(x, 3, 0.3, 0.6, 1.5).numpy()


@group("iOS18", x=noise("left", 2, 3, 4), y=noise("right", 2, 4, 5), q=noise("q", 1, 2, 3, 4), k=noise("k", 1, 2, 5, 4), val=noise("v", 1, 2, 5, 6), mask=noise("mask", 3, 5), n=ints([1, 2], [3, -4]))
def products(v, a) -> Outcomes:
    weight, bias = noise("linear", 6, 4) / 2, noise("linear bias", 6)
    yield "linear", mb.linear(x=v.x, weight=weight, bias=bias), a.x @ weight.T + bias
    yield "linear__plain", mb.linear(x=v.x, weight=weight), a.x @ weight.T
    yield "matmul", mb.matmul(x=v.x, y=v.y), a.x @ a.y
    turned = mb.transpose(x=v.y, perm=[0, 2, 1])
    yield "matmul__turned", mb.matmul(x=v.x, y=turned, transpose_y=True), a.x @ a.y
    yield "matmul__both", mb.matmul(x=v.y, y=v.x, transpose_x=True, transpose_y=True), (a.x @ a.y).transpose(0, 2, 1)
    yield "matmul__constant", mb.matmul(x=v.x, y=weight, transpose_y=True), a.x @ weight.T
    yield "matmul__int", mb.matmul(x=v.n, y=v.n), a.n @ a.n
    left, right = noise("e1", 2, 3, 4, 5), noise("e2", 2, 5, 4, 3)
    both = (mb.mul(x=left, y=mb.reduce_max(x=v.x)), right)
    yield "einsum", mb.einsum(values=both, equation="nchw,nwhu->nchu"), np.einsum("nchw,nwhu->nchu", left * a.x.max(), right)
    q, k, value = T(a.q), T(a.k), T(a.val)
    yield "scaled_dot_product_attention", mb.scaled_dot_product_attention(query=v.q, key=v.k, value=v.val), F.scaled_dot_product_attention(q, k, value).numpy()
    given = mb.scaled_dot_product_attention(query=v.q, key=v.k, value=v.val, attn_mask=v.mask)
    yield "scaled_dot_product_attention__mask", given, F.scaled_dot_product_attention(q, k, value, attn_mask=T(a.mask)).numpy()
    given = mb.scaled_dot_product_attention(query=v.q, key=v.k, value=v.val, attn_mask=mb.greater(x=v.mask, y=np.float32(-0.5)))
    yield "scaled_dot_product_attention__flags", given, F.scaled_dot_product_attention(q, k, value, attn_mask=T(a.mask) > -0.5).numpy()


STEPS, BATCH, WIDTH, HIDDEN = 4, 2, 3, 5
ACTS = {
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
    "hard_sigmoid": lambda x: np.clip(0.2 * x + 0.5, 0, 1),
    "linear": lambda x: x,
}


def lstm(x, h, c, wx, wh, b, p=None, acts=("sigmoid", "tanh", "tanh")):
    """All steps of h, and the last h and c; gates lie in the order input, forget, output, cell."""
    gate, cell, out = (ACTS[name] for name in acts)
    p = np.zeros(3 * HIDDEN) if p is None else p
    every = []
    for step in x:
        i, f, o, g = np.split(step @ wx.T + h @ wh.T + b, 4, -1)
        pi, pf, po = np.split(p, 3)
        i, f, g = gate(i + pi * c), gate(f + pf * c), cell(g)
        c = f * c + i * g
        h = gate(o + po * c) * out(c)
        every.append(h)
    return np.stack(every), h, c


def gru(x, h, wx, wh, b, after=False, bx=0.0):
    """Gates lie in the order reset, output, update. `after` resets the product, not the state."""
    sigmoid, every = ACTS["sigmoid"], []
    bx = np.zeros(3 * HIDDEN) + bx
    (wr, wo, wz), (rr, ro, rz), (br, bo, bz), (cr, co, cz) = (np.split(each, 3) for each in (wx, wh, b, bx))
    for step in x:
        r = sigmoid(step @ wr.T + cr + h @ rr.T + br)
        z = sigmoid(step @ wz.T + cz + h @ rz.T + bz)
        o = np.tanh(step @ wo.T + co + r * (h @ ro.T + bo)) if after else np.tanh(step @ wo.T + co + (r * h) @ ro.T + bo)
        h = (1 - z) * o + z * h
        every.append(h)
    return np.stack(every), h


@group("iOS18", x=noise("sequence", STEPS, BATCH, WIDTH), h=noise("h", BATCH, HIDDEN), c=noise("c", BATCH, HIDDEN), both=noise("both", BATCH, 2 * HIDDEN))
def recurrence(v, a) -> Outcomes:
    wx, wh, b = noise("wx", 4 * HIDDEN, WIDTH) / 2, noise("wh", 4 * HIDDEN, HIDDEN) / 3, noise("b", 4 * HIDDEN) / 2
    given = {"x": v.x, "initial_h": v.h, "initial_c": v.c, "weight_ih": wx, "weight_hh": wh}
    every, h, c = lstm(a.x, a.h, a.c, wx, wh, b)
    all_steps, last, cell = mb.lstm(**given, bias=b, output_sequence=True)
    yield "lstm", all_steps, every
    yield "lstm__last", last, h
    yield "lstm__cell", cell, c
    yield "lstm__one", mb.lstm(**given, bias=b)[0], every[-1:]
    every, h, c = lstm(a.x, a.h, a.c, wx, wh, np.zeros(4 * HIDDEN))
    yield "lstm__plain", mb.lstm(**given)[1], h
    every, h, c = lstm(a.x[::-1], a.h, a.c, wx, wh, b)
    back = mb.lstm(**given, bias=b, direction="reverse", output_sequence=True)
    yield "lstm__reverse", back[0], every
    yield "lstm__reverse_last", back[1], h
    peephole = noise("peephole", 3 * HIDDEN) / 2
    every, h, c = lstm(a.x, a.h, a.c, wx, wh, b, peephole)
    yield "lstm__peephole", mb.lstm(**given, bias=b, peephole=peephole, output_sequence=True)[0], every
    acts = ("hard_sigmoid", "relu", "linear")
    every, h, c = lstm(a.x, a.h, a.c, wx, wh, b, acts=acts)
    other = mb.lstm(**given, bias=b, recurrent_activation=acts[0], cell_activation=acts[1], activation=acts[2], output_sequence=True)
    yield "lstm__activations", other[0], every
    layer = torch.nn.LSTM(WIDTH, HIDDEN, bidirectional=True)
    order = lambda t: torch.cat([t[:HIDDEN], t[HIDDEN:2 * HIDDEN], t[3 * HIDDEN:], t[2 * HIDDEN:3 * HIDDEN]])  # noqa: E731
    parts = {name: T(noise(name, *value.shape)) / 3 for name, value in layer.state_dict().items()}
    layer.load_state_dict(parts)
    halves = lambda array: torch.stack(T(array).split(HIDDEN, -1))  # noqa: E731
    with torch.no_grad():
        every, (h, c) = layer(T(a.x), (halves(a.both), halves(a.both) / 2))
    two = {"weight_ih": "weight_ih_l0", "weight_hh": "weight_hh_l0", "weight_ih_back": "weight_ih_l0_reverse", "weight_hh_back": "weight_hh_l0_reverse"}
    two = {key: order(parts[name]).numpy() for key, name in two.items()}
    for key, end in (("bias", ""), ("bias_back", "_reverse")):
        two[key] = order(parts[f"bias_ih_l0{end}"] + parts[f"bias_hh_l0{end}"]).numpy()
    halved = mb.mul(x=v.both, y=np.float32(0.5))
    both = mb.lstm(x=v.x, initial_h=v.both, initial_c=halved, direction="bidirectional", output_sequence=True, **two)
    yield "lstm__both", both[0], every.numpy()
    yield "lstm__both_last", both[1], torch.cat(list(h), -1).numpy()
    yield "lstm__both_cell", both[2], torch.cat(list(c), -1).numpy()
    wx, wh, b = noise("gx", 3 * HIDDEN, WIDTH) / 2, noise("gh", 3 * HIDDEN, HIDDEN) / 2, noise("gb", 3 * HIDDEN) / 2
    given = {"x": v.x, "initial_h": v.h, "weight_ih": wx, "weight_hh": wh, "bias": b}
    every, h = gru(a.x, a.h, wx, wh, b)
    all_steps, last = mb.gru(**given, output_sequence=True)
    yield "gru", all_steps, every
    yield "gru__last", last, h
    every, h = gru(a.x[::-1], a.h, wx, wh, b)
    yield "gru__reverse", mb.gru(**given, direction="reverse", output_sequence=True)[0], every
    bx = noise("gbx", 3 * HIDDEN) / 2
    every, h = gru(a.x, a.h, wx, wh, b, True, bx)
    yield "gru__after", mb.gru(**given, reset_after=True, input_bias=bx, output_sequence=True)[0], every
    wx, wh, b = noise("rx", HIDDEN, WIDTH) / 2, noise("rh", HIDDEN, HIDDEN) / 2, noise("rb", HIDDEN) / 2
    given = {"x": v.x, "initial_h": v.h, "weight_ih": wx, "weight_hh": wh, "bias": b}
    for label, steps, extra, act in (("rnn", a.x, {}, "tanh"), ("rnn__relu", a.x, {"activation": "relu"}, "relu"), ("rnn__reverse", a.x[::-1], {"direction": "reverse"}, "tanh")):
        every, state = [], a.h
        for step in steps:
            state = ACTS[act](step @ wx.T + state @ wh.T + b)
            every.append(state)
        yield label, mb.rnn(**given, output_sequence=True, **extra)[0], np.stack(every)


def spots(from_size: int, to: int, mode: str) -> np.ndarray:
    """Where each place of a result lies in what is resized, as the operations' documentation has it."""
    at = np.arange(to, dtype=np.float64)
    if mode == "UNALIGN_CORNERS":
        step = from_size / to
        place = at * step + 0.5 * step - 0.5
    elif mode == "OFFSET_CORNERS":
        step = max(1, from_size - 1) / to
        place = at * step + 0.5 * step
    elif mode == "DEFAULT":
        place = at * from_size / to
    elif to == 1:
        place = np.array([(from_size - 1) / 2 if mode == "ALIGN_CORNERS" else 0.0])
    else:
        place = at * (from_size - 1) / (to - 1)
    return place.clip(0, from_size - 1)


def sampled(x: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Between neighbours, by distance."""

    def along(array: np.ndarray, places: np.ndarray, axis: int) -> np.ndarray:
        low = np.floor(places).astype(int)
        high = np.minimum(low + 1, array.shape[axis] - 1)
        shape = [1] * array.ndim
        shape[axis] = -1
        share = (places - low).reshape(shape)
        return array.take(low, axis) * (1 - share) + array.take(high, axis) * share

    return along(along(x.astype(np.float64), rows, -2), columns, -1)


@group(x=noise("small", 1, 2, 4, 5), shape=ints(6, 9), spots=np.clip(noise("spots", 1, 3, 4, 2) * 0.7, -1.4, 1.4), pixels=np.abs(noise("pixels", 1, 3, 4, 2)) * 1.5, boxes=np.array([[0.5, 0.25, 2.5, 3.0], [1, 1, 3, 4]], np.float32), turn=np.array([[0.8, 0.2, 0.1, -0.3, 0.9, 0.05]], np.float32))
def pictures(v, a) -> Outcomes:
    x, grid = T(a.x), T(a.spots)
    modes = ("STRICT_ALIGN_CORNERS", "ALIGN_CORNERS", "DEFAULT", "UNALIGN_CORNERS", "OFFSET_CORNERS")
    for mode in modes:
        given = mb.resize_bilinear(x=v.x, target_size_height=7, target_size_width=3, sampling_mode=mode)
        yield f"resize_bilinear__{mode.lower()}", given, sampled(a.x, spots(4, 7, mode), spots(5, 3, mode))
    given = mb.resize_bilinear(x=v.x, target_size_height=1, target_size_width=8, sampling_mode="ALIGN_CORNERS")
    yield "resize_bilinear__one", given, sampled(a.x, spots(4, 1, "ALIGN_CORNERS"), spots(5, 8, "ALIGN_CORNERS"))
    nearest = lambda height, width: a.x[:, :, np.arange(height) * 4 // height][..., np.arange(width) * 5 // width]  # noqa: E731
    yield "resize_nearest_neighbor", mb.resize_nearest_neighbor(x=v.x, target_size_height=8, target_size_width=3), nearest(8, 3)
    yield "upsample_nearest_neighbor", mb.upsample_nearest_neighbor(x=v.x, scale_factor_height=2, scale_factor_width=3), nearest(8, 15)
    for label, corners in (("upsample_bilinear", False), ("upsample_bilinear__corners", True)):
        given = mb.upsample_bilinear(x=v.x, scale_factor_height=2.0, scale_factor_width=1.5, align_corners=corners)
        yield label, given, F.interpolate(x, (8, 7), mode="bilinear", align_corners=corners).numpy()
    given = mb.upsample_bilinear(x=v.x, scale_factor_height=2, scale_factor_width=3, align_corners=False, half_pixel_centers=False)
    yield "upsample_bilinear__edges", given, sampled(a.x, spots(4, 8, "DEFAULT"), spots(5, 15, "DEFAULT"))
    for mode in ("UNALIGN_CORNERS", "STRICT_ALIGN_CORNERS"):
        given = mb.resize(x=v.x, shape=[0, 9], resized_dims=np.uint32(2), sampling_mode=mode)
        yield f"resize__{mode.lower()}", given, sampled(a.x, spots(4, 4, mode), spots(5, 9, mode))
    yield "resize__nearest", mb.resize(x=v.x, shape=[1, 8, 5], resized_dims=np.uint32(2), interpolation_mode="NEAREST_NEIGHBOR"), nearest(8, 5)
    given = mb.resize(x=v.x, shape=v.shape, resized_dims=np.uint32(2), sampling_mode="UNALIGN_CORNERS")
    yield "resize__late", given, sampled(a.x, spots(4, 6, "UNALIGN_CORNERS"), spots(5, 9, "UNALIGN_CORNERS"))

    def resample(coordinates, how="bilinear", edge="constant", mode="normalized_minus_one_to_one", corners=True, fill=0.0):
        return mb.resample(x=v.x, coordinates=coordinates, sampling_mode=how, padding_mode=edge, padding_value=np.float32(fill), coordinates_mode=mode, align_corners=corners)

    def sample(places, how="bilinear", edge="zeros", corners=True):
        return F.grid_sample(x, places, how, edge, corners).numpy()

    yield "resample", resample(v.spots), sample(grid)
    yield "resample__edges", resample(v.spots, corners=False), sample(grid, corners=False)
    yield "resample__border", resample(v.spots, edge="border"), sample(grid, edge="border")
    yield "resample__reflection", resample(v.spots, edge="reflection"), sample(grid, edge="reflection")
    yield "resample__symmetric", resample(v.spots, edge="symmetric", corners=False), sample(grid, edge="reflection", corners=False)
    yield "resample__nearest", resample(v.spots, how="nearest"), sample(grid, how="nearest")
    yield "resample__fill", resample(v.spots, fill=0.5), F.grid_sample(x - 0.5, grid, align_corners=True).numpy() + 0.5
    halfway = mb.mul(x=mb.add(x=v.spots, y=1.0), y=0.5)
    yield "resample__from_zero", resample(halfway, mode="normalized_zero_to_one"), sample(grid)
    pixels = 2 * T(a.pixels) / torch.tensor([4.0, 3.0]) - 1
    yield "resample__pixels", resample(v.pixels, mode="unnormalized"), sample(pixels)
    given = mb.affine(x=v.x, transform_matrix=v.turn, output_height=3, output_width=6, sampling_mode="bilinear", padding_mode="constant", padding_value=np.float32(0), coordinates_mode="normalized_minus_one_to_one", align_corners=True)
    yield "affine", given, F.grid_sample(x, F.affine_grid(T(a.turn).reshape(1, 2, 3), (1, 2, 3, 6), align_corners=True), align_corners=True).numpy()

    def cropped(height, width, mode, scale=(1.0, 1.0), boxes=None):
        parts = []
        for top, left, bottom, right in a.boxes if boxes is None else boxes:
            top, bottom, left, right = top * scale[0], bottom * scale[0], left * scale[1], right * scale[1]
            inner = lambda begin, end, to: begin + spots(2, to, mode) * (end - begin)  # noqa: E731
            parts.append(sampled(a.x, inner(top, bottom, height), inner(left, right, width))[0])
        return np.stack(parts)

    once = {"x": v.x, "boxes": v.boxes, "box_indices": ints(0, 0)}
    yield "crop_resize", mb.crop_resize(**once, target_height=3, target_width=4, sampling_mode="ALIGN_CORNERS"), cropped(3, 4, "ALIGN_CORNERS")
    small = mb.mul(x=v.boxes, y=np.float32(0.25))
    given = mb.crop_resize(x=v.x, boxes=small, box_indices=ints(0, 0), target_height=2, target_width=2, normalized_coordinates=True, sampling_mode="STRICT_ALIGN_CORNERS")
    yield "crop_resize__shares", given, cropped(2, 2, "STRICT_ALIGN_CORNERS", (0.75, 1.0))
    swapped = mb.gather(x=v.boxes, indices=ints(1, 0, 3, 2), axis=1)
    given = mb.crop_resize(x=v.x, boxes=swapped, box_indices=ints(0, 0), target_height=3, target_width=1, box_coordinate_mode="CORNERS_WIDTH_FIRST", sampling_mode="ALIGN_CORNERS", spatial_scale=0.5)
    yield "crop_resize__scaled", given, cropped(3, 1, "ALIGN_CORNERS", (0.5, 0.5))
    centres = np.array([[1.5, 2.0, 1.0, 3.0], [2.0, 1.5, 2.0, 1.0]], np.float32)
    given = mb.crop_resize(x=v.x, boxes=centres, box_indices=ints(0, 0), target_height=2, target_width=3, box_coordinate_mode="CENTER_SIZE_HEIGHT_FIRST", sampling_mode="STRICT_ALIGN_CORNERS")
    ends = np.stack([centres[:, 0] - centres[:, 2] / 2, centres[:, 1] - centres[:, 3] / 2, centres[:, 0] + centres[:, 2] / 2, centres[:, 1] + centres[:, 3] / 2], 1)
    yield "crop_resize__centres", given, cropped(2, 3, "STRICT_ALIGN_CORNERS", boxes=ends)


@group("iOS15", x=noise("old", 2, 2, 4, 5), boxes=np.array([0, 0.5, 0.25, 2.5, 3.0, 1, 1, 1, 3, 4], np.float32).reshape(2, 1, 5, 1, 1))
def older(v, a) -> Outcomes:
    parts = [sampled(a.x[int(b)], np.linspace(t, e, 3), np.linspace(s, r, 2)) for b, t, s, e, r in a.boxes.reshape(2, 5)]
    yield "crop_resize__indexed", mb.crop_resize(x=v.x, roi=v.boxes, target_height=3, target_width=2, sampling_mode="STRICT_ALIGN_CORNERS"), np.stack(parts)[:, None]
    roi = np.ascontiguousarray(a.boxes[:, :, 1:])
    parts = [sampled(a.x, np.linspace(t, e, 3), np.linspace(s, r, 2)) for t, s, e, r in roi.reshape(2, 4)]
    yield "crop_resize__every", mb.crop_resize(x=v.x, roi=roi, target_height=3, target_width=2, sampling_mode="STRICT_ALIGN_CORNERS"), np.stack(parts)
    yield "gather__older", mb.gather(x=v.x, indices=ints(1, -1), axis=2), a.x[:, :, [1, -1]]
    yield "reduce_sum__older", mb.reduce_sum(x=v.x, axes=[-1, 1]), a.x.sum((1, 3))


@group(x=noise("quantised", 2, 3, 4), n=ints(3))  # words: ok
def quantisation(v, a) -> Outcomes:
    scale, zero = np.float32(0.02), np.int8(5)
    codes = np.clip(np.round(a.x / scale) + 5, -128, 127)
    given = mb.quantize(input=v.x, scale=scale, zero_point=zero, output_dtype="int8")
    yield "quantize", given, codes.astype(int)
    yield "dequantize", mb.dequantize(input=given, scale=scale, zero_point=zero), (codes - 5) * scale
    scales, zeros = np.array([0.01, 0.05, 0.02], np.float32), np.array([100, 128, 140], np.uint8)
    shaped = lambda row: row.reshape(1, 3, 1).astype(np.float32)  # noqa: E731
    codes = np.clip(np.round(a.x / shaped(scales)) + shaped(zeros), 0, 255)
    given = mb.quantize(input=v.x, scale=scales, zero_point=zeros, axis=1, output_dtype="uint8")
    yield "quantize__channels", given, codes.astype(int)
    yield "dequantize__channels", mb.dequantize(input=given, scale=scales, zero_point=zeros, axis=1), (codes - shaped(zeros)) * shaped(scales)
    codes = np.clip(np.round(a.x / shaped(scales)), -128, 127)
    yield "quantize__plain", mb.quantize(input=v.x, scale=scales, axis=-2, output_dtype="int8"), codes.astype(int)


@group(x=noise("branches", 3), n=ints(3))
def control(v, a) -> Outcomes:
    one = mb.squeeze(x=v.n, axes=[0])
    is_many, is_few = mb.greater(x=one, y=2), mb.less(x=one, y=2)
    for label, which, wanted in (("cond", is_many, a.x * 2 + 1), ("cond__other", is_few, a.x - 1)):
        yield label, mb.cond(pred=which, _true_fn=lambda: mb.add(x=mb.mul(x=v.x, y=2.0), y=1.0), _false_fn=lambda: mb.sub(x=v.x, y=1.0)), wanted
    value, count = mb.while_loop(
        _cond=lambda x, i: mb.less(x=i, y=one),
        _body=lambda x, i: (mb.mul(x=x, y=2.0), mb.add(x=i, y=1)),
        loop_vars=(v.x, np.int32(0)),
    )
    yield "while_loop", value, a.x * 8
    yield "while_loop__turns", count, np.array(3)
    never = mb.while_loop(_cond=lambda x, i: mb.greater(x=i, y=one), _body=lambda x, i: (mb.add(x=x, y=1.0), mb.add(x=i, y=1)), loop_vars=(v.x, np.int32(0)))
    yield "while_loop__never", never[0], a.x


def overlap(a: np.ndarray, b: np.ndarray) -> float:
    """What two boxes share of what they cover together; centre, then width and height."""
    sides = [min(a[k] + a[k + 2] / 2, b[k] + b[k + 2] / 2) - max(a[k] - a[k + 2] / 2, b[k] - b[k + 2] / 2) for k in (0, 1)]
    shared = max(sides[0], 0) * max(sides[1], 0)
    return shared / (a[2] * a[3] + b[2] * b[3] - shared)


def kept(boxes: np.ndarray, scores: np.ndarray, share: float, least: float, most: int, by_class: bool) -> list[np.ndarray]:
    """The best box and all that lie little over it, until there are enough; one is always kept."""
    best, kinds, found = scores.max(-1), scores.argmax(-1), []
    for place in np.argsort(-best):
        rivals = [other for other in found if not by_class or kinds[other] == kinds[place]]
        if best[place] > least and all(overlap(boxes[place], boxes[other]) <= share for other in rivals):
            found.append(place)
    found = (found or [best.argmax()])[:most]
    places = np.array(found + [-1] * (most - len(found)))
    there = (places >= 0)[:, None]
    return [np.where(there, boxes[places], 0)[None], np.where(there, scores[places], 0)[None], places[None], np.array([len(found)])]


CORNERS = np.abs(noise("boxes", 1, 12, 4)) * np.array([2, 2, 1.5, 1.5], np.float32) + 0.25
SCORES = noise("scores", 1, 12, 3)


@group("iOS15", boxes=CORNERS, scores=SCORES)
def detection_older(v, a) -> Outcomes:
    ways = (("plain", 0.3, -0.5, 5, False), ("classes", 0.2, 0.25, 4, True), ("few", 0.3, 0.5, 9, False), ("none", 0.3, 9.0, 3, True))
    for label, share, least, most, by_class in ways:
        given = mb.non_maximum_suppression(boxes=v.boxes, scores=v.scores, iou_threshold=share, score_threshold=least, max_boxes=most, per_class_suppression=by_class)
        wanted = kept(a.boxes[0], a.scores[0], share, least, most, by_class)
        for part, got, expected in zip(("boxes", "scores", "places", "count"), given, wanted):
            yield f"non_maximum_suppression__{label}_{part}", got, expected


@group(boxes=np.ascontiguousarray(CORNERS.transpose(0, 2, 1)), scores=np.ascontiguousarray(SCORES.transpose(0, 2, 1)))
def detection(v, a) -> Outcomes:
    for label, most, by_class in (("new", 6, False), ("new_classes", 14, True)):
        given = mb.non_maximum_suppression(boxes=v.boxes, scores=v.scores, iou_threshold=0.2, max_boxes=most, per_class_suppression=by_class)
        wanted = kept(CORNERS[0], SCORES[0], 0.2, -np.inf, most, by_class)
        yield f"non_maximum_suppression__{label}_boxes", given[0], wanted[0].transpose(0, 2, 1)
        yield f"non_maximum_suppression__{label}_scores", given[1], wanted[1].transpose(0, 2, 1)
        yield f"non_maximum_suppression__{label}_places", given[2], wanted[2]


@group("iOS16", x=noise("halved", 2, 4))
def halves(v, a) -> Outcomes:
    weight = noise("half", 3, 4).astype(np.float16)
    yield "constexpr_cast", mb.matmul(x=v.x, y=mb.constexpr_cast(source_val=weight, output_dtype="fp32"), transpose_y=True), a.x @ weight.astype(np.float32).T
    endless = np.array([[0, -np.inf, 1, np.inf]], np.float16)
    masked = mb.mul(x=mb.cast(x=endless, dtype="fp32"), y=mb.sub(x=v.x, y=v.x))
    yield "cast__endless", masked, np.zeros((2, 4))
