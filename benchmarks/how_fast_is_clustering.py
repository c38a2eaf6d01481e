"""How fast is clustering? Cold start, MADC, bipartition, trimmed mean, a FedGroup round, SR-FCA's cross losses.

    python benchmarks/how_fast_is_clustering.py [--json] [--tiny]

Cold start: pre-trained updates in five planted clusters, float32. `ours` is EDC through the Gram matrix and k-means;
`reference` is what FedGroup's code does with scikit-learn on the full matrix: TruncatedSVD, cosine similarities with
the singular vectors, KMeans. Both run in this process, alternately, best of five; both must find the planted clusters.
The memory of MADC is the peak that Python and NumPy allocate during one call, including the result. A FedGroup round in
which all clients have a cluster is compared with a FedAvg round of the same cohort: 20 of 1,000 MNIST clients, 10
epochs, batch size 10.

Cross losses: 100 models (MLP 784-200-10), each on the 600 MNIST images of each of 100 clients, as in SR-FCA. `ours` is
one ask of the vectorized backend. It is compared with a loop over pairs that calls a jitted mean loss (a tenth is
timed), and with the rate of a product of two large float32 matrices on two threads. All alternately, best of three.

Class angles: 100 clients with orthonormal (784, p) bases of ten classes. The reference is a loop over
scipy.linalg.subspace_angles; every 50th pair of each class is timed and the time scaled; both must agree. Class
subspaces: one ask of 100 clients for the bases of 60 and of 600 random images of each of ten classes.
"""

from __future__ import annotations

import time
import tracemalloc

import numpy as np
from common import arguments, empty_index, finish, images, power_law

from coterie import clustering, models, tree
from coterie.aggregation import trimmed_mean, uniform_mean
from coterie.clients import LocalSGD, class_subspaces, losses_of
from coterie.data.federated import FederatedData, Index, aligned
from coterie.data.partition import numbered
from coterie.federation import vectorized
from coterie.methods.fedavg import FedAvg
from coterie.methods.fedgroup import FedGroup
from coterie.metrics import adjusted_rand
from coterie.runs.sampling import Sampler
from coterie.runs.session import Session
from coterie.seeds import Seed

CLIENTS, CLUSTERS = 100, 5
SETTINGS = class_subspaces.Subspaces()


def planted(clients, d, clusters=CLUSTERS):
    """Updates around the direction of each client's cluster, and the clusters."""
    rng = Seed(0).fold("updates").generator()
    centers = rng.standard_normal((clusters, d), dtype=np.float32)
    truth = np.arange(clients) % clusters
    updates = rng.standard_normal((clients, d), dtype=np.float32)
    updates += centers[truth]
    return updates, truth


def ours(updates):
    return clustering.kmeans(clustering.edc_embedding(updates, CLUSTERS), CLUSTERS, Seed(0))[0]


def reference(updates):
    from sklearn.cluster import KMeans
    from sklearn.decomposition import TruncatedSVD
    from sklearn.metrics.pairwise import cosine_similarity

    svd = TruncatedSVD(CLUSTERS, random_state=0).fit(updates)
    return KMeans(CLUSTERS, n_init=10, random_state=0).fit(cosine_similarity(updates, svd.components_)).labels_


def alternately(times, **calls):
    """Best seconds of each call; calls alternate, so that all of them run under the same conditions."""
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

    def score(labels):
        return adjusted_rand(dict(zip(names, labels.tolist(), strict=True)), dict(zip(names, truth, strict=True)))

    agree = {
        "ours": score(ours(updates)),
        "reference": score(reference(updates)),
    }  # loads imports
    best = alternately(times, ours=lambda: ours(updates), reference=lambda: reference(updates))
    return {"d": d, "seconds": best, "ratio": best["reference"] / best["ours"], "adjusted_rand": agree}


def madc(clients, times):
    """Seconds of MADC given the cosine matrix, and the memory besides that matrix."""
    cosines = clustering.cosine(planted(clients, 64)[0])
    clustering.madc_of(cosines[:200, :200])  # loads imports
    best = alternately(times, madc=lambda: clustering.madc_of(cosines))["madc"]
    tracemalloc.start()
    clustering.madc_of(cosines)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return {"clients": clients, "seconds": best, "peak_bytes": peak}


