"""How fast is clustering? The cold start of 100 clients, MADC of 2,000, a bipartition of 1,000, a trimmed mean.

    python benchmarks/how_fast_is_clustering.py [--json] [--tiny]

Cold start: five planted groups of pre-trained updates, float32. Ours is EDC through the Gram matrix and k-means; theirs
is what FedGroup's code does with scikit-learn on the full matrix: TruncatedSVD, cosine similarities with the singular
vectors, KMeans. Both run in this process, alternately, best of five; both must find the planted groups. Memory of MADC
is the peak of what Python and NumPy allocate during a call of its own, the result included.
"""

from __future__ import annotations

import time
import tracemalloc

import numpy as np
from common import arguments, finish

from coterie import clustering
from coterie.aggregation import trimmed_mean, uniform_mean
from coterie.metrics import adjusted_rand
from coterie.seeds import Seed

CLIENTS, GROUPS = 100, 5


def planted(clients, d, groups=GROUPS):
    """Updates around the direction of each one's group, and the groups."""
    draw = Seed(0).fold("updates").generator()
    centres = draw.standard_normal((groups, d), dtype=np.float32)
    truth = np.arange(clients) % groups
    updates = draw.standard_normal((clients, d), dtype=np.float32)
    updates += centres[truth]
    return updates, truth


def ours(updates):
    return clustering.kmeans(clustering.edc_embedding(updates, GROUPS), GROUPS, Seed(0))[0]


def theirs(updates):
    from sklearn.cluster import KMeans
    from sklearn.decomposition import TruncatedSVD
    from sklearn.metrics.pairwise import cosine_similarity

    svd = TruncatedSVD(GROUPS, random_state=0).fit(updates)
    return KMeans(GROUPS, n_init=10, random_state=0).fit(cosine_similarity(updates, svd.components_)).labels_


def alternately(times, **calls):
    """The best seconds of each call, one after the other, so that both meet the same machine."""
    best = dict.fromkeys(calls, np.inf)
    for _ in range(times):
        for name, call in calls.items():
            clock = time.perf_counter()
            call()
            best[name] = min(best[name], time.perf_counter() - clock)
    return best


def cold_start(d, times):
    updates, truth = planted(CLIENTS, d)
    names = [str(i) for i in range(CLIENTS)]

    def found(labels):
        return adjusted_rand(dict(zip(names, labels.tolist(), strict=True)), dict(zip(names, truth, strict=True)))

    agree = {"ours": found(ours(updates)), "theirs": found(theirs(updates))}  # also loads what both import
    best = alternately(times, ours=lambda: ours(updates), theirs=lambda: theirs(updates))
    return {"d": d, "seconds": best, "ratio": best["theirs"] / best["ours"], "adjusted_rand": agree}


def madc(clients, times):
    """Seconds of MADC given the cosine matrix, and the memory beside that matrix."""
    cosines = clustering.cosine(planted(clients, 64)[0])
    clustering.madc_of(cosines[:200, :200])  # loads what it imports
    best = alternately(times, madc=lambda: clustering.madc_of(cosines))["madc"]
    tracemalloc.start()
    clustering.madc_of(cosines)
    beside = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return {"clients": clients, "seconds": best, "beside_bytes": beside}


def bipartition(clients, times):
    similarities = clustering.cosine(planted(clients, 64, groups=2)[0])
    clustering.bipartition(similarities[:10, :10])
    best = alternately(times, split=lambda: clustering.bipartition(similarities))
    return {"clients": clients, "seconds": best["split"]}


def means(models, d, times):
    bank = Seed(0).fold("bank").generator().standard_normal((models, d), dtype=np.float32)
    best = alternately(times, trimmed=lambda: trimmed_mean(bank, 0.1), plain=lambda: uniform_mean(bank))
    return {"models": models, "d": d, "seconds": best, "ratio": best["trimmed"] / best["plain"]}


def main():
    options = arguments("How fast is clustering?")
    tiny, times = options.tiny, 2 if options.tiny else 5
    results = {
        "cold_start": [cold_start(d, times) for d in ((785, 7_850) if tiny else (7_850, 101_770, 407_050))],
        "madc": madc(200 if tiny else 2_000, min(times, 3)),
        "bipartition": bipartition(100 if tiny else 1_000, times),
        "means": means(*(10, 4_000) if tiny else (100, 400_000), times),
    }
    for row in results["cold_start"]:
        print(
            f"cold start, {CLIENTS} clients, d = {row['d']:>7,}: {row['seconds']['ours']:.4f} s, "
            f"scikit-learn {row['seconds']['theirs']:.4f} s, {row['ratio']:.1f} × faster; adjusted Rand "
            f"{row['adjusted_rand']['ours']:.2f}, {row['adjusted_rand']['theirs']:.2f}"
        )
    row = results["madc"]
    print(f"MADC of {row['clients']:,} clients: {row['seconds']:.2f} s, {row['beside_bytes'] / 1e6:.0f} MB beside")
    print(f"bipartition of {results['bipartition']['clients']:,} clients: {results['bipartition']['seconds']:.4f} s")
    row = results["means"]
    print(
        f"trimmed mean of {row['models']} models of {row['d']:,}: {row['seconds']['trimmed']:.3f} s, "
        f"plain {row['seconds']['plain']:.3f} s, {row['ratio']:.1f} × as long"
    )
    finish(results, options)


if __name__ == "__main__":
    main()
