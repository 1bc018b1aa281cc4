"""PyTorch's gated recurrent units, which the converter writes as a loop over the steps."""

from __future__ import annotations

import coremltools as ct
import numpy as np
import torch
from torch import nn

from common import Fixture, number
from programs import noise

STEPS, WIDTH, HIDDEN = 5, 6, 4


class Both(nn.Module):
    """Two layers in both directions, from steps to all states and the last ones."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(WIDTH, HIDDEN, num_layers=2, bidirectional=True, batch_first=True)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        every, last = self.gru(x)
        return every, last


def make() -> None:
    fixture = Fixture("gru")
    torch.manual_seed(number(""))
    model = Both().eval()
    rows = noise("steps", 1, STEPS, WIDTH).astype(np.float32)
    traced = torch.jit.trace(model, torch.from_numpy(rows))
    package = ct.convert(
        traced,
        inputs=[ct.TensorType(name="x", shape=rows.shape)],
        outputs=[ct.TensorType(name="every"), ct.TensorType(name="last")],
        convert_to="mlprogram",
        minimum_deployment_target=ct.target.iOS16,
        compute_precision=ct.precision.FLOAT32,
        skip_model_load=True,
    )
    package.save(str(fixture.model / "Model.mlpackage"))
    fixture.adopt(fixture.model / "Model.mlpackage", text=False)
    with torch.no_grad():
        every, last = (tensor.numpy() for tensor in model(torch.from_numpy(rows)))
    fixture.case("steps", [({"x": rows}, {"every": every, "last": last})])
    fixture.write()


FAMILIES = {"gru": make}
