"""A CUDA device over CPU tensors. What PyTorch asks of its C++ part is answered here; its Python part is its own.

A tensor is on a card if its storage says so. A mode of `torch.overrides`, in every thread, does on the CPU what names a
card, keeps apart what belongs apart, and gives the card work that it has done later.
"""

import _thread
import functools
import os
import threading
import time
import weakref
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import fake_cards
import torch
from fake_cards import CONTEXT, MEMORY, WITHOUT
from torch.overrides import TorchFunctionMode

BLOCK, ROUNDED = 2 << 20, 512
"""Bytes that the caching allocator asks a card for, and gives to a tensor: multiples of these."""
LAUNCH, PER_BYTE, PER_PRODUCT = 10e-6, 0.2e-9, 1.6e-9
"""Seconds of the fastest card for each kernel, byte, and multiplication with addition."""
QUEUE_NS = 500_000_000
"""A launch waits while the card has so much to do."""
PRODUCTS = ("conv", "linear", "matmul", "mm", "bmm", "addmm", "scaled_dot_product_attention", "__matmul__")
WAITS = {"item", "tolist", "__bool__", "__float__", "__int__", "__index__", "nonzero", "equal", "allclose", "__repr__"}
BESIDE = {"copy_", "__get__", "__set__", "__getitem__", "__setitem__", "index_put_", "_foreach_copy_", "set_"}
RANDOM = ("rand", "dropout", "normal", "bernoulli", "multinomial", "uniform", "exponential", "attention")
FORKED = "CUDA error: initialization error\nCUDA kernel errors might be asynchronously reported at some other API call"
ORDINAL = "CUDA error: invalid device ordinal"
FULL = (
    "CUDA out of memory. Tried to allocate {:.2f} MiB. GPU {} has a total capacity of {:.2f} GiB of which {:.2f} MiB "
)
FULL += "is free. Including non-PyTorch memory, this process has {:.2f} GiB memory in use."
NUMPY = "can't convert cuda:{} device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first."
APART = "Expected all tensors to be on the same device, but found at least two devices, {} and {}!"
PINNED = "cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors can be pinned"
NO_TRITON = "Cannot find a working triton installation. Either the package is not installed or it is too old."
NO_COMPILER = mock.Mock(side_effect=RuntimeError(NO_TRITON))


def start_thread(name):
    """A thread that Python's `threading` does not know."""

    def wait():
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text(name)
        ready.release()
        lock.acquire()

    (lock := _thread.allocate_lock()).acquire()
    (ready := _thread.allocate_lock()).acquire()
    _thread.start_new_thread(wait, ())
    ready.acquire()


