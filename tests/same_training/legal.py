"""Which values go together: `legal` replaces a value that plain PyTorch itself does not take beside the others."""

from dataclasses import replace

from tests.same_training.case import AXES, BATCH_NORM, OWN_WORKERS, STREAMS, Case

SPARSE_OPTIMIZERS = ("sgd", "adagrad")
"""Those of our optimizers that accept sparse gradients."""


ACCUMULATING = ("accumulate", "accumulate_no_sync", "skip")


def legal(case: Case) -> Case:
    """``case``, with what PyTorch refuses or what has no meaning replaced by a plain value."""
    for rule in (_batches, _model, _optimizer, _loop, _loader, _settings):
        case = rule(case)
    return case


def refused_by_tuner(case: Case) -> str | None:
    """Return what the comparison of first steps finds, so that no profile has these settings; None if nothing."""
    if case.processes > 1 and case.loss != "sample_mean":
        return f"{case.loss} loss: the losses of shares of a batch do not add up to its loss"
    if not case.profile:
        return None
    if case.num_workers == own_workers(case):
        return None
    if case.loader == "keeps_state":
        return "num_workers: the data set changes while it is read"
    if case.loader == "worker_init" and case.num_workers == 0:
        return "num_workers: the data set is opened by worker_init_fn"
    if case.loader == "persistent" and case.loop in ("peek", "break"):
        return "num_workers: more workers read to the end of a short epoch, where its order draws, before it is left"
    if case.loop in ("two_loaders", "twice_at_once"):
        return "num_workers: loaders that are read in turn draw their order when they begin"
    return None


def own_workers(case: Case) -> int:
    """Loader workers that the user has asked for."""
    return int(case.loader in OWN_WORKERS)


def _batches(case: Case) -> Case:
    if case.batches == "packed" and case.model != "lstm":
        return replace(case, batches="tuple")
    return case


def _model(case: Case) -> Case:
    if case.model in ("dropout", "noisy") and case.processes > 1:
        case = replace(case, model="layernorm")  # each rank draws its own random numbers, in plain PyTorch too
    if case.model == "batchnorm1d" and case.tail == 1:
        case = replace(case, tail=2)  # PyTorch refuses one sample
    if case.model == "gan":
        case = replace(case, loss="sample_mean")
    return case


def _optimizer(case: Case) -> Case:
    if case.model == "sparse" and case.optimizer not in SPARSE_OPTIMIZERS:
        case = replace(case, optimizer=SPARSE_OPTIMIZERS[len(case.optimizer) % 2])
    if case.optimizer == "lbfgs" and case.model in ("gan", "frozen", "unfrozen_later", "dropout", "noisy"):
        case = replace(case, optimizer="adam")
    if case.optimizer == "lbfgs" and case.precision in ("bf16", "fp16"):
        case = replace(case, precision="fp32")  # its line of steps amplifies rounding without bound
    return case


def _loop(case: Case) -> Case:
    if case.optimizer == "lbfgs" and case.loop in (*ACCUMULATING, "exception", "continue"):
        case = replace(case, loop="plain")
    if case.model == "gan" and case.loop in (*ACCUMULATING, "two_loaders", "exception", "twice_at_once"):
        case = replace(case, loop="plain")
    if case.model == "sparse" and case.loop == "clip":
        case = replace(case, loop="plain")  # clipping does not take sparse gradients
    return case


def _loader(case: Case) -> Case:
    if case.loop == "reset" and case.processes > 1:
        case = replace(case, checkpoint="none")  # ranks are seeded apart, and draw alike once a pass has begun
    if case.loop in ("continue", "accumulate_no_sync") and case.model in BATCH_NORM and case.processes > 1:
        case = replace(case, loop="plain")  # shares of a batch that no step follows are never averaged
    if case.loop == "counted" and case.loader in (*STREAMS, "sampler_unsized"):
        case = replace(case, loop="plain")  # nothing to count
    if case.loop == "keeps" and case.processes > 1:
        case = replace(case, loop="plain")  # each keeps its part
    if case.loop == "copies" and (case.processes > 1 or case.level == "max" or case.loader in OWN_WORKERS):
        case = replace(case, loop="plain")  # a copy was not prepared: each process reads all of it, in its own batches
    if case.loop == "twice_at_once" and case.loader in (*STREAMS, *OWN_WORKERS):
        case = replace(case, loop="plain")  # PyTorch has one set of persistent workers
    if case.loader == "fails" and (case.processes > 1 or case.loop == "peek" or case.level == "max"):
        case = replace(case, loader="shuffled")  # a process would go on alone; where it fails, other batches do
    if case.loader in (*OWN_WORKERS, "keeps_state") and case.processes > 1:
        case = replace(case, loader="shuffled" if case.loader == "worker_init" else "generator")
    if case.loader in STREAMS and case.processes > 1 and case.num_workers:
        case = replace(case, num_workers=0)
    return case


def _settings(case: Case) -> Case:
    if case.num_workers == 0:
        case = replace(case, prefetch_factor=2)
    if not case.profile:
        neutral = {name: Case.__dataclass_fields__[name].default for name in SETTINGS}
        case = replace(case, **neutral, level=None, profile_batch="same")
    return case


SETTINGS = tuple(list(AXES)[list(AXES).index("threads") :])
"""Axes that are knobs of the profile."""
