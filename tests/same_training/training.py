"""The training loop, written once for both sides, with everything a `Case` may ask of it."""

import contextlib
import copy
import io
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from tests.same_training import data, loaders, models, optimizers, record
from tests.same_training.case import BATCH, BATCHES, Case
from tests.same_training.record import Record
from tests.same_training.sides import PlainSide

PHASES = {
    "none": ("tested",),
    "before": ("plain", "tested"),  # plain PyTorch's checkpoint, loaded before prepare
    "after": ("plain", "tested"),  # the same, loaded after prepare
    "own": ("tested", "tested"),
    "back": ("tested", "plain"),  # a checkpoint made under the profile goes on in plain PyTorch
}
"""Which side runs each half, by ``Case.checkpoint``."""
SEED = 5
APART = 1000
"""Between the seeds of two ranks: nothing may rely on ranks that happen to agree."""


class BadBatch(Exception):
    """The user's own code failed on one batch."""


def run(case: Case, tested: Callable[[], PlainSide], plain: Callable[[], PlainSide], batch: int = BATCH) -> Record:
    """Train ``case`` and say what came out. ``batch``: of the side under test, where the profile replaces it."""
    out, state = Record(), None
    phases = PHASES[case.checkpoint]
    for number, name in enumerate(phases):
        out.begin()
        side = (tested if name == "tested" else plain)()
        try:
            training = Training(case, side, out, batch if name == "tested" else BATCH)
            training.start(state)
            state = training.finish([0, 1] if len(phases) == 1 else [number])
        finally:
            side.close()
    return out