class Driver:
    """CUDA in this process: which cards it sees, and what it holds of each."""

    def __init__(self) -> None:
        self.shared, self.cards, self.current = fake_cards.Shared(), None, 0
        self.started = self.forked = False
        self.forward = 0.0  # seconds, from which those of the backward pass follow

    def look(self) -> int:
        """Count the cards. From now on the variables are not read again, and forks cannot use them."""
        self.cards = fake_cards.visible() if self.cards is None else self.cards
        return len(self.cards)

    def start(self) -> None:
        """Make the context."""
        if not self.look():
            raise RuntimeError("No CUDA GPUs are available")
        self.started = True
        self.allocated, self.reserved, self.peak, self.until = ([0] * len(self.cards) for _ in range(4))
        self.shared.join()
        torch.cuda.default_generators = tuple(torch._C.Generator() for _ in self.cards)
        for _ in range(2 if "threads" not in WITHOUT else 0):
            start_thread("cuda-EvtHandlr")

    def after_fork(self) -> None:
        self.forked = self.cards is not None and "poison" not in WITHOUT
        if self.started and not self.forked:
            self.shared.join()

    def select(self, index: int) -> int:
        """Make a card the current one; return the one before. A negative index is none."""
        if index >= len(self.cards or fake_cards.visible()):
            raise torch.AcceleratorError(ORDINAL)
        before, self.current = self.current, index if index >= 0 else self.current
        return before

    def allocate(self, index: int, size: int) -> None:
        """Take ``size`` bytes of a card, out of what is reserved if there is room."""
        wanted = max(self.reserved[index], -(-(self.allocated[index] + size) // BLOCK) * BLOCK)
        if (missing := self.hold(index, wanted)) and self.reserved[index]:
            self.empty()
            missing = self.hold(index, wanted)
        if missing:
            free, mine = max(0, wanted - self.reserved[index] - missing), self.reserved[index] + CONTEXT
            text = FULL.format(size / 2**20, index, MEMORY / 2**30, free / 2**20, mine / 2**30)
            raise torch.OutOfMemoryError(text)
        self.allocated[index] += size
        self.peak[index] = max(self.peak[index], self.reserved[index])

    def hold(self, index: int, size: int) -> int:
        """Reserve ``size`` bytes; return how many are missing for that."""
        missing = self.shared.hold(self.cards[index], size + CONTEXT) if size != self.reserved[index] or not size else 0
        self.reserved[index] = self.reserved[index] if missing else size
        return missing

    def free(self, index: int, size: int, pid: int) -> None:
        self.allocated[index] -= size if pid == os.getpid() else 0

    def empty(self) -> None:
        """Give back what is reserved for nothing."""
        for index in range(len(self.cards)):
            self.hold(index, -(-self.allocated[index] // BLOCK) * BLOCK)

    def work(self, index: int, seconds: float) -> None:
        if "time" not in WITHOUT:
            self.until[index] = self.shared.work(self.cards[index], seconds)
            self.wait(index, QUEUE_NS)

    def wait(self, index: int | None = None, but: int = 0) -> None:
        index = self.current if index is None else index
        while self.started and (left := self.until[index] - time.monotonic_ns() - but) > 0:
            time.sleep(left / 1e9)

    def stats(self, index: int) -> dict:
        names = {"reserved_bytes": (self.reserved, self.peak), "allocated_bytes": (self.allocated, self.allocated)}
        return {name: {"all": {"current": now[index], "peak": most[index]}} for name, (now, most) in names.items()}


driver = Driver()


def mark_of(tensor: torch.Tensor, name: str):
    """Return what the storage of ``tensor`` has as ``name``, such as the index of its ``card``."""
    with torch._C.DisableTorchFunction():
        try:
            return getattr(tensor.untyped_storage(), name, None)
        except (NotImplementedError, RuntimeError):  # it has no storage
            return None


def put(tensor: torch.Tensor, index: int) -> bool:
    """Put a new tensor on a card. Return False if it is there already."""
    if mark_of(tensor, "card") is not None:
        return False
    with torch._C.DisableTorchFunction():
        storage = tensor.untyped_storage()
        size = -(-storage.nbytes() // ROUNDED) * ROUNDED
        driver.allocate(index, size)
        storage.card = index
        weakref.finalize(storage, driver.free, index, size, os.getpid()).atexit = False
        return True


def tensors_in(values) -> list[torch.Tensor]:
    """Return the tensors in nested lists, tuples and dictionaries."""
    if isinstance(values, torch.Tensor):
        return [values]
    values = list(values.values()) if isinstance(values, dict) else values
    return [each for value in values for each in tensors_in(value)] if isinstance(values, (list, tuple)) else []


def wanted(device) -> int | None:
    """Return the index of the card that ``device`` names, None for other devices. It starts the context."""
    device = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    if device.type != "cuda":
        return None
    torch.cuda._lazy_init()
    index = driver.current if device.index is None else device.index
    if index >= len(driver.cards):
        raise torch.AcceleratorError(ORDINAL)
    return index


class Cards(TorchFunctionMode):
    """Does on the CPU what names a card, and remembers what is on which."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs, name = dict(kwargs or {}), getattr(func, "__name__", "")
        if name in ("to", "cuda", "cpu"):
            return self.move(name, *args, **kwargs)
        if name in ("pin_memory", "is_pinned"):
            return pinned(args[0]) if name == "pin_memory" else bool(mark_of(args[0], "pinned"))
        pin, index, named = kwargs.pop("pin_memory", False), None, kwargs.get("device") is not None
        if named and (index := wanted(kwargs["device"])) is not None:
            kwargs["device"] = "cpu"
        inputs = tensors_in((args, kwargs))
        places = [(tensor, mark_of(tensor, "card")) for tensor in inputs]
        on_cards = [place for _, place in places if place is not None]
        if index is None and not on_cards:
            return pinned(func(*args, **kwargs)) if pin else func(*args, **kwargs)
        if driver.forked:
            raise torch.AcceleratorError(FORKED)
        if not named:  # numbers of the CPU may be among the inputs
            index, apart = on_cards[0], {"cpu" if p is None else f"cuda:{p}" for t, p in places if t.dim()}
            if len(apart) > 1 and name not in BESIDE and not name.startswith("_has"):
                raise RuntimeError(APART.format(*sorted(apart, reverse=True)))
        if name in ("numpy", "__array__"):
            raise TypeError(NUMPY.format(index))
        if index is None:
            return func(*args, **kwargs)
        if name in WAITS:
            driver.wait(index)
        if not any(word in name for word in RANDOM):
            return self.keep(name, index, func(*args, **kwargs), inputs)
        host, card = torch.default_generator, torch.cuda.default_generators[index]
        own = host.get_state()
        host.set_state(card.get_state())
        try:
            return self.keep(name, index, func(*args, **kwargs), inputs)
        finally:
            card.set_state(host.get_state())
            host.set_state(own)

    def keep(self, name, index, result, inputs):
        """Put the ``result`` on the card, and give it the work."""
        known = {id(tensor) for tensor in inputs}
        made = [each for each in tensors_in(result) if id(each) not in known and put(each, index)]
        if name == "__deepcopy__" and result.grad is not None:
            put(result.grad, index)
        if name not in ("__get__", "__set__") and (made or (name.endswith("_") and not name.endswith("__"))):
            work = self.seconds(name, made, inputs)
            driver.work(index, work)
            driver.forward += work if torch.is_grad_enabled() else 0.0
        return result

    def seconds(self, name, made, inputs) -> float:
        """Return how long the fastest card takes."""
        with torch._C.DisableTorchFunction():
            if not (made and name.startswith(PRODUCTS) and len(inputs) > 1):
                return LAUNCH + sum(each.nbytes for each in made or inputs) * PER_BYTE
            one, other, convolution = inputs[0], inputs[1], "conv" in name
            half = torch.is_autocast_enabled("cuda") or one.itemsize < 4
            share = 0.3 if half else 0.6 if torch.backends.cuda.matmul.allow_tf32 else 1.0
            share *= 0.8 if one.dim() == 4 and one.is_contiguous(memory_format=torch.channels_last) else 1.0
            share *= 0.9 if convolution and torch.backends.cudnn.benchmark else 1.0
            inner = other.numel() // other.shape[0] if convolution else one.shape[-1]
            return LAUNCH + made[0].numel() * inner * PER_PRODUCT * share

    def move(self, name, tensor, *args, **kwargs):
        """Copy to a card, from one, or neither. Only a copy from pinned memory that is asked not to block does not."""
        here, args, device = mark_of(tensor, "card"), list(args), kwargs.pop("device", name if name != "to" else None)
        if name != "cpu" and args and (args[0] is None or isinstance(args[0], (str, int, torch.device))):
            device = device if args[0] is None else args[0]
            args.pop(0)
        if isinstance(other := kwargs.pop("other", args[0] if args else None), torch.Tensor):
            device, args = other.device, [other.dtype, *args[1:]]
        there = here if device is None else wanted(device)
        if driver.forked and here is not None:
            raise torch.AcceleratorError(FORKED)
        for value in filter(lambda each: each is not None, args):
            kwargs.setdefault("dtype" if isinstance(value, torch.dtype) else "non_blocking", value)
        if there == here:
            result = torch.Tensor.to(tensor, **kwargs)
            return result if result is tensor or here is None else self.keep(name, here, result, [tensor])
        waits = not (kwargs.pop("non_blocking", False) and (there is None or mark_of(tensor, "pinned")))
        result = torch.Tensor.to(tensor, **{**kwargs, "copy": True})
        for index in {here, there} - {None}:
            driver.work(index, LAUNCH + tensor.nbytes * PER_BYTE)
            if waits:
                driver.wait(index)
        if there is not None:
            put(result, there)
        return result


def goes_backward(own):
    """Return ``own``, the engine of autograd, with the mode in force for hooks. It leaves the work to the card, and the
    last bits of gradients differ from run to run."""

    def run(outputs, *args, **kwargs):
        if (index := mark_of(outputs[0], "card")) is None:
            return own(outputs, *args, **kwargs)
        nodes = [outputs[0].grad_fn]
        for node in nodes:  # it grows
            nodes += {each for each, _ in getattr(node, "next_functions", ()) if each is not None} - set(nodes)
        leaves = [node.variable for node in nodes if hasattr(node, "variable")]
        with Cards():
            found = own(outputs, *args, **kwargs)
        numbers = torch.Generator().manual_seed(int.from_bytes(os.urandom(6), "big"))
        for grad in filter(torch.is_tensor, (*(leaf.grad for leaf in leaves), *(found or ()))):
            put(grad, index)
            if "noise" not in WITHOUT and grad.is_floating_point() and not grad.is_sparse:
                with torch.no_grad():
                    grad.mul_(1 + 1e-7 * (2 * torch.rand(grad.shape, generator=numbers) - 1).to(grad.dtype))
        work, driver.forward = driver.forward, 0.0
        driver.work(index, 2 * work + LAUNCH * len(leaves))
        return found

    return run


def pinned(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy of ``tensor`` in pinned memory."""
    if mark_of(tensor, "card") is not None:
        raise RuntimeError(PINNED)
    with torch._C.DisableTorchFunction():
        copy = tensor.clone()
        copy.untyped_storage().pinned = True
        return copy


def properties(index: int) -> SimpleNamespace:
    card = driver.cards[index]
    (major, minor), facts = card.capability, {"name": card.name, "uuid": card.uuid, "total_memory": MEMORY}
    return SimpleNamespace(major=major, minor=minor, multi_processor_count=46, warp_size=32, **facts)


def install() -> None:
    """Answer what PyTorch's Python asks its C++ part."""
    cuda, place = torch.cuda, torch.Tensor.__base__.device
    stream = SimpleNamespace(is_capturing=lambda: False, synchronize=driver.wait)

    def device_of(tensor):
        card = mark_of(tensor, "card") if type(tensor).__name__ != "FakeTensor" else None
        return place.__get__(tensor) if card is None else torch.device("cuda", card)

    def in_context(work):
        return lambda index=-1: (cuda._lazy_init(), work(index))[1]

    both = {
        "setDevice": in_context(driver.select),
        "emptyCache": driver.empty,
        "exchangeDevice": in_context(driver.select),
    }
    answers = {f"_{kind}_{name}": answer for kind in ("cuda", "accelerator") for name, answer in both.items()}
    answers |= {
        "_cuda_getDeviceCount": driver.look,
        "_cuda_init": driver.start,
        "_cuda_getArchFlags": lambda: None,
        "_cuda_isInBadFork": lambda: driver.forked,
        "_cuda_getDevice": lambda: driver.current,
        "_cuda_synchronize": driver.wait,
        "_cuda_memoryStats": driver.stats,
        "_cuda_resetPeakMemoryStats": lambda index: driver.peak.__setitem__(index, driver.reserved[index]),
        "_cuda_getCurrentRawStream": lambda _index: 0,
        "_accelerator_getAccelerator": lambda: torch.device("cuda"),
        "_accelerator_getDeviceIndex": in_context(lambda _index: driver.current),
        "_accelerator_setDeviceIndex": in_context(driver.select),
        "_accelerator_maybeExchangeDevice": in_context(driver.select),
        "_accelerator_synchronizeDevice": driver.wait,
        "_accelerator_getStream": in_context(lambda _index: stream),
        "_accelerator_isAllocatorInitialized": lambda: driver.started,
    }
    for name, answer in answers.items():
        setattr(torch._C, name, answer)
    torch.Tensor.device, torch.compile = property(device_of), NO_COMPILER
    for kind in ("cuda", "cpu"):
        setattr(torch.Tensor, f"is_{kind}", property(lambda tensor, kind=kind: tensor.device.type == kind))
    cuda._is_in_bad_fork, cuda._get_device_properties = answers["_cuda_isInBadFork"], properties
    cuda._exchange_device = cuda._maybe_exchange_device = driver.select
    cuda._cudart = SimpleNamespace(cudaMemGetInfo=lambda index: (driver.shared.left(driver.cards[index]), MEMORY))
    if "library" not in WITHOUT:
        nvml = functools.cache(lambda: start_thread("cuda00001800007"))
        cuda._raw_device_count_nvml = lambda: nvml() or len(fake_cards.BY_BUS)
        cuda._raw_device_uuid_nvml = lambda: [card.uuid for card in fake_cards.BY_BUS]
    for name in ("set_autocast_enabled", "set_autocast_dtype"):
        own = getattr(torch, name)
        setattr(torch, name, lambda kind, to, own=own: (own(kind, to), kind == "cuda" and own("cpu", to)))
    torch.autograd._engine_run_backward = goes_backward(torch.autograd._engine_run_backward)
    run = threading.Thread._bootstrap_inner

    def with_cards(thread):
        with Cards():
            run(thread)

    threading.Thread._bootstrap_inner = with_cards
    os.register_at_fork(after_in_child=driver.after_fork)
    Cards().__enter__()
