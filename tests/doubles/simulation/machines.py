"""The simulated machines that search methods are judged on."""

from dataclasses import dataclass

from autotune.knobs.settings import Settings
from tests.doubles.simulation.simulator import GIB, Machine, Work, context, inventory


def mlp() -> Machine:
    """Overhead-bound: tiny kernels, where threads and processes cost more than they give."""
    gains = {("optimizer_impl", "foreach"): 0.95, ("optimizer_impl", "fused"): 2.5, ("allocator", "jemalloc"): 1.04}
    work = Work(1e-6, overhead=6e-4, update=5e-4, load=4e-6, contention=0.7, exchange=6e-4, gains=gains)
    return Machine("mlp", context(inventory(), 128), work)


def images() -> Machine:
    """Input-bound: decoding takes three times as long as training."""
    gains = {("channels_last", True): 1.15, ("optimizer_impl", "fused"): 1.5, ("allocator", "jemalloc"): 1.05}
    work = Work(3e-4, update=3e-4, load=9e-4, contention=0.3, gains=gains)
    return Machine("images", context(inventory(), 64, convolutions=True), work)


def conv() -> Machine:
    """Compute-bound: layout decides; workers only take cores from the step."""
    gains = {("channels_last", True): 1.45, ("optimizer_impl", "fused"): 2.0, ("precision", "bf16"): 0.9}
    gains |= {("channels_last", "bf16"): 1.6, ("allocator", "jemalloc"): 1.02}
    work = Work(2e-3, overhead=2e-3, update=1e-3, load=1e-4, contention=0.15, exchange=4e-3, gains=gains)
    return Machine("conv", context(inventory(), 32, convolutions=True), work)


def transformer() -> Machine:
    """Matrix products: bfloat16 pays, compile pays later, processes do not."""
    gains = {("precision", "bf16"): 1.9, ("optimizer_impl", "fused"): 1.8, ("compile", "default"): 1.1}
    work = Work(8e-3, overhead=3e-3, update=1.2e-2, load=1e-5, contention=0.08, exchange=4e-2, gains=gains)
    return Machine("transformer", context(inventory(), 16), work)


def embedding() -> Machine:
    """Memory-bound: the optimizer walks a large table; a second thread hardly helps."""
    gains = {("optimizer_impl", "foreach"): 1.2, ("optimizer_impl", "fused"): 2.2, ("allocator", "jemalloc"): 1.08}
    work = Work(6e-6, overhead=5e-4, update=2e-2, load=1.5e-5, contention=0.6, exchange=3e-2, gains=gains)
    return Machine("embedding", context(inventory(), 512), work)


def big(train_seconds: float | None = None) -> Machine:
    """128 cores on 2 sockets with 8 GPUs: heavy decoding, interactions, memory cliffs."""
    gains = {("channels_last", True): 0.97, ("channels_last", "bf16"): 1.25, ("channels_last", "fp16"): 1.22}
    gains |= {("precision", "tf32"): 1.5, ("precision", "bf16"): 1.9, ("precision", "fp16"): 1.85}
    gains |= {("cudnn_benchmark", True): 1.06, ("optimizer_impl", "foreach"): 1.5, ("optimizer_impl", "fused"): 2.5}
    gains |= {("compile", "default"): 1.12, ("compile", "reduce-overhead"): 1.2, ("compile", "max-autotune"): 1.22}
    work = Work(8e-4, 6e-3, 8e-3, load=6e-3, exchange=4e-3, gains=gains, memory=(0.2 * GIB, 4 * GIB))
    host = inventory(threads=256, cores=128, sockets=2, gpus=8, memory=1024 * GIB)
    return Machine("big", context(host, 256, convolutions=True, train_seconds=train_seconds), work)


@dataclass(frozen=True)
class Strange(Machine):
    """A large machine that obeys none of the search's expectations: effects that the prior does not know, or has the
    wrong way round, and that hang together.

    The disk saturates, so that many workers hurt; exchange is free up to four GPUs and slow beyond; ``channels_last``
    loses but with low precision at large batches; ``fused`` loses; CUDA graphs (``reduce-overhead``) help only small
    batches and take memory; pinning only helps where workers are few.
    """

    def rate(self, settings: Settings) -> float:
        """True items/s."""
        batch, low = settings.batch_size, settings.precision in ("bf16", "fp16")
        seconds = 0.004 + 9e-4 * batch / (2.1 if low else 1.3 if settings.precision == "tf32" else 1.0)
        if settings.channels_last:
            seconds *= 0.75 if low and batch >= 64 else 1.15
        seconds *= {"off": 1.0, "default": 1.04, "reduce-overhead": 0.8 if batch <= 64 else 1.02}.get(
            settings.compile, 0.9
        )
        seconds *= 0.95 if settings.cudnn_benchmark and batch <= 128 else 1.03 if settings.cudnn_benchmark else 1.0
        exchange = 0.0005 if settings.processes <= 4 else 0.02
        update = {"default": 0.003, "foreach": 0.0015, "fused": 0.005}[settings.optimizer_impl]
        step = seconds + exchange * (settings.processes > 1) + update
        workers = settings.processes * settings.num_workers
        disk = 1.0 / (1 + (workers / 48) ** 3)
        supply = 0.006 * settings.batch_size / max(0.3, settings.num_workers * disk)
        if settings.pin_memory and settings.num_workers <= 4:
            supply *= 0.8
        if settings.num_workers and (settings.prefetch_factor or 2) == 1:
            supply *= 1.3
        return settings.global_batch / (step + supply if not settings.num_workers else max(step, supply))

    def load_share(self, settings: Settings) -> float:
        """Known for the first trial as a real one tells it."""
        supply = 0.006 * settings.batch_size / max(0.3, settings.num_workers)
        return min(0.95, supply * self.rate(settings) / settings.global_batch)

    def fits(self, settings: Settings) -> bool:
        """CUDA graphs keep their own memory."""
        half = 0.6 if settings.precision in ("bf16", "fp16") else 1.0
        graphs = 1.5 if settings.compile == "reduce-overhead" else 1.0
        return 6 + 0.25 * half * graphs * settings.batch_size <= 80


def strange(train_seconds: float | None = 36_000.0) -> Machine:
    """`Strange`, with compile allowed: more than a million settings."""
    host = inventory(threads=256, cores=128, sockets=2, gpus=8, memory=1024 * GIB)
    return Strange("strange", context(host, 256, convolutions=True, train_seconds=train_seconds), Work(1e-3))


@dataclass(frozen=True)
class Indifferent(Machine):
    """The baseline is best: every decision that departs from it costs the same share of the rate."""

    loss: float = 0.0

    def rate(self, settings: Settings) -> float:
        """True items/s."""
        changes = set(settings.difference(self.context.baseline)) - {"backend", "batch_size", "prefetch_factor"}
        return float(1000.0 * (1 - self.loss) ** len(changes))

    def load_share(self, settings: Settings) -> float:
        """Nothing is known of the loader."""
        return 0.0


def flat() -> Machine:
    """Nothing matters: the honest answer is "no gain"."""
    return Indifferent("flat", context(inventory(), 64, convolutions=True), Work(1e-3))


def default_best() -> Machine:
    """Whatever is changed makes it slower."""
    return Indifferent("default best", context(inventory(), 64, convolutions=True), Work(1e-3), loss=0.05)


SMALL = (mlp, images, conv, transformer, embedding)