class Training:
    """One half of a training: from building the model to its checkpoint."""

    def __init__(self, case: Case, side: PlainSide, out: Record, batch: int) -> None:
        self.case, self.side, self.record = case, side, out
        seed = SEED + APART * side.rank
        torch.manual_seed(seed)
        self.networks = models.build(case.model)
        self.average = copy.deepcopy(self.networks["main"]) if case.model == "ema" else None
        self.optimizers = optimizers.build(case.optimizer, self.networks)
        self.loader: Any = loaders.train(case, seed, batch)
        self.evaluation: Any = loaders.evaluation(case, shuffle=case.loop == "evaluate_shuffled")
        self.second: Any = loaders.second(case) if case.loop == "two_loaders" else None
        own = record.length(loaders.train(case, seed)) or BATCHES  # a script asks its own loader, not the prepared one
        self.schedulers = optimizers.schedulers(case.schedule, self.optimizers, own)

    def start(self, state: bytes | None) -> None:
        """Prepare, and load a checkpoint before or after that."""
        if state is not None and self.case.checkpoint == "before":
            self._load(state)
        self._prepare()
        if state is not None and self.case.checkpoint != "before":
            self._load(state)
        self.record.facts["len(loader)"] = record.length(self.loader)

    def _prepare(self) -> None:
        networks = list(self.networks.values())
        others = [self.loader, self.evaluation, *([self.second] if self.second is not None else [])]
        ready = self.side.prepare(*networks, *self.optimizers, *others, *self.schedulers)
        prepared = iter(ready)
        self.networks = {name: next(prepared) for name in self.networks}
        self.optimizers = [next(prepared) for _ in self.optimizers]
        self.loader, self.evaluation = next(prepared), next(prepared)
        self.second = next(prepared) if self.second is not None else None
        self.schedulers = list(prepared)

    def finish(self, epochs: list[int]) -> bytes:
        """Train, and return the checkpoint that the user would write."""
        for epoch in epochs:
            self._epoch(epoch)
        self.record.heard(*self.side.said())
        return self._save()

    # One epoch ----------------------------------------------------------------------------------------------------

    def _epoch(self, number: int) -> None:
        case = self.case
        if case.model == "unfrozen_later" and number == 1:
            models.unfreeze(self.networks)
        if case.loop == "reset" and number == 1:
            models.reset(self.side.unwrap(next(iter(self.networks.values()))))
        loaders.next_epoch(case, self.loader, number)
        if case.loop == "peek" and self.side.rank == 0 and self.side.peeks:
            next(iter(self.loader))
        kept = []
        for step, batch in enumerate(self._until_it_fails()):
            if case.loop == "keeps":
                kept.append(data.parts(batch[0])[2])
            if case.loop == "break" and number == 0 and step == 2:
                break
            try:
                self._step(step, batch)
            except BadBatch:
                self._clear()
            if case.loop.startswith("evaluate") and step == 1:
                self._evaluate()
        self.record.facts[f"kept in epoch {number}"] = [targets.tolist() for targets in kept]
        if case.schedule == "per_epoch":
            self._schedule()
        elif case.schedule == "plateau":
            self._schedule(self._evaluate())

    def _until_it_fails(self) -> Iterator[tuple[Any, Any]]:
        """Yield batches up to the one with a sample that cannot be read."""
        try:
            yield from self._batches()
        except OSError as error:
            self.record.facts[f"error {len(self.record.orders['train'])}"] = f"{error!r} {error.errno} {error.filename}"

    def _batches(self) -> Iterator[tuple[Any, Any]]:
        if self.case.loop == "twice_at_once":
            return zip(self.loader, self.loader, strict=False)
        if self.second is not None:
            return zip(self.loader, self.second, strict=False)
        if self.case.loop == "copies":
            return ((batch, None) for batch in copy.copy(self.loader))
        if self.case.loop == "reads_ahead":
            return ((batch, None) for batch in _read_ahead(self.loader))
        if self.case.loop == "counted":
            passing = iter(self.loader)
            return ((next(passing), None) for _ in range(len(passing)))
        return ((batch, None) for batch in self.loader)

    def _step(self, step: int, batches: tuple[Any, Any]) -> None:
        case = self.case
        for name, batch in zip(("train", "second"), batches, strict=True):
            if batch is not None:
                self.record.orders[name].append(data.parts(batch)[0].tolist())
                self.record.facts[f"class of a {name} batch"] = type(batch).__name__
        if case.model == "gan":
            self._adversarial(step, batches[0])
        elif case.optimizer == "lbfgs":
            self.optimizers[0].step(lambda: self._closure(batches))
        elif not self._gradients(step, batches):
            return
        else:
            self._clip(self.networks)
            for optimizer in self.optimizers:
                optimizer.step()
            self._clear()
        self._stepped()

    def _gradients(self, step: int, batches: tuple[Any, Any]) -> bool:
        """Backward pass of one batch. False where no optimizer step follows."""
        case = self.case
        if case.loop.startswith("accumulate"):
            return self._accumulate(step, batches)
        if case.loop == "skip":
            return self._skip(step, batches)
        loss = self._loss(batches)
        if case.loop == "exception" and step == 1:
            raise BadBatch
        if case.loop == "continue" and step % 3 == 1:
            return False
        self._backward(loss)
        if case.loop == "exception" and step == 2:
            raise BadBatch
        return True

    def _accumulate(self, step: int, batches: tuple[Any, Any]) -> bool:
        """Two batches for each optimizer step, as the user writes it; a last single one waits for the next epoch."""
        held = step % 2 == 0
        apart = held and self.case.loop == "accumulate_no_sync"
        with self.side.no_sync(*self.networks.values()) if apart else contextlib.nullcontext():
            self._backward(self._loss(batches) / 2)
        return not held

    def _skip(self, step: int, batches: tuple[Any, Any]) -> bool:
        """Gradients that are thrown away after a look at them; the next batch's, made apart, are stepped on."""
        if step % 2 == 0:
            self._backward(self._loss(batches))
            self._clear()
            return False
        with self.side.no_sync(*self.networks.values()):
            self._backward(self._loss(batches))
        return True

    def _closure(self, batches: tuple[Any, Any]) -> Tensor:
        self._clear()
        loss = self._loss(batches)
        self._backward(loss)
        self._clip(self.networks)
        return loss

    def _adversarial(self, step: int, batch: Any) -> None:
        """A textbook GAN's step: the discriminator on real and made-up samples, then the generator."""
        generator, discriminator = self.networks.values()
        of_generator, of_discriminator = self.optimizers
        _ids, real, _targets = data.parts(batch)
        made = self.side.call(generator, real.flip(1))
        judged = self.side.call(discriminator, torch.cat([real, made.detach()]))
        wanted = torch.cat([torch.ones(len(real), 1), torch.zeros(len(real), 1)])
        of_discriminator.zero_grad()
        self._backward(nn.functional.binary_cross_entropy_with_logits(judged, wanted))
        self._clip({"discriminator": discriminator})
        of_discriminator.step()
        if self.case.loop == "continue" and step % 3 == 1:
            return
        of_generator.zero_grad()
        fooled = self.side.call(discriminator, made)
        self._backward(nn.functional.binary_cross_entropy_with_logits(fooled, torch.ones_like(fooled)))
        self._clip({"generator": generator})
        of_generator.step()

    # Parts of a step ----------------------------------------------------------------------------------------------

    def _loss(self, batches: tuple[Any, Any]) -> Tensor:
        labelled, unlabelled = batches
        loss = self._loss_of(labelled)
        return loss if unlabelled is None else loss + 0.5 * self._loss_of(unlabelled)

    def _loss_of(self, batch: Any) -> Tensor:
        ids, x, y = data.parts(batch)
        self.side.reads(ids.tolist())
        outputs = models.logits(self.case.model, self.side.call, self.networks, x)
        loss = optimizers.loss(self.case.loss, outputs, y)
        if self.case.model == "teacher":
            with torch.no_grad():
                wanted = self.side.call(self.networks["teacher"], x)
            loss = loss + nn.functional.mse_loss(outputs, wanted)
        return loss

    def _backward(self, loss: Tensor) -> None:
        self.record.add(f"losses.{len(self.record.values)}", float(loss.detach()))
        self.side.backward(loss)

    def _clip(self, networks: dict[str, nn.Module]) -> None:
        if self.case.loop == "clip":
            self.side.clip([p for network in networks.values() for p in network.parameters()], 0.3)

    def _clear(self) -> None:
        for optimizer in self.optimizers:
            optimizer.zero_grad()

    def _stepped(self) -> None:
        if self.case.schedule == "per_step":
            self._schedule()
        if self.average is not None:
            models.follow(self.average, self.side.unwrap(self.networks["main"]))
        for optimizer in self.optimizers:
            rates = [float(group["lr"]) for group in optimizer.param_groups]
            self.record.add(f"learning rates.{len(self.record.values)}", rates)

    def _schedule(self, *figure: float) -> None:
        for scheduler in self.schedulers:
            scheduler.step(*figure)

    def _evaluate(self) -> float:
        """The mean over samples, as a user writes it."""
        for network in self.networks.values():
            network.eval()
        total, count = 0.0, 0
        with torch.no_grad():
            for batch in self.evaluation:
                ids, _x, _y = data.parts(batch)
                self.record.orders["eval"].append(ids.tolist())
                total += float(self._figure(batch)) * len(ids)
                count += len(ids)
        for network in self.networks.values():
            network.train()
        self.record.add(f"evaluation.{len(self.record.values)}", total / count)
        return total / count

    def _figure(self, batch: Any) -> Tensor:
        if self.case.model != "gan":
            return self._loss_of(batch)
        return self.side.call(self.networks["discriminator"], data.parts(batch)[1]).mean()

    # Checkpoints --------------------------------------------------------------------------------------------------

    def _save(self) -> bytes:
        content = {
            "networks": {name: self.side.unwrap(net).state_dict() for name, net in self.networks.items()},
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "schedulers": [scheduler.state_dict() for scheduler in self.schedulers],
        }
        if self.average is not None:
            content["average"] = self.average.state_dict()
        file = io.BytesIO()
        torch.save(content | {"session": self.side.state_dict()}, file)
        self._note_file(file.getvalue())
        return file.getvalue()

    def _note_file(self, file: bytes) -> None:
        """What plain PyTorch reads from the file; the session's own entry is the only thing it may add."""
        content = torch.load(io.BytesIO(file), weights_only=False)
        del content["session"]
        self.record.add("file", content)
        self.record.facts["optimizer state in another order"] = record.reordered(content["optimizers"])
        for name, network in self.networks.items():
            frozen = [key for key, p in self.side.unwrap(network).named_parameters() if not p.requires_grad]
            self.record.facts[f"frozen in {name}"] = frozen

    def _load(self, file: bytes) -> None:
        content = torch.load(io.BytesIO(file), weights_only=False)
        for name, network in self.networks.items():
            self.side.unwrap(network).load_state_dict(content["networks"][name])
        if self.average is not None:
            self.average.load_state_dict(content["average"])
        for optimizer, state in zip(self.optimizers, content["optimizers"], strict=True):
            optimizer.load_state_dict(state)
        for scheduler, state in zip(self.schedulers, content["schedulers"], strict=True):
            scheduler.load_state_dict(state)
        self.side.load_state_dict(content["session"])


def _read_ahead(loader: Any) -> Iterator[Any]:
    """Each batch once the next one is there, as loops that hide copies to a device read."""
    passing = iter(loader)
    waiting = next(passing, None)
    while waiting is not None:
        following = next(passing, None)
        yield waiting
        waiting = following
