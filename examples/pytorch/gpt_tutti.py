"""A small GPT on the bytes of Moby Dick, trained by several processes with PyTorch's DistributedDataParallel.

    torchrun --nproc-per-node 2 gpt.py [STEPS]
"""
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention
from tutti.torch import prepare

TEXT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../data/moby-dick/moby-dick.txt")
LAYERS, DIM, HEADS, CONTEXT, BATCH = 2, 64, 4, 64, 16


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv, self.out = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.up, self.down = nn.Linear(DIM, 4 * DIM), nn.Linear(4 * DIM, DIM)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, HEADS, DIM // HEADS).permute(2, 0, 3, 1, 4)
        heads = scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(heads.transpose(1, 2).reshape(b, t, DIM))
        return x + self.down(gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.token, self.place = nn.Embedding(256, DIM), nn.Embedding(CONTEXT, DIM)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(DIM), nn.Linear(DIM, 256, bias=False)
        self.head.weight = self.token.weight  # one tensor for both, as in GPT-2
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.token(tokens) + self.place.weight
        return self.head(self.norm(self.blocks(x)))


def loss_of(network: nn.Module, text: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    windows = torch.stack([text[i : i + CONTEXT + 1] for i in at.tolist()]).long()
    return cross_entropy(network(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten())


steps = int(sys.argv[1]) if len(sys.argv) > 1 else 240
torch.manual_seed(0)
dist.init_process_group("gloo")
with open(TEXT, "rb") as file:
    text = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)
train, valid = text[: len(text) * 19 // 20], text[len(text) * 19 // 20 :]
draw = torch.Generator().manual_seed(dist.get_rank())  # each process has windows of its own

network = GPT()
optimizer = torch.optim.AdamW(network.parameters(), lr=0.003)
model, optimizer = prepare(network, optimizer, method="parameter-server")

for step in range(1, steps + 1):
    optimizer.zero_grad()
    loss_of(model, train, torch.randint(len(train) - CONTEXT, (BATCH,), generator=draw)).backward()
    optimizer.step()
    if step % 80 == 0 and dist.get_rank() == 0:
        with torch.no_grad():
            loss = loss_of(network, valid, torch.arange(0, len(valid) - CONTEXT, 500))
        print(f"step {step}  validation loss {loss:.6f}", flush=True)
dist.destroy_process_group()
