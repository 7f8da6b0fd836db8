"""The learning rate over a run: a rise in proportion, then half a cosine down to zero.

Train one run, or go on with it where it was left.

Everything random is a function of (seed, epoch, sample) or (seed, step), and arithmetic goes by the global batch: a run that
was killed and goes on gives the metrics of one that was not, bit by bit on a CPU with as many threads, and several processes
give those of one, to rounding, if nothing is dropped and nothing sampled: dropout and drop-path draw in each process for
itself, and so does what samples boxes to learn from, in the tasks detect and masks.
"""

import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from ropewalk.lab.config import Config
from ropewalk.lab.data.base import same_data_facts
from ropewalk.lab.data.data_hash import describe_data
from ropewalk.lab.environment import COMPILE_CACHE_TAG, describe_environment, disable_cudnn_attention
from ropewalk.lab.errors import DamagedFileError, NonFiniteLossError
from ropewalk.lab.hash_random import derive_seed
from ropewalk.lab.init_from import TrainableModel, initialize_from_run
from ropewalk.lab.lamb import Lamb
from ropewalk.lab.run_store import PREDICTIONS_FILE, RunFolder, write_atomically
from ropewalk.lab.tasks import build_task
from ropewalk.lab.tasks.base import PicturedTask
from ropewalk.lab.tasks.classify import open_image_data
from ropewalk.lab.training_diagnosis import (
    disable_compilation,
    find_nonfinite_weights,
    record_nonfinite_layers,
    warn_compiled_features,
    warn_compiled_loss,
)
from ropewalk.lab.vision_heads.backbone import DenseModel


def compute_learning_rate(step: int, *, highest: float, warmup: int, steps: int) -> float:
    """Of step 0, 1, …: highest · (step + 1) / warmup at first, then highest · (1 + cos(π t)) / 2 with t from 0 to 1."""
    if step < warmup:
        return highest * (step + 1) / warmup
    return highest * (1 + math.cos(math.pi * (step - warmup) / max(steps - warmup, 1))) / 2


EpochCallback = Callable[[Mapping[str, Any]], None]
RECOMPILE_LIMIT = 200
"""Encodings, and ways of calling them, that may be compiled in one process; beyond that they would run uncompiled."""
CHECKPOINT_INTERVAL_FACTOR = 20
"""A checkpoint is written when the last one took a twentieth of the time since, or when it is due."""


def train_run(
    config: Config, runs: Path, *, watch: EpochCallback = lambda record: None, trackers: tuple[str, ...] = ()
) -> RunFolder:
    """Train to the end, test once, and return the run. One that is done is left as it is."""
    run = RunFolder(runs, config)
    if run.result() is not None:
        return run
    precision = "bf16" if config.precision == "bfloat16" else "no"
    AcceleratorState._reset_state()  # another run in this process may have had another precision
    accelerator = Accelerator(mixed_precision=precision, log_with=list(trackers) or None, project_dir=str(run.path))
    if accelerator.is_main_process:
        processes = accelerator.num_processes
        run.acquire(describe_environment(accelerator.device, processes=processes, compiled=config.compile))
    accelerator.wait_for_everyone()
    if trackers:
        accelerator.init_trackers("ropewalk", config=_flatten_settings(config.document()))
    try:
        trainer = Trainer(config, run, accelerator, watch)
        if accelerator.is_main_process:
            run.update_environment(**trainer.describe_inputs())
        trainer.run_training()
    finally:
        run.release()
        if trackers:
            accelerator.end_training()
    return run


