"""`Case`: one training and the settings it runs under. `AXES` names every value, with how often it is drawn."""

from dataclasses import dataclass, fields
from typing import Any

BATCH = 6
"""The user's global batch: two and three processes share it evenly."""
BATCHES = 3
"""Whole global batches of an epoch; the tail comes on top."""
STREAMS = ("stream", "stream_sharded")
OWN_WORKERS = ("worker_init", "persistent", "changing_workers")
"""Loaders whose user has asked for workers."""
BATCH_NORM = ("batchnorm", "batchnorm1d")
"""Models that normalise over the samples of a batch."""
WORLDS = {"1": (1, None), "gloo2": (2, "gloo"), "gloo3": (3, "gloo"), "mpi2": (2, "mpi")}
"""``{name: (processes, backend)}``."""
KIND = {
    "conv2d": "image",
    "maps": "image",
    "noisy": "image",
    "batchnorm": "image",
    "frozen": "image",
    "ema": "image",
    "conv3d": "volume",
    "transposed": "small image",
    "lstm": "sequence",
    "embedding": "tokens",
    "sparse": "tokens",
    "tied": "tokens",
}
"""What a model reads; a vector where it is not named."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One combination. Each field is an axis; the defaults are the plainest training."""

    model: str = "conv2d"
    optimizer: str = "sgd"
    loop: str = "plain"
    schedule: str = "none"
    checkpoint: str = "none"
    """Where the second half's state comes from: see `training.PHASES`."""
    loader: str = "shuffled"
    batches: str = "tuple"
    tail: int = 0
    """Samples in the last, smaller batch."""
    loss: str = "sample_mean"
    world: str = "1"
    profile: bool = True
    """False: no profile was found, the session has no settings."""
    level: str | None = "safe"
    profile_batch: str = "same"
    """``other``: the profile was measured with twice the user's global batch."""
    threads: int = 1
    interop_threads: int = 1
    num_workers: int = 0
    prefetch_factor: int = 2
    worker_start: str = "default"
    worker_threads: str = "default"
    pin_memory: bool = False
    channels_last: bool = False
    optimizer_impl: str = "default"
    allocator: str = "default"
    malloc: str = "default"
    omp_wait_policy: str = "default"
    cudnn_benchmark: bool = False
    compile: str = "off"
    precision: str = "fp32"
    matmul_precision: str = "highest"
    binding: str = "none"

    def __repr__(self) -> str:
        """An expression that gives this case again; only what differs from the defaults."""
        said = [f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if getattr(self, f.name) != f.default]
        return f"Case({', '.join(said)})"

    @property
    def processes(self) -> int:
        """How many processes train together."""
        return WORLDS[self.world][0]

    @property
    def kind(self) -> str:
        """What the model reads."""
        return KIND.get(self.model, "vector")

    @property
    def samples(self) -> int:
        """Samples of an epoch."""
        return BATCH * BATCHES + self.tail


def _even(*values: Any) -> dict[Any, int]:
    return dict.fromkeys(values, 1)


AXES: dict[str, dict[Any, float]] = {
    "model": {
        **_even(*"conv2d maps noisy conv3d transposed batchnorm batchnorm1d layernorm lstm embedding".split()),
        **_even("sparse", "tied", "frozen", "unfrozen_later", "ema", "teacher", "several", "gan", "dropout"),
    },
    "optimizer": _even("sgd", "adam", "adamw", "adagrad", "rmsprop", "velocity", "lbfgs", "groups", "several"),
    "loop": {
        "plain": 2,
        **_even("accumulate", "accumulate_no_sync", "clip", "evaluate", "evaluate_shuffled", "two_loaders"),
        **_even("break", "continue", "exception", "peek", "reads_ahead", "twice_at_once", "counted", "reset", "skip"),
        **_even("keeps", "copies"),
    },
    "schedule": _even("none", "per_step", "per_epoch", "plateau"),
    "checkpoint": {"none": 4, **_even("before", "after", "own", "back")},
    "loader": {
        **_even("sequential", "shuffled", "generator", "sampler", "sampler_unsized", "sampler_epochs", "weighted"),
        **_even("batch_sampler", "subclass", "drop_last", "changing", "keeps_state", *STREAMS),
        **_even("open_file", "fails"),
        **dict.fromkeys(OWN_WORKERS, 0.25),
    },
    "batches": {"tuple": 3, **_even("dict", "namedtuple", "dataclass", "defaultdict", "packed")},
    "tail": {0: 2, **_even(1, 2, 3, 4, 5)},
    "loss": {"sample_mean": 6, **_even("token_mean", "class_weighted", "sum")},
    "world": {"1": 10, "gloo2": 4, "gloo3": 2, "mpi2": 2},
    "profile": {True: 12, False: 1},
    "level": {"safe": 3, "amp": 1, "max": 1, None: 1},
    "profile_batch": {"same": 3, "other": 1},
    "threads": {1: 12, 2: 1},
    "interop_threads": {1: 6, 2: 1},
    "num_workers": {0: 18, 1: 1, 2: 1},
    "prefetch_factor": _even(1, 2, 4),
    "worker_start": {"default": 4, "fork": 1},
    "worker_threads": {"default": 4, "one": 1},
    "pin_memory": {False: 4, True: 1},
    "channels_last": {False: 2, True: 1},
    "optimizer_impl": {"default": 2, "foreach": 1, "fused": 1},
    "allocator": {"default": 10, "jemalloc": 1, "tcmalloc": 1},
    "malloc": {"default": 4, "keep": 1},
    "omp_wait_policy": {"default": 6, "passive": 1},
    "cudnn_benchmark": {False: 8, True: 1},
    "compile": {"off": 120, "default": 1, "reduce-overhead": 0.3, "max-autotune": 0.3},
    "precision": {"fp32": 8, "tf32": 1, "bf16": 2, "fp16": 1},
    "matmul_precision": {"highest": 8, "medium": 1},
    "binding": {"none": 10, "cores": 1, "numa": 1},
}
assert set(AXES) == {field.name for field in fields(Case)}


def parsed(expression: str) -> Case:
    """The case that ``expression`` describes, such as ``Case(model='lstm')``."""
    case = eval(expression, {"Case": Case})
    if not isinstance(case, Case):
        raise ValueError(f"{expression!r} is no case; write Case(model='lstm')")
    return case
