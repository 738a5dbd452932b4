"""Models as frameworks_models_test.py trains them on the ranks: real architectures of small sizes, random from a seed.

Each has a function that makes the module, and one that gives the arguments of a batch. A module returns its loss.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field

import dist_turns
import torch
import torch.distributed as dist
import torch.distributed.nn.functional
import transformers
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional

STEPS = 3
WORDS, LONG = 96, 12


class Loss(nn.Module):
    """What a model of transformers says is its loss."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, **batch):
        return self.model(**batch).loss


class Labelled(nn.Module):
    """The loss of a model that gives classes of images."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, pixel_values, labels):
        return functional.cross_entropy(self.model(pixel_values), labels)


# ---- batches ----

def words():
    x = torch.randint(3, WORDS, (3, LONG))
    return {"input_ids": x, "labels": x}


def classes_of_words():
    return {"input_ids": torch.randint(3, WORDS, (3, LONG)), "labels": torch.randint(0, 4, (3,))}


def images(size=32):
    return {"pixel_values": torch.randn(4, 3, size, size), "labels": torch.randint(0, 4, (4,))}


def sounds():
    return {"input_features": torch.randn(2, 16, 40), "labels": torch.randint(3, WORDS, (2, 6))}


def pairs():
    return {"input_ids": torch.randint(3, WORDS, (4, LONG)), "pixel_values": torch.randn(4, 3, 32, 32),
            "return_loss": True}


def masks():
    return {"pixel_values": torch.randn(2, 3, 16, 16), "labels": torch.randint(0, 4, (2, 16, 16))}


# ---- modules by hand ----

class SyncBatchNorm(nn.Module):
    """Statistics of all ranks' batches, by a sum with a gradient: torch's own class refuses CPUs."""

    def __init__(self, channels):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))

    def forward(self, x):
        mine = torch.stack([x.mean((0, 2, 3)), x.square().mean((0, 2, 3))])
        mean, square = dist.nn.functional.all_reduce(mine) / dist.get_world_size()
        self.running_mean.lerp_(mean.detach(), 0.1)
        scale = self.weight * (square - mean.square() + 1e-5).rsqrt()
        return x * scale[:, None, None] + (self.bias - mean * scale)[:, None, None]


class Residual(nn.Module):
    def __init__(self, norm, channels):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1, bias=False), norm(channels), nn.ReLU(),
                                  nn.Conv2d(channels, channels, 3, padding=1, bias=False), norm(channels))

    def forward(self, x):
        return torch.relu(x + self.body(x))


def residual(norm):
    return Labelled(nn.Sequential(nn.Conv2d(3, 8, 3, 2), norm(8), Residual(norm, 8), Residual(norm, 8),
                                  nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        widths = (8, 16, 32)

        def twice(before, after):
            return nn.Sequential(nn.Conv2d(before, after, 3, padding=1), nn.GroupNorm(4, after), nn.SiLU(),
                                 nn.Conv2d(after, after, 3, padding=1), nn.SiLU())

        self.down = nn.ModuleList(twice(a, b) for a, b in zip((3, *widths), widths, strict=False))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, 2) for w in widths[-2::-1])
        self.joined = nn.ModuleList(twice(2 * w, w) for w in widths[-2::-1])
        self.top = nn.Conv2d(widths[0], 4, 1)

    def forward(self, pixel_values):
        x, beside = pixel_values, []
        for k, part in enumerate(self.down):
            x = part(functional.max_pool2d(x, 2) if k else x)
            beside.append(x)
        beside.pop()
        for up, join in zip(self.up, self.joined, strict=True):
            x = join(torch.cat([up(x), beside.pop()], 1))
        return self.top(x)


class Adapted(nn.Module):
    """LoRA: a frozen layer and what two small matrices add to it."""

    def __init__(self, layer, rank=4):
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.a, self.b = nn.Linear(layer.in_features, rank, False), nn.Linear(rank, layer.out_features, False)
        nn.init.zeros_(self.b.weight)

    def forward(self, x):
        return self.layer(x) + 2 * self.b(self.a(x))


def adapted(model):
    model.requires_grad_(False)
    for part in list(model.modules()):
        for name in ("q_proj", "v_proj"):
            if isinstance(getattr(part, name, None), nn.Linear):
                setattr(part, name, Adapted(getattr(part, name)))
    return model


class Recurrent(nn.Module):
    """A language model of an LSTM whose last layer is its embedding."""

    def __init__(self):
        super().__init__()
        self.table, self.cells = nn.Embedding(WORDS, 16), nn.LSTM(16, 16, 2, batch_first=True, dropout=0.1)
        self.top = nn.Linear(16, WORDS)
        self.top.weight = self.table.weight

    def forward(self, input_ids, labels):
        x = self.top(self.cells(self.table(input_ids[:, :-1]))[0])
        return functional.cross_entropy(x.flatten(0, 1), labels[:, 1:].flatten())


# ---- models ----

def of(kind, **config):
    """A model of transformers."""
    model_class = getattr(transformers, kind)
    return Loss(model_class(model_class.config_class(**config)))


def llama_like(kind, **more):
    config = {"vocab_size": WORDS, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
              "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "bos_token_id": 1,
              "eos_token_id": 2, "pad_token_id": 0}
    return of(kind, **config | more)


def bert_like(kind, **more):
    config = {"vocab_size": WORDS, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
              "intermediate_size": 64, "max_position_embeddings": 64}
    return of(kind, **config | more)


def with_unused(model):
    """Parameters that no loss depends on."""
    model.unused = nn.Linear(8, 8)
    return model


def without_scalars(model):
    """FSDP2 takes no parameter without a dimension."""
    model.model.logit_scale = nn.Parameter(model.model.logit_scale.detach().view(1))
    return model


def checkpointed(model):
    model.model.gradient_checkpointing_enable()
    return model


VISION = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
          "image_size": 32, "patch_size": 8}
ENDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
BART = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "vocab_size": WORDS, **ENDS}


@dataclass
class Model:
    make: Callable[[], nn.Module]
    batch: Callable[[], dict]
    ddp: dict = field(default_factory=dict)
    autocast: bool = False


MODELS = {
    "gpt2": Model(lambda: of("GPT2LMHeadModel", vocab_size=WORDS, n_embd=32, n_layer=2, n_head=4, n_positions=64,
                             bos_token_id=1, eos_token_id=2), words),
    "bert": Model(lambda: bert_like("BertForMaskedLM"), words),
    "bert with a head that is not used": Model(lambda: with_unused(bert_like("BertForPreTraining")), lambda: {
        **words(), "next_sentence_label": torch.randint(0, 2, (3,))},
        {"bucket_cap_mb": 0.01, "find_unused_parameters": True}),
    "distilbert": Model(lambda: of("DistilBertForSequenceClassification", vocab_size=WORDS, dim=32, n_layers=2,
                                   n_heads=4, hidden_dim=64, num_labels=4), classes_of_words),
    "electra": Model(lambda: bert_like("ElectraForSequenceClassification", embedding_size=16, num_labels=4),
                     classes_of_words),
    "llama, checkpointed": Model(lambda: checkpointed(llama_like("LlamaForCausalLM")), words),
    "llama with lora": Model(lambda: adapted(llama_like("LlamaForCausalLM")), words),
    "qwen2 of bfloat16": Model(lambda: llama_like("Qwen2ForCausalLM", tie_word_embeddings=True), words, autocast=True),
    "mixtral": Model(lambda: llama_like("MixtralForCausalLM", num_local_experts=4, output_router_logits=True), words,
                     {"find_unused_parameters": True}),
    "opt": Model(lambda: of("OPTForCausalLM", vocab_size=WORDS, hidden_size=32, ffn_dim=64, num_hidden_layers=2,
                            num_attention_heads=4, word_embed_proj_dim=32, max_position_embeddings=64), words),
    "mamba": Model(lambda: of("MambaForCausalLM", vocab_size=WORDS, hidden_size=32, state_size=4, num_hidden_layers=2),
                   words),
    "t5": Model(lambda: of("T5ForConditionalGeneration", vocab_size=WORDS, d_model=32, d_kv=8, d_ff=64, num_layers=2,
                           num_heads=4, decoder_start_token_id=0), words),
    "bart": Model(lambda: of("BartForConditionalGeneration", **BART), words, {"find_unused_parameters": True}),
    "whisper": Model(lambda: of("WhisperForConditionalGeneration", **BART, num_mel_bins=16, max_source_positions=20,
                                max_target_positions=20), sounds),
    "vit": Model(lambda: of("ViTForImageClassification", **VISION, num_labels=4), images),
    "clip": Model(lambda: without_scalars(of("CLIPModel", text_config={
        "vocab_size": WORDS, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "max_position_embeddings": 16, "eos_token_id": 2}, vision_config=VISION,
        projection_dim=16)), pairs),
    "swin": Model(lambda: of("SwinForImageClassification", image_size=32, patch_size=2, embed_dim=16, depths=[1, 1],
                             num_heads=[2, 4], window_size=4, num_labels=4), images),
    "convnext": Model(lambda: of("ConvNextForImageClassification", hidden_sizes=[8, 16], depths=[1, 1], num_stages=2,
                                 num_labels=4), images),
    "resnet": Model(lambda: of("ResNetForImageClassification", embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1],
                               layer_type="basic", num_labels=4), images),
    "resnet with statistics of all": Model(lambda: residual(SyncBatchNorm), images),
    "unet": Model(lambda: Labelled(UNet()), masks),
    "lstm": Model(Recurrent, words),
}


# ---- training ----

def sharded(model):
    """FSDP2: each layer of a list, the inner ones first, and the rest."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for part in reversed(list(model.modules())):
        if isinstance(part, nn.ModuleList):
            for layer in part:
                if next(layer.parameters(), None) is not None and not isinstance(layer, nn.ModuleList):
                    fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def bits(tensors):
    """A digest of values."""
    sha = hashlib.sha256()
    for x in tensors:
        x = (x.full_tensor() if hasattr(x, "full_tensor") else x).detach().contiguous()
        sha.update(f"{x.dtype} {tuple(x.shape)}".encode() + x.view(-1).view(torch.uint8).numpy().tobytes())
    return sha.hexdigest()


