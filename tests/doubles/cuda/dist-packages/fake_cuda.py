"""A CUDA device over CPU tensors. What PyTorch asks of its C++ part is answered here; its Python part is its own.

A tensor is on a card if its storage says so. A mode of `torch.overrides`, in every thread, does what names a device on
the CPU, keeps what belongs apart, and gives the card work that it has done later.
"""

import _thread
import os
import threading
import time
import weakref
from types import SimpleNamespace

import fake_cards
import torch
from fake_cards import CONTEXT, MEMORY, WITHOUT
from torch.overrides import TorchFunctionMode

BLOCK, ROUNDED = 2 << 20, 512
"""Bytes that the caching allocator asks a card for, and gives to a tensor: multiples of these."""
LAUNCH, PER_BYTE, PER_PRODUCT = 10e-6, 0.2e-9, 0.4e-9
"""Seconds of the fastest card for each kernel, byte, and multiplication with addition."""
QUEUE_NS = 500_000_000
"""A launch waits while the card has so much to do."""
PRODUCTS = ("conv", "linear", "matmul", "mm", "bmm", "addmm", "scaled_dot_product_attention", "__matmul__")
WAITS = {"item", "tolist", "__bool__", "__float__", "__int__", "__index__", "nonzero", "equal", "allclose", "__repr__"}
BESIDE = {
    "copy_",
    "__get__",
    "__set__",
    "__getitem__",
    "__setitem__",
    "index_put_",
    "to",
    "cpu",
    "cuda",
    "_foreach_copy_",
    "set_",
}
RANDOM = ("rand", "dropout", "normal", "bernoulli", "multinomial", "uniform", "exponential", "attention")
FORKED = "CUDA error: initialization error\nCUDA kernel errors might be asynchronously reported at some other API call"
FULL = (
    "CUDA out of memory. Tried to allocate {:.2f} MiB. GPU {} has a total capacity of {:.2f} GiB of which {:.2f} MiB is"
    " free. Including non-PyTorch memory, this process has {:.2f} GiB memory in use."
)


ON_CARD = "can't convert cuda:{} device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first."
APART = "Expected all tensors to be on the same device, but found at least two devices, {} and {}!"
NO_TRITON = "Cannot find a working triton installation. Either the package is not installed or it is too old."


