"""Parts of a dataset (``random_split`` and ``Subset``): which indices each holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from torch.utils.data import Subset

from sfbench.probe.hooks.taps import Taps
from sfbench.probe.recording.call_site import CallSite
from sfbench.protocol.evidence import Split

SKETCH = 256
_MOST = 64
_SPREAD = np.uint64(0x9E3779B97F4A7C15)


class SplitWatch:
    """Wraps the constructor of Subset, which random_split calls too."""

    def __init__(self, call_site: CallSite) -> None:
        self._call_site = call_site
        self._parents: dict[int, Any] = {}
        self.splits: list[Split] = []

    def install(self, taps: Taps) -> None:
        """Patch Subset."""
        taps.wrap(Subset, "__init__", self._around_init)

    def _around_init(self, original: Any) -> Any:
        def init(subset: Any, dataset: Any, indices: Any, *args: Any, **kwargs: Any) -> None:
            original(subset, dataset, indices, *args, **kwargs)
            if len(self.splits) < _MOST:
                self._note(dataset, indices)

        return init

    def _note(self, dataset: Any, indices: Any) -> None:
        try:
            numbers = np.asarray(indices).astype(np.int64)
        except (TypeError, ValueError):
            return  # keys that are no numbers: nothing to compare
        self._parents.setdefault(id(dataset), dataset)  # kept, so that its id stays its own
        split = Split(
            line=self._call_site.line(),
            parent=list(self._parents).index(id(dataset)),
            size=len(numbers),
            sketch=sketch(numbers),
        )
        self.splits.append(split)


def sketch(numbers: npt.NDArray[np.int64]) -> tuple[int, ...]:
    """The smallest places that a set's members have in a fixed random order of all whole numbers.

    Two sets' sketches tell how far the sets overlap (bottom-k sampling; Broder 1997).
    """
    places = (numbers.astype(np.uint64) + np.uint64(1)) * _SPREAD
    places = (places ^ (places >> np.uint64(29))) * _SPREAD
    if len(places) > SKETCH:
        places = np.partition(places, SKETCH)[:SKETCH]
    return tuple(int(place) for place in np.sort(places))