def trained(model: Model, way):
    """Losses, and digests of the parameters at the beginning and at the end and of the buffers."""
    torch.manual_seed(0)
    module = model.make().train()
    begin = bits(module.parameters())
    wrapped = sharded(module) if way == "fsdp" else nn.parallel.DistributedDataParallel(module, **model.ddp)
    optimizer = torch.optim.AdamW([p for p in wrapped.parameters() if p.requires_grad], lr=0.003)
    losses = []
    for step in range(STEPS):
        torch.manual_seed(1000 * step + dist.get_rank() + 1)  # of the batch, and of dropout
        batch = model.batch()
        with torch.autocast("cpu", torch.bfloat16) if model.autocast else contextlib.nullcontext():
            loss = wrapped(**batch)
        loss.backward()
        nn.utils.clip_grad_norm_(wrapped.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return [losses, begin, bits(wrapped.parameters()), bits(wrapped.buffers())]


def every(rank, n, folder, backends):
    """All models in each way on each backend. The answer has the text of an error where a model has failed."""
    told: dict = {}
    for backend in backends:
        things = {f"{name}/{way}/{backend}": functools.partial(trained, model, way)
                  for name, model in MODELS.items() for way in ("ddp", "fsdp")}
        told |= dist_turns.in_turn(rank, n, folder, backend, things)
    return json.loads(json.dumps(told))