def bipartition(clients, times):
    similarities = clustering.cosine(planted(clients, 64, clusters=2)[0])
    clustering.bipartition(similarities[:10, :10])
    best = alternately(times, split=lambda: clustering.bipartition(similarities))
    return {"clients": clients, "seconds": best["split"]}


def means(models, d, times):
    bank = Seed(0).fold("bank").generator().standard_normal((models, d), dtype=np.float32)
    best = alternately(times, trimmed=lambda: trimmed_mean(bank, 0.1), plain=lambda: uniform_mean(bank))
    return {"models": models, "d": d, "seconds": best, "ratio": best["trimmed"] / best["plain"]}


def rounds(clients, times):
    """Best seconds of a round of each method, alternately, with the same cohort; all clients have a cluster."""
    data, seed = power_law(clients), Seed(0)
    task, local = models.mclr(data.shape, data.classes), LocalSGD(epochs=10, batch_size=10, learning_rate=0.03)
    settings = {"fedavg": FedAvg(local), "fedgroup": FedGroup(local, clusters=3)}
    ready = {}
    for name, method in settings.items():
        fed = vectorized(data, task)
        session = Session(method, fed, seed, Sampler(fed.clients, 20, seed))
        while session.stage == "prepare":
            session.step()
        ready[name] = (method, session.state, fed)
    cohort = Sampler(data.clients, 20, seed).cohort(0)

    def one(name):
        method, state, fed = ready[name]
        return lambda: method.round(state, fed, cohort, seed)

    for name in settings:
        one(name)()  # compiles
    best = alternately(times, **{name: one(name) for name in settings})
    return {"clients": clients, "cohort": len(cohort), "seconds": best, "ratio": best["fedgroup"] / best["fedavg"]}


