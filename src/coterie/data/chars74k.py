"""Chars74K by writer: 55 people, who wrote each digit and each letter once.

De Campos, Babu, Varma, "Character Recognition in Natural Images", VISAPP 2009, the part EnglishHnd: 62 classes, digits,
capital letters and small letters, as in FEMNIST, for which this can stand in where LEAF's files are not at hand. The
images are drawn from the pen strokes, white on black. With one glyph of each class, what a writer is tested on never
occurs among his or her own training images: a client learns it from the others. Nobody knows true clusters.
"""

from __future__ import annotations

from coterie.data.federated import FederatedData
from coterie.data.pools import pool
from coterie.data.writers import by_writer


def chars74k(*, clients: int = 0, test_share: float = 0.1, seed: int = 0) -> FederatedData:
    """A client for each writer, with 62 images; its id is the writer's number.

    Args:
        clients: How many writers, drawn at random; 0 for all 55.
        test_share: Share of each writer's images for testing.
        seed: Fixes every draw.
    """
    held = pool("chars74k")
    fit, ids = by_writer(held.columns["writer"], clients, seed)
    return held.dealt("chars74k", fit, test_share=test_share, seed=seed, clients=held.called("writer", ids))
