"""Where examples come from: load by name or path, deal out among clients, describe.

`load` knows the data sets in `DATASETS` and reads folders and tables of your own; `from_arrays` takes arrays;
`partition` deals the examples of one array out among clients in the ways of the papers. Which data sets are of which
paper, and which are at hand, is in `coterie.data.presets`.
"""

from __future__ import annotations

from coterie.data import partition
from coterie.data.arrays import from_arrays
from coterie.data.federated import FederatedData, Index, aligned
from coterie.data.loading import DATASETS, load
from coterie.data.transforms import TRANSFORMS

__all__ = ["DATASETS", "TRANSFORMS", "FederatedData", "Index", "aligned", "from_arrays", "load", "partition"]
