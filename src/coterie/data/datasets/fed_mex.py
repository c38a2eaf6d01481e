"""Fed-MEx: exercises on a pressure mat, with one client for each of 30 people.

Palihawadana et al., "FedSim: Similarity Guided Model Aggregation for Federated Learning", Neurocomputing 2022, from MEx
(Wijekoon et al. 2020). An example is five pictures of 16×16 pressures from five seconds, scaled by the largest value of
the recording. There are seven exercises; each person has two of them, or one if it was drawn twice. The published split
is used: 934 training examples (the total number according to the paper) and 250 test examples. If only the archive
with the published test part is available, its 250 examples are split 80/20 for each person, which is too few for
meaningful results.
"""

from __future__ import annotations

from coterie.data.datasets.pool import pool
from coterie.data.datasets.writers import by_writer
from coterie.data.federated import FederatedData, Index


def fed_mex(*, clients: int = 0, test_share: float = 0.2, seed: int = 0) -> FederatedData:
    """One client per person; its id is the person's number in MEx.

    Args:
        clients: Number of people, drawn at random; 0 for all 30.
        test_share: Fraction of each person's examples used for testing, if only the published test part is available.
        seed: Random seed.
    """
    images = pool("fed-mex")
    own, ids = by_writer(images.columns["client"], clients, seed, "people")
    names = images.names_of("client", ids)
    if images.train == 0:
        return images.federated(own, test_share=test_share, seed=seed, clients=names)
    each = [own.of(i) for i in range(len(own))]
    fit = Index.from_lists([numbers[numbers < images.train] for numbers in each])
    tested = Index.from_lists([numbers[numbers >= images.train] - images.train for numbers in each])
    return images.federated(fit, tested, seed=seed, clients=names)
