"""The networks that `tutti train` calls mlp, cnn and gpt, in PyTorch, with the names that it gives their
tensors. Used by train.py and pytorch.py."""
import torch
import torch.nn as nn
import torch.nn.functional as F


def mlp():
    return nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))


def cnn():
    return nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3), nn.ReLU(),
                         nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64 * 25, 128), nn.ReLU(), nn.Linear(128, 10))


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.l1, self.l2 = heads, nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.o = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.f1, self.f2 = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.l1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d))
        return x + self.f2(F.gelu(self.f1(self.l2(x))))


class GPT(nn.Module):
    def __init__(self, layers, dim, heads, context, vocabulary=256):
        super().__init__()
        self.e, self.pe = nn.Embedding(vocabulary, dim), nn.Embedding(context, dim)
        self.b = nn.ModuleList(Block(dim, heads) for _ in range(layers))
        self.ln, self.head = nn.LayerNorm(dim), nn.Linear(dim, vocabulary, bias=False)
        self.register_buffer("places", torch.arange(context))
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, 0, 0.02)

    def forward(self, tokens):
        x = self.e(tokens) + self.pe(self.places)
        for block in self.b:
            x = block(x)
        return self.head(self.ln(x))
