"""The llama architecture, as small as it can be written."""

import torch
import torch.nn.functional as F
from torch import nn

VOCAB, WIDTH, LAYERS, HEADS, KV_HEADS, FFN = 4096, 256, 4, 4, 2, 512
HEAD = WIDTH // HEADS
CONTEXT, ROPE_BASE, EPS = 1024, 10000.0, 1e-5


def rope_table(length):
    freq = ROPE_BASE ** (-torch.arange(0, HEAD, 2).float() / HEAD)
    angle = torch.arange(length).float()[:, None] * freq
    return angle.cos(), angle.sin()


def rope(x, cos, sin):
    """Rotates neighbouring pairs (0,1), (2,3), ...: the layout that GGUF's `llama`
    architecture stores, so the exported q and k weights need no permutation."""
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * self.weight


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        matrix = lambda n_in, n_out: nn.Linear(n_in, n_out, bias=False)
        self.attn_norm, self.ffn_norm = Norm(), Norm()
        self.attn_q, self.attn_output = matrix(WIDTH, WIDTH), matrix(WIDTH, WIDTH)
        self.attn_k, self.attn_v = matrix(WIDTH, KV_HEADS * HEAD), matrix(WIDTH, KV_HEADS * HEAD)
        self.ffn_gate, self.ffn_up, self.ffn_down = matrix(WIDTH, FFN), matrix(WIDTH, FFN), matrix(FFN, WIDTH)

    def forward(self, x, cos, sin):
        b, t, _ = x.shape
        h = self.attn_norm(x)
        split = lambda y, heads: y.view(b, t, heads, HEAD).transpose(1, 2)
        q = rope(split(self.attn_q(h), HEADS), cos, sin)
        k = rope(split(self.attn_k(h), KV_HEADS), cos, sin)
        v = split(self.attn_v(h), KV_HEADS)
        k, v = (y.repeat_interleave(HEADS // KV_HEADS, 1) for y in (k, v))
        h = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn_output(h.transpose(1, 2).reshape(b, t, WIDTH))
        h = self.ffn_norm(x)
        return x + self.ffn_down(F.silu(self.ffn_gate(h)) * self.ffn_up(h))


class Llama(nn.Module):
    """Parameter names are GGUF's tensor names."""

    def __init__(self):
        super().__init__()
        self.token_embd = nn.Embedding(VOCAB, WIDTH)
        self.blk = nn.ModuleList(Block() for _ in range(LAYERS))
        self.output_norm = Norm()
        cos, sin = rope_table(CONTEXT)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        for name, p in self.named_parameters():
            if name.endswith(("attn_output.weight", "ffn_down.weight")):
                nn.init.zeros_(p)  # each block starts as the identity
            elif p.ndim == 2:
                nn.init.normal_(p, std=0.02 if "embd" in name else p.shape[1] ** -0.5)

    def forward(self, tokens):
        x, t = self.token_embd(tokens), tokens.shape[1]
        for block in self.blk:
            x = block(x, self.cos[:t], self.sin[:t])
        return self.output_norm(x)

    def logits(self, hidden):
        return hidden @ self.token_embd.weight.T  # tied
