"""Plans for the tests of export: one process, two processes on CPUs, and a GPU."""

from autotune.devices import CUDA
from autotune.knobs.allocator import GLIBC_VARIABLES
from autotune.knobs.knob import Plan
from autotune.knobs.settings import Settings

ONE = Plan(Settings(threads=2, interop_threads=1, batch_size=64), environment={"OMP_NUM_THREADS": "2"})
TWO = Plan(
    Settings(
        processes=2,
        threads=1,
        interop_threads=1,
        backend="gloo",
        num_workers=1,
        prefetch_factor=4,
        batch_size=32,
        channels_last=True,
        optimizer_impl="fused",
        malloc="keep",
        precision="bf16",
    ),
    environment={"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", **GLIBC_VARIABLES},
    command="torchrun --standalone --local-addr=127.0.0.1 --nproc-per-node=2 train.py",
    torchrun_backend="gloo",
)
GPU = Plan(
    Settings(threads=4, batch_size=256, pin_memory=True, precision="tf32", cudnn_benchmark=True, compile="default"),
    device=CUDA,
    gpus=2,
    environment={"OMP_NUM_THREADS": "4"},
)
SLEEPING = Plan(
    ONE.settings.but(omp_wait_policy="passive"), environment={"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive"}
)
PLANS = {"one": ONE, "two": TWO, "gpu": GPU, "sleeping": SLEEPING}