class Trainer:
    """The state of a run: weights, their average, the optimiser, and how far it is."""

    def __init__(self, config: Config, run: RunFolder, accelerator: Accelerator, watch: EpochCallback) -> None:
        self.config, self.run, self.accelerator, self.watch = config, run, accelerator, watch
        self.task = build_task(config, accelerator.device)
        self.plain, self.per_epoch = self.task.model, self.task.steps
        if config.compile:  # as CUDA graphs, unless processes talk to each other: launching takes longer than a step
            torch._dynamo.config.recompile_limit = RECOMPILE_LIMIT
            torch.compiler.config.cache_key_tag = COMPILE_CACHE_TAG
            graphs = accelerator.device.type == "cuda" and accelerator.num_processes == 1
            self.plain.compile(dynamic=False, mode="reduce-overhead" if graphs else None)
        self.model = self.plain if accelerator.num_processes == 1 else accelerator.prepare(self.plain)
        self.optimiser = build_optimizer(config, self.plain)  # prepared, it would look for a package on disk in every step
        self.average = self._averaged()
        self.epoch, self.step, self.seconds = 0, 0, 0.0
        self.unjudged: dict[str, Any] | None = None
        self.kept, self.writing = time.monotonic(), 0.0

    def _averaged(self) -> AveragedModel | None:
        decay = self.config.ema
        return (
            None if decay is None else AveragedModel(self.plain, multi_avg_fn=get_ema_multi_avg_fn(decay), use_buffers=True)
        )

    @property
    def judged(self) -> nn.Module:
        """What is evaluated: the moving average of the weights, if there is one."""
        return self.model if self.average is None else self.average

    def run_training(self) -> None:
        """All epochs that are left, then the test set."""
        self.resume()
        with self.telling():
            if self.unjudged is not None:
                self.judge(self.unjudged)
            while self.epoch < self.config.epochs:
                record = self.one_epoch()
                if self.config.validates_at(self.epoch):
                    self.judge(record)
                self.watch(record)
            self.finish()

    def judge(self, record: dict[str, Any]) -> None:
        """Validate an epoch and write down what came. If files fail, its state is kept, and it is judged on resuming."""
        try:
            record |= self.validated()
        except ValueError:
            if self.accelerator.is_main_process:
                self.save(unjudged=record)
            raise
        self.keep(record)

    @contextmanager
    def telling(self) -> Iterator[None]:
        """What is wrong with files costs no more than what came after the last state that was kept, and that is said."""
        try:
            yield
        except ValueError as error:
            held = self.run.load()
            kept = f"{self.run.path} keeps the state of epoch {held[1]['epoch'] if held else 0}"
            raise ValueError(f"{error}; {kept}, and the same command goes on from there") from error

    def validated(self) -> dict[str, float]:
        """Scores on the validation set, which are numbers."""
        scores = self.scores("validation")
        if not math.isfinite(scores["loss"]):
            kept = f"{self.run.path} keeps the last good state"
            raise NonFiniteLossError(f"after epoch {self.epoch} the validation loss is {scores['loss']}; {kept}")
        return prefix_scores("validation", scores)

    def one_epoch(self) -> dict[str, Any]:
        """One pass over the training set: the mean of its losses."""
        start = time.perf_counter()
        self.model.train()
        total = torch.zeros((), device=self.accelerator.device)
        for batch in self.batches():
            total += self.one_step(batch)
            self.step += 1
        self.epoch += 1
        loss = self.accelerator.reduce(total, "mean").item() / self.per_epoch
        self.seconds += time.perf_counter() - start
        if not math.isfinite(loss):
            raise NonFiniteLossError(self.told(loss))
        return {"step": self.step, "epoch": self.epoch, "loss": loss, "learning_rate": self.rate(self.step - 1)}

    def batches(self) -> Iterator[Any]:
        """This process's share of each batch of the epoch."""
        return self.task.batches(self.epoch, self.accelerator.process_index, self.accelerator.num_processes)

    def one_step(self, batch: Any) -> Tensor:
        """Forward, backward, update; the loss, left on the device."""
        config = self.config
        torch.manual_seed(derive_seed(config.seed, self.step, self.accelerator.process_index))
        rank = self.accelerator.process_index
        with self.accelerator.autocast(), disable_cudnn_attention():
            loss = self.task.loss(self.model, batch, epoch=self.epoch, step=self.step, rank=rank)
        self.accelerator.backward(loss)
        if config.clip is not None:
            self.accelerator.clip_grad_norm_(self.model.parameters(), config.clip)
        for group in self.optimiser.param_groups:
            group["lr"] = self.rate(self.step)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        if self.average is not None:
            self.average.update_parameters(self.plain)
        return loss.detach()

    def told(self, loss: float) -> str:
        """Where the loss of an epoch ceased to be a number, found by going through the steps since the checkpoint again."""
        words = f"the loss of epoch {self.epoch} is {loss}"
        self.epoch, self.step = 0, 0
        self.resume()
        kept = f"{self.run.path} keeps the state of epoch {self.epoch}"
        with torch.compiler.set_stance("force_eager"):
            return f"{words}: {self._retraced()}; {kept}"

    def _retraced(self) -> str:
        self.plain.train()
        while self.epoch < self.config.epochs:
            for batch in self.batches():
                with record_nonfinite_layers(self.plain) as seen:
                    self.one_step(batch)
                if seen:
                    return f"in step {self.step} {seen[0]} is the first layer to give numbers that are not finite"
                if names := find_nonfinite_weights(self.plain):
                    return f"step {self.step} made {len(names)} weights that are not finite, {names[0]} first"
                self.step += 1
            self.epoch += 1
        return "it did not come again"

    def rate(self, step: int) -> float:
        """The learning rate of a step."""
        warmup, steps = round(self.config.warmup * self.per_epoch), self.config.epochs * self.per_epoch
        return compute_learning_rate(step, highest=self.config.learning_rate, warmup=warmup, steps=steps)

    def scores(self, split: str) -> Mapping[str, float]:
        """Of what is judged, on a part of the data."""
        with self.accelerator.autocast():
            return self.task.scores(self.judged, split, self.accelerator)

    # On disk

    def describe_inputs(self) -> dict[str, Any]:
        """The encoding as built, the data, and the seed by which samples were permuted or split, for the run's record."""
        index_seed: int | None = getattr(self.task, "index_seed", None)
        data = describe_data(self.config, self.task.facts())
        return {"encoding": self.plain.encoding.config(), "data": data, "index_seed": index_seed}

    def keep(self, record: Mapping[str, Any]) -> None:
        """Write down what was measured, then, if it is time, the state; what is later than that is cut off on resuming."""
        due = self.kept + min(self.config.checkpoint, CHECKPOINT_INTERVAL_FACTOR * self.writing)
        if self.accelerator.is_main_process:
            self.run.log(**record, seconds=self.seconds)
            if self.epoch == self.config.epochs or time.monotonic() >= due:
                self.save()
        self.accelerator.log({name: value for name, value in record.items() if name != "step"}, step=self.step)

    def save(self, **more: Any) -> None:
        """Write the state, and what else is to be known of it, and remember how long that takes."""
        begun = time.monotonic()
        facts = {"epoch": self.epoch, "step": self.step, "seconds": self.seconds, "data": self.task.facts()}
        self.run.save(self.tensors(), **facts, **more)
        self.kept = time.monotonic()
        self.writing = self.kept - begun

    def _check_data(self, facts: Mapping[str, Any]) -> None:
        """Refuse to go on with other data than the run began with."""
        if not same_data_facts(facts, here := self.task.facts()):
            raise DamagedFileError(
                f"{self.run.path} was begun with other data under this name: {facts}, where now there are {here}"
            )

    def tensors(self) -> dict[str, Tensor]:
        """Weights, their average, and the state of the optimiser, by name."""
        found = {f"model/{name}": value for name, value in self.plain.state_dict().items()}
        if self.average is not None:
            found |= {f"average/{name}": value for name, value in self.average.state_dict().items()}
        for number, state in self.optimiser.state_dict()["state"].items():
            found |= {f"optimiser/{number}/{name}": torch.as_tensor(value) for name, value in state.items()}
        return found

    def resume(self) -> None:
        """Take up the checkpoint and cut off what was measured after it; a run that begins writes one."""
        held = self.run.load()
        self.accelerator.wait_for_everyone()  # all have looked before one writes
        if held is None:
            if self.config.start_path is not None:
                initialize_from_run(self.plain, RunFolder.at(self.config.start_path))
            if self.accelerator.is_main_process:
                self.run.cut(0)
                self.save()
            return
        tensors, facts = held
        self._check_data(facts["data"])
        parts: dict[str, dict[str, Tensor]] = {"model": {}, "average": {}, "optimiser": {}}
        for name, value in tensors.items():
            part, _, rest = name.partition("/")
            parts[part][rest] = value
        self.plain.load_state_dict(parts["model"])
        if self.average is not None:
            self.average.load_state_dict(parts["average"])
        state: dict[int, dict[str, Tensor]] = {}
        for name, value in parts["optimiser"].items():
            number, _, rest = name.partition("/")
            state.setdefault(int(number), {})[rest] = value
        self.optimiser.load_state_dict(self.optimiser.state_dict() | {"state": state})
        self.epoch, self.step, self.seconds = facts["epoch"], facts["step"], facts["seconds"]
        self.unjudged = facts.get("unjudged")
        if self.accelerator.is_main_process:
            self.run.cut(self.step if self.unjudged is None else self.step - 1)

    def finish(self) -> None:
        """Test, once, and write down what the run came to. The last word has the model as it is written, uncompiled."""
        judged = self.config.compile and not isinstance(self.plain, DenseModel)  # whose evaluation is never compiled
        compiled = self.validated()["validation_loss"] if judged else None
        with disable_compilation(self.plain):
            result = prefix_scores("test", self.scores("test")) | self.validated()
        if compiled is not None:
            warn_compiled_loss(compiled, result["validation_loss"])
        elif self.config.compile:
            self.doubt()
        count = sum(weight.numel() for weight in self.plain.parameters())
        own = sum(weight.numel() for weight in self.plain.encoding.parameters())
        if self.accelerator.is_main_process:
            self.draw()
            self.run.finish(**result, step=self.step, seconds=self.seconds, parameters=count, encoding_parameters=own)

    def doubt(self) -> None:
        """Warn if a dense model was compiled wrongly: it is shown noise that is normalised, as its images are."""
        if isinstance(self.plain, DenseModel):
            share = self.config.batch // self.accelerator.num_processes
            images = torch.randn(share, 3, *self.task.facts()["size"], device=self.accelerator.device)
            with self.accelerator.autocast(), disable_cudnn_attention():
                warn_compiled_features(self.plain, images)

    def draw(self) -> None:
        """Keep a picture of what the model finds, of tasks that have one. Where it cannot be drawn, the result is kept."""
        if not isinstance(self.task, PicturedTask):
            return
        try:
            with self.accelerator.autocast():
                picture = self.task.picture(self.judged)
            write_atomically(self.run.path / PREDICTIONS_FILE, lambda part: part.write_bytes(picture))
        except Exception as error:
            warnings.warn(f"the result is kept, but {PREDICTIONS_FILE} could not be drawn: {error}", stacklevel=2)


def build_optimizer(config: Config, model: TrainableModel) -> torch.optim.Optimizer:
    """AdamW or LAMB; weight decay for weights that it does not spoil."""
    spared = model.no_weight_decay()
    named = list(model.named_parameters())
    groups = [
        {"params": [weight for name, weight in named if name not in spared], "weight_decay": config.weight_decay},
        {"params": [weight for name, weight in named if name in spared], "weight_decay": 0.0},
    ]
    if config.optimiser == "lamb":
        return Lamb(groups, lr=config.learning_rate)
    return torch.optim.AdamW(groups, lr=config.learning_rate, fused=True)


def prefix_scores(split: str, scores: Mapping[str, float]) -> dict[str, float]:
    """Scores under the name of what they were made on."""
    return {f"{split}_{name}": value for name, value in scores.items()}


def _flatten_settings(document: Mapping[str, Any]) -> dict[str, Any]:
    """What trackers take: no lists, no objects."""
    return {name: value if isinstance(value, int | float | str | bool) else str(value) for name, value in document.items()}


# Former names, which scripts may import.
train, open_data = train_run, open_image_data
