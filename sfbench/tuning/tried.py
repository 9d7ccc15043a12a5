"""Settings that are tried: a set of arguments, where they belong, and what they promise. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sfbench.protocol.changes import Argument, Changes


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedSettings:
    """What a launch has otherwise than the job as it is."""

    loader: tuple[Argument, ...] = ()
    """Of the training loaders' DataLoader."""
    model: tuple[Argument, ...] = ()
    """Of DistributedDataParallel."""
    threads: int | None = None
    """Per device; None: as many as now."""
    batch_factor: int = 1
    compress: bool = False
    sync_every: int = 1
    """Backward passes of which only the last averages gradients."""
    freeze: bool = False

    def joined(self, other: TriedSettings) -> TriedSettings:
        """Both; if they disagree, ``other``."""
        return replace(
            self,
            loader=_joined(self.loader, other.loader),
            model=_joined(self.model, other.model),
            threads=other.threads or self.threads,
            batch_factor=max(self.batch_factor, other.batch_factor),
            compress=self.compress or other.compress,
            sync_every=max(self.sync_every, other.sync_every),
            freeze=self.freeze or other.freeze,
        )

    def changes(self, loader_lines: tuple[str, ...]) -> Changes:
        """For the ranks; ``loader_lines`` make the training loaders."""
        return Changes(
            loader=self.loader,
            loader_lines=loader_lines,
            model=self.model,
            batch_factor=self.batch_factor,
            compress=self.compress,
            sync_every=self.sync_every,
            freeze=self.freeze,
        )

    @property
    def loads_only(self) -> bool:
        """Nothing but the loader differs: steps on batches from memory stay as they are."""
        return bool(self.loader) and self == TriedSettings(loader=self.loader)

    @property
    def without(self) -> str:
        """``3 of 4``: the backward passes that average nothing."""
        return f"{self.sync_every - 1} of {self.sync_every}"

    def __str__(self) -> str:
        words = [f"{name}={value}" for name, value in (*self.loader, *self.model)]
        words += [f"{self.threads} threads per device"] if self.threads else []
        words += [f"batch x{self.batch_factor}"] if self.batch_factor > 1 else []
        words += ["bf16 gradients"] if self.compress else []
        words += [f"no_sync() on {self.without} passes"] if self.sync_every > 1 else []
        words += ["gc.freeze()"] if self.freeze else []
        return ", ".join(words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A remedy that follows from what was measured."""

    settings: TriedSettings
    family: str
    """Of each family at most one is in the best set."""
    because: str
    """Id of the diagnosis or check that it follows from."""
    predicted: float | None
    """Gain in samples/s as a ratio; None: nothing predicts it."""
    caution: str = ""
    """What else it changes."""
    unfit: str = ""
    """Why it is not tried."""

    @property
    def name(self) -> str:
        """What stands in tables."""
        return str(self.settings)


def _joined(one: tuple[Argument, ...], other: tuple[Argument, ...]) -> tuple[Argument, ...]:
    return tuple((dict(one) | dict(other)).items())
