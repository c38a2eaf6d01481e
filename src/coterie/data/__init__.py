"""Federated data: load them by name or path, create them from arrays, or partition examples among clients.

`load` loads the data sets in `DATASETS` and reads your own folders and tables; `from_arrays` takes arrays; `partition`
splits the examples of an array among clients as in the papers. All data sets are described in `coterie.data.catalog`.
"""

from __future__ import annotations

from coterie.data import partition
from coterie.data.arrays import from_arrays
from coterie.data.federated import FederatedData, Index, aligned
from coterie.data.loading import DATASETS, load
from coterie.data.transforms import TRANSFORMS

__all__ = ["DATASETS", "TRANSFORMS", "FederatedData", "Index", "aligned", "from_arrays", "load", "partition"]
