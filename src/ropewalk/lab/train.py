"""The training loop: train one run, or resume it.

All randomness is a function of (seed, epoch, sample) or (seed, step), and arithmetic depends on the global batch. A run that
was killed and resumed therefore gives the same metrics as an undisturbed one, bit by bit on a CPU with as many threads, and
several processes give those of one to rounding. The exceptions are dropout, drop-path and the sampling of boxes in detect
and masks, which each process draws for itself.
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
from ropewalk.lab.console import is_main_process
from ropewalk.lab.data.base import same_data_facts
from ropewalk.lab.data.dataset_registry import LISTING_HASH, describe_data
from ropewalk.lab.environment import COMPILE_CACHE_TAG, describe_environment, disable_cudnn_attention, use_trackers
from ropewalk.lab.errors import DamagedFileError, NonFiniteLossError
from ropewalk.lab.hash_random import derive_seed
from ropewalk.lab.init_from import initialize_from_run
from ropewalk.lab.optimizer import (
    build_optimizer,
    compute_learning_rate,
    describe_optimizer,
    restore_optimizer,
    set_learning_rate,
)
from ropewalk.lab.record import pack_bits
from ropewalk.lab.run_store import PREDICTIONS_FILE, RunFolder
from ropewalk.lab.sealed_files import write_atomically
from ropewalk.lab.tasks import build_task
from ropewalk.lab.tasks.base import PerImageTask, PicturedTask
from ropewalk.lab.tasks.classify import open_image_data
from ropewalk.lab.training_diagnosis import (
    disable_compilation,
    find_nonfinite_weights,
    record_nonfinite_layers,
    warn_compiled_features,
    warn_compiled_loss,
)
from ropewalk.lab.vision_heads.backbone import DenseModel

EpochCallback = Callable[[Mapping[str, Any]], None]
RECOMPILE_LIMIT = 200
"""Encodings, and ways of calling them, that may be compiled in one process; beyond that they would run uncompiled."""
CHECKPOINT_INTERVAL_FACTOR = 20
"""Checkpoints take at most one part in so many of the time, unless their interval is set shorter."""
STEPS_BETWEEN_AGREEMENTS = 50
"""Steps after which several processes agree on whether a checkpoint is due; each agreement waits for the device."""


def train_run(
    config: Config, runs: Path | str, *, watch: EpochCallback = lambda record: None, trackers: tuple[str, ...] = ()
) -> RunFolder:
    """Train to the end, evaluate once on the test set, and return the run. A finished run is returned as it is.

    config    All settings.
    runs      The directory of runs, a path or a file:// URL; the run gets a directory of its own in it, or resumes there.
    watch     Called after each epoch with step, epoch, loss, learning_rate and, where it was validated, its scores.
    trackers  Names of experiment trackers, as accelerate has them.
    """
    run = RunFolder(runs, config)
    if run.result() is not None:
        if is_main_process():
            run.restore_config()
        return run
    precision = "bf16" if config.precision == "bfloat16" else "no"
    AcceleratorState._reset_state()  # another run in this process may have had another precision
    accelerator = Accelerator(mixed_precision=precision, log_with=list(trackers) or None, project_dir=str(run.path))
    if accelerator.is_main_process:
        processes = accelerator.num_processes
        run.acquire(describe_environment(accelerator.device, processes=processes, compiled=config.compile))
    try:
        accelerator.wait_for_everyone()
        if run.result() is not None:  # another process has finished it before this one had the lock
            return run
        with use_trackers(accelerator, trackers, config.document()):
            Trainer(config, run, accelerator, watch).run_training()
    finally:
        run.release()
    return run


class Trainer:
    """The state of a training: the model, its moving average, the optimizer, and the place in the run.

    epoch, step  Epochs completed and steps taken.
    batch        Batches of the current epoch that were trained on; `losses` is the sum of their losses.
    seconds      Spent on training, without validation and checkpoints.
    """

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
        self.average = self._build_average()
        self.epoch, self.step, self.batch, self.seconds = 0, 0, 0, 0.0
        self.losses = torch.zeros((), device=accelerator.device)
        self.unvalidated: dict[str, Any] | None = None
        self._clock = time.perf_counter()
        self._saved_at, self._saving_time = time.monotonic(), 0.0

    def _build_average(self) -> AveragedModel | None:
        if (decay := self.config.ema) is None:
            return None
        return AveragedModel(self.plain, multi_avg_fn=get_ema_multi_avg_fn(decay), use_buffers=True)

    @property
    def evaluated_model(self) -> nn.Module:
        """The moving average of the weights, if there is one."""
        return self.model if self.average is None else self.average

    def run_training(self) -> None:
        """Train the epochs that are left, then evaluate on the test set."""
        self.resume_training()
        if self.accelerator.is_main_process:
            self.record_inputs()
        with self._name_saved_state():
            if self.unvalidated is not None:
                self.validate_epoch(self.unvalidated)
            while self.epoch < self.config.epochs:
                record = self.train_epoch()
                if self.config.validates_at(self.epoch):
                    self.validate_epoch(record)
                elif self.accelerator.is_main_process and self._is_checkpoint_due():
                    self.save_checkpoint()
                self.watch(record)
            self.finish_run()

    # Training

    def train_epoch(self) -> dict[str, Any]:
        """Train to the end of an epoch; its mean loss, with that of batches before a resumption."""
        self._clock = time.perf_counter()
        self.model.train()
        for batch in self.load_batches():
            self.losses += self.train_step(batch)
            self.step, self.batch = self.step + 1, self.batch + 1
            if self.batch < self.per_epoch and self._is_checkpoint_due_within_epoch():
                self._save_within_epoch()
        loss = self.accelerator.reduce(self.losses, "mean").item() / self.per_epoch
        self._count_seconds()
        self._start_epoch(self.epoch + 1)
        if not math.isfinite(loss):
            raise NonFiniteLossError(self._explain_nonfinite_loss(loss))
        rate = self.compute_rate(self.step - 1)
        return {"step": self.step, "epoch": self.epoch, "loss": loss, "learning_rate": rate}

    def load_batches(self) -> Iterator[Any]:
        """This process's share of each batch of the epoch that is left."""
        rank, world = self.accelerator.process_index, self.accelerator.num_processes
        return self.task.batches(self.epoch, rank, world, first=self.batch)

    def train_step(self, batch: Any) -> Tensor:
        """Forward and backward pass and update; the loss, left on the device."""
        config, rank = self.config, self.accelerator.process_index
        torch.manual_seed(derive_seed(config.seed, self.step, rank))
        with self.accelerator.autocast(), disable_cudnn_attention():
            loss = self.task.loss(self.model, batch, epoch=self.epoch, step=self.step, rank=rank)
        self.accelerator.backward(loss)
        if config.clip is not None:
            self.accelerator.clip_grad_norm_(self.model.parameters(), config.clip)
        set_learning_rate(self.optimiser, self.compute_rate(self.step))
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        if self.average is not None:
            self.average.update_parameters(self.plain)
        return loss.detach()

    def compute_rate(self, step: int) -> float:
        """The learning rate of a step."""
        warmup, steps = round(self.config.warmup * self.per_epoch), self.config.epochs * self.per_epoch
        return compute_learning_rate(step, highest=self.config.learning_rate, warmup=warmup, steps=steps)

    def _start_epoch(self, epoch: int) -> None:
        self.epoch, self.batch = epoch, 0
        self.losses = torch.zeros_like(self.losses)

    def _count_seconds(self) -> None:
        now = time.perf_counter()
        self.seconds, self._clock = self.seconds + now - self._clock, now

    # Losses that are not finite

    def _explain_nonfinite_loss(self, loss: float) -> str:
        """Repeat the steps since the checkpoint to find where the loss of an epoch became NaN or infinite."""
        words = f"the loss of epoch {self.epoch} is {loss}"
        self.step = 0
        self._start_epoch(0)
        self.resume_training()
        saved = f"{self.run.path} keeps the state of epoch {self.epoch}"
        with torch.compiler.set_stance("force_eager"):
            return f"{words}: {self._find_nonfinite_step()}; {saved}"

    def _find_nonfinite_step(self) -> str:
        self.plain.train()
        while self.epoch < self.config.epochs:
            for batch in self.load_batches():
                with record_nonfinite_layers(self.plain) as layers:
                    self.train_step(batch)
                if layers:
                    return f"in step {self.step} {layers[0]} is the first layer with outputs that are not finite"
                if names := find_nonfinite_weights(self.plain):
                    return f"step {self.step} made {len(names)} weights that are not finite, {names[0]} first"
                self.step += 1
            self._start_epoch(self.epoch + 1)
        return "it was finite when the steps were repeated"

    # Evaluation

    def compute_scores(self, split: str) -> Mapping[str, float]:
        """Scores of the evaluated model on a split."""
        with self.accelerator.autocast():
            return self.task.scores(self.evaluated_model, split, self.accelerator)

    def compute_validation_scores(self) -> dict[str, float]:
        """Scores on the validation set, whose loss must be finite."""
        scores = self.compute_scores("validation")
        if not math.isfinite(scores["loss"]):
            saved = f"{self.run.path} keeps the last good state"
            raise NonFiniteLossError(f"after epoch {self.epoch} the validation loss is {scores['loss']}; {saved}")
        return prefix_scores("validation", scores)

    def compute_test_scores(self) -> dict[str, Any]:
        """Scores on the test set and, for tasks that have it, one bit per image: whether it is classified correctly."""
        if not isinstance(self.task, PerImageTask):
            return {**prefix_scores("test", self.compute_scores("test"))}
        with self.accelerator.autocast():
            scores, correct = self.task.score_images(self.evaluated_model, "test", self.accelerator)
        return {**prefix_scores("test", scores), "test_correct": pack_bits(correct.tolist())}

    def validate_epoch(self, record: dict[str, Any]) -> None:
        """Validate an epoch and log it. If files cannot be read, its state is saved, to be validated when it is resumed."""
        try:
            record |= self.compute_validation_scores()
        except ValueError:
            if self.accelerator.is_main_process:
                self.save_checkpoint(unvalidated=record)
            raise
        if self.accelerator.is_main_process:
            self.run.log(**record, seconds=self.seconds)
            if self.epoch == self.config.epochs or self._is_checkpoint_due():
                self.save_checkpoint()
        self.accelerator.log({name: value for name, value in record.items() if name != "step"}, step=self.step)

    def finish_run(self) -> None:
        """Evaluate and write the result. It is that of the uncompiled model, of which the compiled one may differ."""
        evaluates_compiled = self.config.compile and not isinstance(self.plain, DenseModel)
        compiled = self.compute_validation_scores()["validation_loss"] if evaluates_compiled else None
        with disable_compilation(self.plain):
            result = self.compute_test_scores() | self.compute_validation_scores()
        if compiled is not None:
            warn_compiled_loss(compiled, result["validation_loss"])
        elif self.config.compile:
            self._check_compiled_features()
        count = sum(weight.numel() for weight in self.plain.parameters())
        own = sum(weight.numel() for weight in self.plain.encoding.parameters())
        if self.accelerator.is_main_process:
            self._save_predictions()
            self.run.finish(**result, step=self.step, seconds=self.seconds, parameters=count, encoding_parameters=own)

    def _check_compiled_features(self) -> None:
        """Warn if a dense model was compiled wrongly, from its outputs for noise that is normalised as its images are."""
        if isinstance(self.plain, DenseModel):
            share = self.config.batch // self.accelerator.num_processes
            images = torch.randn(share, 3, *self.task.facts()["size"], device=self.accelerator.device)
            with self.accelerator.autocast(), disable_cudnn_attention():
                warn_compiled_features(self.plain, images)

    def _save_predictions(self) -> None:
        """Draw the predictions of tasks that can. If that fails, the result is kept nevertheless."""
        if not isinstance(self.task, PicturedTask):
            return
        try:
            with self.accelerator.autocast():
                picture = self.task.picture(self.evaluated_model)
            write_atomically(self.run.path / PREDICTIONS_FILE, lambda part: part.write_bytes(picture))
        except Exception as error:
            warnings.warn(f"the result is kept, but {PREDICTIONS_FILE} could not be drawn: {error}", stacklevel=2)

    # Checkpoints

    def record_inputs(self) -> None:
        """Record the encoding as built, the data, and the seed by which samples were permuted or split."""
        index_seed: int | None = getattr(self.task, "index_seed", None)
        data = describe_data(self.config, self.task.facts())
        self._check_data_hash(data)
        self.run.update_environment(encoding=self.plain.encoding.config(), data=data, index_seed=index_seed)

    def _check_data_hash(self, data: Mapping[str, Any]) -> None:
        """Refuse to resume with data whose hash is not that of the data that were trained on.

        Of a folder only names and sizes are hashed, which change when a damaged file is replaced: then warn. Its counts and
        moments have been compared with those in the checkpoint.
        """
        before = (self.run.read_document("environment.json") or {}).get("data") or {}
        hashes = before.get("sha256"), data["sha256"]
        if self.step == 0 or before.get("sha256_of") != data["sha256_of"] or None in hashes or hashes[0] == hashes[1]:
            return
        found = f"the SHA-256 of {self.config.data} must be {hashes[0]}, got {hashes[1]}"
        if data["sha256_of"] == LISTING_HASH:
            warnings.warn(f"{self.run.path}: names or sizes of files have changed since training: {found}", stacklevel=2)
            return
        raise DamagedFileError(
            f"{self.run.path} was trained on other data of this name: {found}; restore the data, or train in another "
            "directory of runs"
        )

    def _is_checkpoint_due(self) -> bool:
        """After an epoch: when the interval has passed, or sooner where a checkpoint costs little."""
        wait = min(self.config.checkpoint, CHECKPOINT_INTERVAL_FACTOR * self._saving_time)
        return time.monotonic() >= self._saved_at + wait

    def _is_checkpoint_due_within_epoch(self) -> bool:
        """Within an epoch: when the interval has passed and a checkpoint costs little."""
        wait = max(self.config.checkpoint, CHECKPOINT_INTERVAL_FACTOR * self._saving_time)
        due = time.monotonic() >= self._saved_at + wait
        if self.accelerator.num_processes == 1:
            return due
        if self.step % STEPS_BETWEEN_AGREEMENTS:
            return False
        decided = torch.tensor(float(due and self.accelerator.is_main_process), device=self.accelerator.device)
        return bool(self.accelerator.reduce(decided, "sum").item())

    def _save_within_epoch(self) -> None:
        """Save a state that is finite; one that is not is reported at the end of the epoch, from the last checkpoint."""
        losses = self.accelerator.gather(self.losses[None])
        self._count_seconds()
        if not losses.isfinite().all() or find_nonfinite_weights(self.plain):
            self._saved_at = time.monotonic()
        elif self.accelerator.is_main_process:
            self.save_checkpoint(losses)
        self._clock = time.perf_counter()

    def save_checkpoint(self, losses: Tensor | None = None, **more: Any) -> None:
        """Write the state, with the sum of losses of each process within an epoch, and measure how long that takes."""
        begun = time.monotonic()
        tensors, groups = self._collect_tensors()
        facts = {name: getattr(self, name) for name in ("step", "epoch", "batch", "seconds")}
        self.run.save_checkpoint(
            tensors if losses is None else {**tensors, "progress/losses": losses},
            **facts,
            data=self.task.facts(),
            optimizer=groups,
            **more,
        )
        self._saved_at = time.monotonic()
        self._saving_time = self._saved_at - begun

    def _collect_tensors(self) -> tuple[dict[str, Tensor], list[dict[str, Any]]]:
        found = {f"model/{name}": value for name, value in self.plain.state_dict().items()}
        if self.average is not None:
            found |= {f"average/{name}": value for name, value in self.average.state_dict().items()}
        state, groups = describe_optimizer(self.optimiser)
        return found | {f"optimiser/{name}": value for name, value in state.items()}, groups

    def resume_training(self) -> None:
        """Load the checkpoint and remove metrics that are later; a run that has none starts, and writes one."""
        held = self.run.load_latest_checkpoint()
        self.accelerator.wait_for_everyone()  # all have looked before one writes
        if held is None:
            if self.config.start_path is not None:
                initialize_from_run(self.plain, RunFolder.at(self.config.start_path))
            if self.accelerator.is_main_process:
                self.run.restore_metrics(None)
                self.save_checkpoint()
            return
        tensors, facts = held
        self._check_data(facts["data"])
        parts: dict[str, dict[str, Tensor]] = {"model": {}, "average": {}, "optimiser": {}, "progress": {}}
        for name, value in tensors.items():
            part, _, rest = name.partition("/")
            parts[part][rest] = value
        self.plain.load_state_dict(parts["model"])
        if self.average is not None:
            self.average.load_state_dict(parts["average"])
        restore_optimizer(self.optimiser, parts["optimiser"], facts.get("optimizer"))
        self._restore_progress(facts, parts["progress"].get("losses"))
        if self.accelerator.is_main_process and (problem := self.run.restore_metrics(facts)):
            warnings.warn(f"{problem}; training resumes without them", stacklevel=2)

    def _restore_progress(self, facts: Mapping[str, Any], losses: Tensor | None) -> None:
        """The place in the run. Checkpoints of the format "ropewalk run 1" are those of whole epochs."""
        self.epoch, self.step, self.seconds = facts["epoch"], facts["step"], facts["seconds"]
        self.batch = facts.get("batch", 0)
        self.unvalidated = facts.get("unvalidated", facts.get("unjudged"))
        self.losses = torch.zeros_like(self.losses)
        if losses is not None:  # of each process; another number of processes shares the sum
            own = losses[self.accelerator.process_index] if len(losses) == self.accelerator.num_processes else losses.mean()
            self.losses += own.to(self.losses.device)

    def _check_data(self, facts: Mapping[str, Any]) -> None:
        if not same_data_facts(facts, here := self.task.facts()):
            raise DamagedFileError(f"{self.run.path} was trained on other data of this name: expected {facts}, got {here}")

    @contextmanager
    def _name_saved_state(self) -> Iterator[None]:
        """Add to an error of files which state is saved."""
        try:
            yield
        except ValueError as error:
            held = self.run.load_checkpoint()
            saved = f"{self.run.path} keeps the state of epoch {held[1]['epoch'] if held else 0}"
            raise ValueError(f"{error}; {saved}, and the same command resumes there") from error


def prefix_scores(split: str, scores: Mapping[str, float]) -> dict[str, float]:
    """Scores under the name of their split."""
    return {f"{split}_{name}": value for name, value in scores.items()}


# Former names, which scripts may import.
train, open_data = train_run, open_image_data
