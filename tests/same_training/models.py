"""Tiny models, one builder a value of the axis. Each gives logits of shape ``(batch, TOKENS, CLASSES)``."""

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

TOKENS, CLASSES, WORDS, FEATURES = 3, 4, 10, 8
OUTPUTS = TOKENS * CLASSES


class Lstm(nn.Module):
    """The last hidden state decides; takes padded and packed sequences."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(3, 4, batch_first=True), nn.Linear(4, OUTPUTS)

    def forward(self, x: Tensor | PackedSequence) -> Tensor:
        """Logits."""
        _outputs, (hidden, _cell) = self.lstm(x)
        return self.head(hidden[-1]).unflatten(1, (TOKENS, CLASSES))


class Words(nn.Module):
    """An embedding, dense or sparse."""

    def __init__(self, sparse: bool) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(WORDS, 3, sparse=sparse), nn.Linear(12, OUTPUTS)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        return self.head(self.words(x).flatten(1)).unflatten(1, (TOKENS, CLASSES))


class Tied(nn.Module):
    """Input and output share one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.mix = nn.Embedding(WORDS, 4), nn.Linear(16, OUTPUTS)
        self.out = nn.Linear(4, WORDS, bias=False)
        self.out.weight = self.words.weight

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        mixed = self.mix(self.words(x).flatten(1)).unflatten(1, (TOKENS, 4))
        return self.out(mixed)[..., :CLASSES]


def build(name: str) -> dict[str, nn.Module]:
    """The trained networks of model ``name``, by their own names."""
    if name == "gan":
        return {"generator": _dense(FEATURES, FEATURES), "discriminator": _dense(FEATURES, 1)}
    if name == "several":
        return {"encoder": _dense(FEATURES, 6), "head": nn.Sequential(nn.Linear(6, OUTPUTS), _shaped())}
    if name == "teacher":
        student = _vector()
        return {"main": student, "teacher": copy.deepcopy(student).requires_grad_(False)}
    model = BUILDERS[name]()
    if name in ("frozen", "unfrozen_later"):
        next(iter(model.children())).requires_grad_(False)
    return {"main": model}


def logits(name: str, call: Any, networks: dict[str, nn.Module], x: Any) -> Tensor:
    """The output of the whole model; ``call(network, x)`` runs one network."""
    if name == "several":
        return call(networks["head"], call(networks["encoder"], x))
    outputs = call(networks["main"], x)
    return outputs.view(-1, OUTPUTS).view(-1, TOKENS, CLASSES) if name == "maps" else outputs


def _shaped() -> nn.Module:
    return nn.Unflatten(1, (TOKENS, CLASSES))


def _dense(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, 6), nn.Tanh(), nn.Linear(6, outputs))


def _vector(*middle: nn.Module, bias: bool = True) -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 6, bias=bias), *middle, nn.Tanh(), nn.Linear(6, OUTPUTS), _shaped())


def _image(*middle: nn.Module, bias: bool = True) -> nn.Module:
    first, second = nn.Conv2d(2, 3, 3, padding=1, bias=bias), nn.Conv2d(3, 2, 3, stride=2, padding=1)
    return nn.Sequential(first, *middle, nn.Tanh(), second, nn.Flatten(), nn.Linear(8, OUTPUTS), _shaped())


def _maps() -> nn.Module:
    last = nn.Conv2d(3, TOKENS, 3, stride=2, padding=1, bias=False)  # a bias would move all classes of a token alike
    return nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.Tanh(), last)


def _volume() -> nn.Module:
    return nn.Sequential(nn.Conv3d(1, 2, 2), nn.Tanh(), nn.Flatten(), nn.Linear(16, OUTPUTS), _shaped())


def _transposed() -> nn.Module:
    up, down = nn.ConvTranspose2d(2, 3, 2, stride=2), nn.Conv2d(3, 2, 2, stride=2)
    return nn.Sequential(up, nn.Tanh(), down, nn.Flatten(), nn.Linear(8, OUTPUTS), _shaped())


# No bias before BatchNorm: its gradient is nothing but rounding.
BUILDERS: dict[str, Any] = {
    "conv2d": _image,
    "batchnorm": lambda: _image(nn.BatchNorm2d(3), bias=False),
    "frozen": _image,
    "ema": _image,
    "maps": _maps,
    "conv3d": _volume,
    "noisy": lambda: _image(nn.Dropout(0.2), nn.RReLU(), nn.Dropout2d(0.2)),
    "transposed": _transposed,
    "batchnorm1d": lambda: _vector(nn.BatchNorm1d(6), bias=False),
    "layernorm": lambda: _vector(nn.LayerNorm(6)),
    "unfrozen_later": _vector,
    "dropout": lambda: _vector(nn.Dropout(0.3)),
    "lstm": Lstm,
    "embedding": lambda: Words(sparse=False),
    "sparse": lambda: Words(sparse=True),
    "tied": Tied,
}


def unfreeze(networks: dict[str, nn.Module]) -> None:
    """Train everything from now on."""
    for network in networks.values():
        network.requires_grad_(True)


@torch.no_grad()
def reset(model: nn.Module) -> None:
    """Draw new biases, as training recipes with restarts do."""
    for parameter in model.parameters():
        if parameter.dim() == 1:
            parameter.normal_(0.0, 0.1)


@torch.no_grad()
def follow(average: nn.Module, model: nn.Module) -> None:
    """One step of an exponential moving average."""
    for mean, parameter in zip(average.parameters(), model.parameters(), strict=True):
        mean.lerp_(parameter, 0.2)
    for mean, buffer in zip(average.buffers(), model.buffers(), strict=True):
        mean.copy_(buffer)
