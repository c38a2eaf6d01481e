"""Loaders of the data sets, one file per family; `coterie.data.catalog` lists them."""
