"""Federated data: load them by name or path, create them from arrays, or partition examples among clients.

`load` loads the data sets in `DATASETS` and reads your own folders and tables; `from_arrays` takes arrays;
`from_table`, `from_pandas`, `from_polars`, `from_datasets`, `from_torch` and `from_flwr_partitioner` take objects of
other libraries, and `as_federated` takes any of them; `partition` splits the examples of an array among clients as in
the papers. All data sets are described in `coterie.data.catalog`.
"""

from __future__ import annotations

from coterie.data import partition
from coterie.data.arrays import from_arrays
from coterie.data.federated import FederatedData, Index, aligned
from coterie.data.from_columns import TableSettings
from coterie.data.loading import DATASETS, load
from coterie.data.preprocessing import Column, Preprocessing
from coterie.data.sources import (
    as_federated,
    from_datasets,
    from_flwr_partitioner,
    from_pandas,
    from_polars,
    from_table,
    from_torch,
)
from coterie.data.transforms import TRANSFORMS

__all__ = [
    "DATASETS",
    "TRANSFORMS",
    "Column",
    "FederatedData",
    "Index",
    "Preprocessing",
    "TableSettings",
    "aligned",
    "as_federated",
    "from_arrays",
    "from_datasets",
    "from_flwr_partitioner",
    "from_pandas",
    "from_polars",
    "from_table",
    "from_torch",
    "load",
    "partition",
]
