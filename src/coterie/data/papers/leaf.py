"""LEAF's FEMNIST: handwritten digits and letters, a client for each writer.

Caldas et al., "LEAF: A Benchmark for Federated Settings", arXiv:1812.01097. Digits are the labels 0..9, capital letters
10..35, small letters 36..61; images are black on white, pixels from 0 to 1. SR-FCA (Vardhan et al., TMLR 2024,
arXiv:2210.11538) draws 50 writers; IFCA and FeSEM use the same data. Each writer's images are split 90/10, as LEAF
splits them by sample. Nobody knows true clusters of the writers.
"""

from __future__ import annotations

from coterie.data.federated import FederatedData
from coterie.data.pools import pool
from coterie.data.writers import by_writer


def femnist(*, clients: int = 50, test_share: float = 0.1, seed: int = 0) -> FederatedData:
    """Some writers with all that they wrote; a client's id is the writer's name in LEAF.

    Args:
        clients: How many writers, drawn at random; 0 for all.
        test_share: Share of each writer's images for testing.
        seed: Fixes every draw.
    """
    held = pool("femnist")
    fit, ids = by_writer(held.columns["writer"], clients, seed)
    return held.dealt("femnist", fit, test_share=test_share, seed=seed, clients=held.called("writer", ids))
