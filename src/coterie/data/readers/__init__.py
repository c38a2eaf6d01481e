"""Data of your own from disk: a folder with one .npz file a client, or a table in CSV or Parquet."""

from __future__ import annotations

from coterie.data.readers.folder import read_folder
from coterie.data.readers.table import read_table

__all__ = ["read_folder", "read_table"]