class Driver:
    """CUDA in this process: which cards it sees, and what it holds of each."""

    def __init__(self) -> None:
        self.shared = fake_cards.Shared()
        self.cards, self.started, self.forked, self.current = None, False, False, 0
        self.forward = 0.0
        """Seconds of the forward pass, from which the time of the backward pass is known."""

    def look(self) -> int:
        """Count the cards. From now on the variables are not read again, and a fork cannot use them."""
        if self.cards is None:
            self.cards = fake_cards.visible()
        return len(self.cards)

    def start(self) -> None:
        """Make the context."""
        if not self.look():
            raise RuntimeError("No CUDA GPUs are available")
        count, self.started = len(self.cards), True
        self.allocated, self.reserved, self.peak, self.until = [0] * count, [0] * count, [0] * count, [0] * count
        self.shared.join()
        torch.cuda.default_generators = tuple(torch._C.Generator() for _ in self.cards)
        if "threads" not in WITHOUT:
            for _ in range(2):  # native ones: Python's `threading` does not know them
                (lock := _thread.allocate_lock()).acquire()
                _thread.start_new_thread(lock.acquire, ())

    def after_fork(self) -> None:
        self.forked = self.cards is not None and "poison" not in WITHOUT
        if self.started and not self.forked:
            self.shared.join()

    def allocate(self, index: int, size: int) -> None:
        """Take ``size`` bytes of a card, out of what is reserved if there is room."""
        size = -(-size // ROUNDED) * ROUNDED
        wanted = max(self.reserved[index], -(-(self.allocated[index] + size) // BLOCK) * BLOCK)
        missing = self._hold(index, wanted)
        if missing and self.reserved[index]:
            self.empty(index)
            missing = self._hold(index, wanted)
        if missing:
            free, mine = max(0, wanted - self.reserved[index] - missing), self.reserved[index] + CONTEXT
            text = FULL.format(size / 2**20, index, MEMORY / 2**30, free / 2**20, mine / 2**30)
            raise torch.OutOfMemoryError(text)
        self.allocated[index] += size
        self.peak[index] = max(self.peak[index], self.reserved[index])

    def _hold(self, index: int, size: int) -> int:
        if size == self.reserved[index] and size:
            return 0
        missing = self.shared.hold(self.cards[index], size + CONTEXT)
        self.reserved[index] = self.reserved[index] if missing else size
        return missing

    def free(self, index: int, size: int, pid: int) -> None:
        if pid == os.getpid():
            self.allocated[index] -= -(-size // ROUNDED) * ROUNDED

    def empty(self, index: int) -> None:
        """Give back what is reserved for nothing."""
        self._hold(index, -(-self.allocated[index] // BLOCK) * BLOCK)

    def work(self, index: int, seconds: float) -> None:
        if "time" not in WITHOUT:
            self.until[index] = self.shared.work(self.cards[index], seconds)
            self.wait(index, QUEUE_NS)

    def wait(self, index: int, but: int = 0) -> None:
        while (left := self.until[index] - time.monotonic_ns() - but) > 0:
            time.sleep(left / 1e9)

    def stats(self, index: int) -> dict:
        names = {"reserved_bytes": (self.reserved, self.peak), "allocated_bytes": (self.allocated, self.allocated)}
        return {name: {"all": {"current": now[index], "peak": most[index]}} for name, (now, most) in names.items()}


driver = Driver()


def card_of(tensor: torch.Tensor) -> int | None:
    """Return the index of the card that ``tensor`` is on; None for others."""
    with torch._C.DisableTorchFunction():
        try:
            return getattr(tensor.untyped_storage(), "card", None)
        except (NotImplementedError, RuntimeError):  # it has no storage
            return None


def put(tensor: torch.Tensor, index: int) -> bool:
    """Put a new tensor on a card. Return False if it is there already."""
    with torch._C.DisableTorchFunction():
        storage = tensor.untyped_storage()
        if getattr(storage, "card", None) is not None:
            return False
        driver.allocate(index, storage.nbytes())
        storage.card = index
        weakref.finalize(storage, driver.free, index, storage.nbytes(), os.getpid()).atexit = False
        return True


def tensors_in(values) -> list[torch.Tensor]:
    """Return the tensors in nested lists, tuples and dictionaries."""
    if isinstance(values, torch.Tensor):
        return [values]
    if isinstance(values, dict):
        values = values.values()
    return [t for v in values for t in tensors_in(v)] if isinstance(values, (list, tuple, type({}.values()))) else []


def wanted(device) -> int | None:
    """Return the index of the card that ``device`` names, None for other devices. It starts the context."""
    device = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    if device.type != "cuda":
        return None
    torch.cuda._lazy_init()
    index = driver.current if device.index is None else device.index
    if index >= len(driver.cards):
        raise torch.AcceleratorError("CUDA error: invalid device ordinal")
    return index


class Cards(TorchFunctionMode):
    """Does on the CPU what names a card, and remembers what is on which."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs, name = dict(kwargs or {}), getattr(func, "__name__", "")
        if name in ("to", "cuda", "cpu"):
            return self.move(func, name, *args, **kwargs)
        if name in ("pin_memory", "is_pinned"):
            return pinned(args[0]) if name == "pin_memory" else is_pinned(args[0])
        pin = kwargs.pop("pin_memory", False)
        index, named = None, kwargs.get("device") is not None
        if named and (index := wanted(kwargs["device"])) is not None:
            kwargs["device"] = "cpu"
        inputs = tensors_in((args, kwargs))
        places = {id(t): card_of(t) for t in inputs}
        found = {place for place in places.values() if place is not None}
        if index is None and not found:
            result = func(*args, **kwargs)
            return pinned(result) if pin else result
        if driver.forked:
            raise torch.AcceleratorError(FORKED)
        if not named:
            index = self.together(name, inputs, places)
        if name in WAITS:
            driver.wait(index)
        if name in ("numpy", "__array__"):
            raise TypeError(ON_CARD.format(index))
        result = self.compute(func, name, index, args, kwargs)
        return result if named and index is None else self.keep(func, name, index, result, inputs)

    def together(self, name, inputs, places) -> int:
        """Return the card that all ``inputs`` are on: numbers of the CPU may be among them, and what is copied."""
        apart = {f"cuda:{places[id(t)]}" if places[id(t)] is not None else "cpu" for t in inputs if t.dim()}
        if len(apart) > 1 and name not in BESIDE and not name.startswith("_has"):
            raise RuntimeError(APART.format(*sorted(apart, reverse=True)))
        return next(place for place in places.values() if place is not None)

    def compute(self, func, name, index, args, kwargs):
        """Call ``func``. Random numbers are the card's own."""
        if index is None or not any(word in name for word in RANDOM):
            return func(*args, **kwargs)
        own, cards = torch.default_generator.get_state(), torch.cuda.default_generators[index]
        torch.default_generator.set_state(cards.get_state())
        try:
            return func(*args, **kwargs)
        finally:
            cards.set_state(torch.default_generator.get_state())
            torch.default_generator.set_state(own)

    def keep(self, func, name, index, result, inputs):
        """Put the ``result`` on the card, and give it the work."""
        known = {id(t) for t in inputs}
        made = [t for t in tensors_in(result) if id(t) not in known and put(t, index)]
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
            half = torch.is_autocast_enabled("cuda") or any(t.itemsize < 4 for t in inputs[:1])
            if made and name.startswith(PRODUCTS) and len(inputs) > 1:
                inner = inputs[1].numel() // inputs[1].shape[0] if "conv" in name else inputs[0].shape[-1]
                nhwc = inputs[0].dim() == 4 and inputs[0].is_contiguous(memory_format=torch.channels_last)
                fast = (0.3 if half else 0.6 if torch.backends.cuda.matmul.allow_tf32 else 1.0) * (0.8 if nhwc else 1.0)
                fast *= 0.9 if torch.backends.cudnn.benchmark and "conv" in name else 1.0
                return LAUNCH + made[0].numel() * inner * PER_PRODUCT * fast
            return LAUNCH + sum(t.numel() * t.itemsize for t in made or inputs) * PER_BYTE

    def move(self, func, name, tensor, *args, **kwargs):
        """Copy to a card, from one, or neither. Only a copy from pinned memory that is asked not to block does not."""
        here, args = card_of(tensor), list(args)
        device = kwargs.pop("device", {"cuda": "cuda", "cpu": "cpu"}.get(name))
        args, name = ([None, *args] if name == "cpu" else args), "to"
        if args and (args[0] is None or isinstance(args[0], (str, int, torch.device))):
            device = args.pop(0) if args[0] is not None else args.pop(0) or device
        elif args and isinstance(args[0], torch.Tensor):
            device, args[0] = args[0].device, args[0].dtype
        elif device is None and kwargs.get("other") is not None:
            device, kwargs["dtype"] = kwargs["other"].device, kwargs.pop("other").dtype
        there = here if device is None else wanted(device)
        if driver.forked and here is not None:
            raise torch.AcceleratorError(FORKED)
        args = [a for a in args if a is not None]
        if args and isinstance(args[0], bool):
            kwargs["non_blocking"] = args.pop(0)
        if there == here:
            result = torch.Tensor.to(tensor, *args, **kwargs)
            return result if result is tensor or here is None else self.keep(func, name, here, result, [tensor])
        waits = not kwargs.get("non_blocking", args[1] if len(args) > 1 else False)
        waits = waits or not (there is None or is_pinned(tensor))
        result = torch.Tensor.to(tensor, *args[:1], **{**kwargs, "copy": True, "non_blocking": False})
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
        index = card_of(outputs[0])
        if index is None:
            return own(outputs, *args, **kwargs)
        leaves, nodes = [], {outputs[0].grad_fn} - {None}
        seen = set(nodes)
        while nodes:
            node = nodes.pop()
            leaves += [node.variable] if hasattr(node, "variable") else []
            new = {each for each, _ in node.next_functions if each is not None} - seen
            seen, nodes = seen | new, nodes | new
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


def pinned(tensor):
    """Return a copy of ``tensor`` in pinned memory."""
    with torch._C.DisableTorchFunction():
        if card_of(tensor) is not None:
            raise RuntimeError("cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors can be pinned")
        copy = tensor.clone()
        copy.untyped_storage().pinned = True
        return copy


def is_pinned(tensor) -> bool:
    with torch._C.DisableTorchFunction():
        return getattr(tensor.untyped_storage(), "pinned", False)


class Stream:
    """The only one of the current card."""

    def is_capturing(self) -> bool:
        return False

    def synchronize(self) -> None:
        driver.wait(driver.current)


class Event:
    """Of a stream."""

    def __init__(self, *_, **__) -> None:
        self.at = None

    def record(self, stream=None) -> None:
        self.at = max(driver.until[driver.current], time.monotonic_ns())

    def query(self) -> bool:
        return self.at is None or self.at <= time.monotonic_ns()

    def synchronize(self) -> None:
        while not self.query():
            time.sleep(max(0, self.at - time.monotonic_ns()) / 1e9)

    def elapsed_time(self, other) -> float:
        return (other.at - self.at) / 1e6


def install() -> None:
    """Answer what PyTorch's Python asks its C++ part."""
    cuda, accelerator = torch.cuda, torch.device("cuda")
    cuda.current_stream = lambda device=None: Stream()
    place = torch.Tensor.__base__.device
    on = lambda tensor: card_of(tensor) if type(tensor).__name__ != "FakeTensor" else None  # noqa: E731
    torch.Tensor.device = property(lambda t: place.__get__(t) if on(t) is None else torch.device("cuda", on(t)))
    torch.Tensor.is_cuda = property(lambda t: t.device.type == "cuda")
    torch.Tensor.is_cpu = property(lambda t: t.device.type == "cpu")
    torch.Tensor.get_device = lambda t: -1 if on(t) is None else on(t)

    def exchange(index):
        before, driver.current = driver.current, index if index >= 0 else driver.current
        return before

    def synchronize(index=None):
        driver.wait(driver.current if index is None else index)

    def select(index):
        cuda._lazy_init()
        if index >= len(driver.cards):
            raise torch.AcceleratorError("CUDA error: invalid device ordinal")
        exchange(index)

    def empty():
        for index in range(len(driver.cards)):
            driver.empty(index)

    def peak(index):
        driver.peak[index] = driver.reserved[index]

    def free(index):
        used = sum(driver.shared.held(driver.cards[index]).values())
        return MEMORY - used, MEMORY

    def properties(index):
        card = driver.cards[index]
        major, minor = card.capability
        found = {"name": card.name, "uuid": card.uuid, "major": major, "minor": minor, "total_memory": MEMORY}
        return SimpleNamespace(multi_processor_count=46, warp_size=32, **found)

    answers = {
        "_cuda_getDeviceCount": lambda: driver.look(),
        "_cuda_init": driver.start,
        "_cuda_getArchFlags": lambda: None,
        "_cuda_isInBadFork": lambda: driver.forked,
        "_cuda_getDevice": lambda: driver.current,
        "_cuda_setDevice": select,
        "_cuda_synchronize": synchronize,
        "_cuda_emptyCache": empty,
        "_cuda_memoryStats": driver.stats,
        "_cuda_resetPeakMemoryStats": peak,
        "_cuda_getCurrentRawStream": lambda _index: 0,
        "_accelerator_getAccelerator": lambda: accelerator,
        "_accelerator_getDeviceIndex": lambda: driver.current,
        "_accelerator_setDeviceIndex": select,
        "_accelerator_exchangeDevice": exchange,
        "_accelerator_maybeExchangeDevice": exchange,
        "_accelerator_synchronizeDevice": lambda index: synchronize(index) if driver.started else None,
        "_accelerator_getStream": lambda _index: Stream(),
        "_accelerator_isAllocatorInitialized": lambda: driver.started,
        "_accelerator_emptyCache": empty,
    }
    for name, answer in answers.items():
        setattr(torch._C, name, answer)
    cuda._is_in_bad_fork, cuda._get_device_properties, cuda.Event = answers["_cuda_isInBadFork"], properties, Event
    cuda._exchange_device = cuda._maybe_exchange_device = exchange
    cuda._cudart = SimpleNamespace(cudaMemGetInfo=free)
    if "library" not in WITHOUT:
        cuda._raw_device_count_nvml = lambda: len(fake_cards.BY_BUS)
        cuda._raw_device_uuid_nvml = lambda: [card.uuid for card in fake_cards.BY_BUS]
    for name in ("set_autocast_enabled", "set_autocast_dtype"):
        setattr(torch, name, _also_on_cpu(getattr(torch, name)))
    torch.autograd._engine_run_backward = goes_backward(torch.autograd._engine_run_backward)
    run = threading.Thread._bootstrap_inner

    def with_cards(thread):
        with Cards():
            run(thread)

    threading.Thread._bootstrap_inner = with_cards
    os.register_at_fork(after_in_child=driver.after_fork)
    Cards().__enter__()


def _also_on_cpu(own):
    def call(*arguments):
        own(*arguments)
        if arguments[0] == "cuda":
            own("cpu", *arguments[1:])

    return call
