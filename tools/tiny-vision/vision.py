"""The two networks: llama.cpp's `clip` tower with an `mlp` projector, and a `llama` text model."""

import pathlib
import sys

import torch
import torch.nn.functional as F
from torch import nn

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "tiny-model"))
import model as llama  # noqa: E402

# The other model's classes read their sizes from their module, so these are set there.
llama.VOCAB, llama.WIDTH, llama.LAYERS, llama.HEADS, llama.KV_HEADS, llama.FFN = 512, 96, 3, 3, 3, 192
llama.HEAD = llama.WIDTH // llama.HEADS
llama.CONTEXT = 2048

IMAGE, PATCH, WIDTH, HEADS, LAYERS, FFN, EPS = 48, 8, 64, 4, 2, 256, 1e-5
TOKENS = (IMAGE // PATCH) ** 2  # embeddings of a picture
gelu = lambda x: F.gelu(x, approximate="tanh")  # what ggml_gelu computes


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(WIDTH, EPS), nn.LayerNorm(WIDTH, EPS)
        self.attn_q, self.attn_k, self.attn_v, self.attn_out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.ffn_up, self.ffn_down = nn.Linear(WIDTH, FFN), nn.Linear(FFN, WIDTH)

    def forward(self, x):
        b, t, _ = x.shape
        split = lambda y: y.view(b, t, HEADS, WIDTH // HEADS).transpose(1, 2)
        h = self.ln1(x)
        h = F.scaled_dot_product_attention(split(self.attn_q(h)), split(self.attn_k(h)), split(self.attn_v(h)))
        x = x + self.attn_out(h.transpose(1, 2).reshape(b, t, WIDTH))
        return x + self.ffn_down(gelu(self.ffn_up(self.ln2(x))))


class Vision(nn.Module):
    """With the prefix `v.`, parameter names are GGUF's tensor names; those of `mm` have none."""

    def __init__(self):
        super().__init__()
        self.patch_embd = nn.Linear(3 * PATCH * PATCH, WIDTH)
        self.position_embd = nn.Embedding(TOKENS, WIDTH)
        self.pre_ln, self.post_ln = nn.LayerNorm(WIDTH, EPS), nn.LayerNorm(WIDTH, EPS)
        self.blk = nn.ModuleList(Block() for _ in range(LAYERS))
        self.mm = nn.ModuleDict({"0": nn.Linear(WIDTH, llama.WIDTH), "2": nn.Linear(llama.WIDTH, llama.WIDTH)})
        nn.init.normal_(self.position_embd.weight, std=0.1)
        for name, p in self.named_parameters():
            if name.endswith(("attn_out.weight", "ffn_down.weight")):
                nn.init.zeros_(p)  # each block starts as the identity
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def forward(self, pictures):
        """`pictures`: bytes, (count, IMAGE, IMAGE, 3). Mean and deviation are 0.5."""
        side = IMAGE // PATCH
        x = pictures.float().div(127.5).sub(1).permute(0, 3, 1, 2)
        x = x.unfold(2, PATCH, PATCH).unfold(3, PATCH, PATCH)  # count, channel, row, column, y, x
        x = x.permute(0, 2, 3, 1, 4, 5).reshape(-1, side * side, 3 * PATCH * PATCH)
        x = self.pre_ln(self.patch_embd(x) + self.position_embd.weight)
        for block in self.blk:
            x = block(x)
        return self.mm["2"](gelu(self.mm["0"](self.post_ln(x))))


class Text(llama.Llama):
    def hidden(self, x):
        """From embeddings, of tokens or of pictures."""
        t = x.shape[1]
        for block in self.blk:
            x = block(x, self.cos[:t], self.sin[:t])
        return self.output_norm(x)