def cross_losses(clients, samples, width, times):
    """Seconds of all cross losses and of the loop over pairs, and the rates of both and of a large product."""
    import jax
    from threadpoolctl import threadpool_limits

    x, y, _ = images("mnist", (28, 28), clients * samples)
    index = Index.from_sizes(np.arange(len(x), dtype=np.int32), np.full(clients, samples))
    stored_bytes = aligned(np.rint(255 * x).astype(np.uint8))
    data = FederatedData("images", stored_bytes, y, numbered(clients), index, empty_index(clients), 10)
    task = models.mlp((28, 28), 10, widths=(width,), normalize=models.Normalize(0.0, 255.0))
    fed = vectorized(data, task)
    bank = tree.stack(task.init(Seed(j)) for j in range(clients))
    one = jax.jit(lambda model, x, y: task.losses(model, x, y).mean())
    held = [jax.device_put(tree.row(bank, j)) for j in range(clients)]
    examples = [jax.device_put(data.examples(client)) for client in fed.clients[: clients // 10]]
    square = np.random.default_rng(0).random((4096 if clients > 10 else 256,) * 2, dtype=np.float32)

    def ours():
        return fed.ask(fed.clients, losses_of, Seed(0), centers=bank)["losses"]

    def loop():
        return np.array([[float(one(model, *mine)) for model in held] for mine in examples])

    def product():
        with threadpool_limits(2):
            return square @ square

    np.testing.assert_allclose(ours()[: len(examples)], loop(), rtol=1e-4)  # also compiles both
    best = alternately(times, ours=ours, loop=loop, product=product)
    best["loop"] *= clients / len(examples)
    work = 2 * clients * clients * samples * (784 * width + width * 10)
    rates = {"ours": work / best["ours"], "product": 2 * len(square) ** 3 / best["product"]}
    share = rates["ours"] / rates["product"]
    return {"clients": clients, "seconds": best, "ratio": best["loop"] / best["ours"], "flops": rates, "share": share}


def class_angles(clients, classes, p, times):
    """Seconds of FLAG's angles for all classes and pairs, and of a loop over pairs."""
    from scipy.linalg import subspace_angles

    rng = Seed(0).fold("bases").generator()
    bases = np.linalg.qr(rng.standard_normal((clients, classes, 784, p)))[0].astype(np.float32)
    pairs = [(i, j) for i in range(clients) for j in range(i)]
    some = pairs[:: 50 if clients > 10 else 5]

    def ours():
        return clustering.class_angles(bases, bases)

    def loop():
        return np.rad2deg(
            [[subspace_angles(*bases[pair, c]).min() for c in range(classes)] for pair in map(list, some)]
        )

    np.testing.assert_allclose([ours()[pair] for pair in some], loop(), atol=1e-3)  # loads imports
    best = alternately(times, ours=ours, loop=loop)
    best["loop"] *= len(pairs) / len(some)
    return {"clients": clients, "classes": classes, "p": p, "seconds": best, "ratio": best["loop"] / best["ours"]}


def subspaces(clients, classes, count_per_class, times):
    """Seconds of one ask for the bases of every class."""
    rng, count = Seed(0).fold("images").generator(), classes * count_per_class
    x = aligned(rng.integers(0, 256, (count, 28, 28), dtype=np.uint8))
    y = np.tile(np.arange(classes, dtype=np.int32), count_per_class)
    order = np.concatenate([rng.permutation(count).astype(np.int32) for _ in range(clients)])
    index = Index.from_sizes(order, np.full(clients, count))
    data = FederatedData("images", x, y, numbered(clients), index, empty_index(clients), classes)
    fed = vectorized(data, models.mclr((28, 28), classes, normalize=models.Normalize(33.0, 79.0)))
    best = alternately(times, ask=lambda: fed.ask(fed.clients, class_subspaces.class_subspaces, Seed(0), how=SETTINGS))
    return {"clients": clients, "classes": classes, "images": count_per_class, "seconds": best["ask"]}


def main():
    options = arguments("How fast is clustering?")
    tiny, times = options.tiny, 2 if options.tiny else 5
    results = {
        "cold_start": [cold_start(d, times) for d in ((785, 7_850) if tiny else (7_850, 101_770, 407_050))],
        "madc": madc(200 if tiny else 2_000, min(times, 3)),
        "bipartition": bipartition(100 if tiny else 1_000, times),
        "means": means(*(10, 4_000) if tiny else (100, 400_000), times),
        "rounds": rounds(100 if tiny else 1_000, 4 * times),
        "cross_losses": cross_losses(*(10, 20, 8) if tiny else (100, 600, 200), min(times, 3)),
        "class_angles": [class_angles(*(10, 2) if tiny else (100, 10), p, min(times, 3)) for p in (1, 6)],
        "class_subspaces": [subspaces(*(5, 2) if tiny else (100, 10), n, 1) for n in ((6,) if tiny else (60, 600))],
    }
    for row in results["cold_start"]:
        print(
            f"cold start, {CLIENTS} clients, d = {row['d']:>7,}: {row['seconds']['ours']:.4f} s, "
            f"scikit-learn {row['seconds']['reference']:.4f} s, {row['ratio']:.1f} × faster; adjusted Rand "
            f"{row['adjusted_rand']['ours']:.2f}, {row['adjusted_rand']['reference']:.2f}"
        )
    row = results["madc"]
    print(f"MADC of {row['clients']:,} clients: {row['seconds']:.2f} s, {row['peak_bytes'] / 1e6:.0f} MB of memory")
    print(f"bipartition of {results['bipartition']['clients']:,} clients: {results['bipartition']['seconds']:.4f} s")
    row = results["means"]
    print(
        f"trimmed mean of {row['models']} models of {row['d']:,}: {row['seconds']['trimmed']:.3f} s, "
        f"plain {row['seconds']['plain']:.3f} s, {row['ratio']:.1f} × as long"
    )
    row = results["rounds"]
    print(
        f"round of {row['cohort']} of {row['clients']} clients: FedGroup {1e3 * row['seconds']['fedgroup']:.1f} ms, "
        f"FedAvg {1e3 * row['seconds']['fedavg']:.1f} ms, ratio {row['ratio']:.3f}"
    )
    row = results["cross_losses"]
    print(
        f"cross losses of {row['clients']} × {row['clients']}: {row['seconds']['ours']:.2f} s, a loop over pairs "
        f"{row['seconds']['loop']:.2f} s, {row['ratio']:.2f} × as long; {100 * row['share']:.0f} % of a product's rate"
    )
    for row in results["class_angles"]:
        print(
            f"class angles of {row['clients']} clients × {row['classes']} classes, p = {row['p']}: "
            f"{row['seconds']['ours']:.3f} s, SciPy in a loop {row['seconds']['loop']:.1f} s, "
            f"{row['ratio']:.0f} × as long"
        )
    for row in results["class_subspaces"]:
        print(
            f"class subspaces of {row['clients']} clients × {row['classes']} classes × {row['images']} images: "
            f"{row['seconds']:.1f} s"
        )
    finish(results, options)


if __name__ == "__main__":
    main()
