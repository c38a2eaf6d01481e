"""FedAvg as a bare loop, for learning: NumPy and the digits of scikit-learn, no federated learning library.

Forty clients hold handwritten digits, rotated by 0°, 90°, 180° or 270°. In every round ten clients train the global
model on their own images, and the server averages the trained models. The next example does the same with Coterie.
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits

CLIENTS, CLIENTS_PER_ROUND, ROUNDS, EPOCHS, BATCH_SIZE, LEARNING_RATE = 40, 10, 30, 10, 10, 0.03


def split_among_clients(rng):
    """Equal shares of the images; client i's images are rotated by i % 4 quarter turns."""
    images, labels = load_digits(return_X_y=True)
    images = images.reshape(-1, 8, 8) / 16
    shares = np.array_split(rng.permutation(len(images)), CLIENTS)
    return [(np.rot90(images[s], i % 4, axes=(1, 2)).reshape(len(s), 64), labels[s]) for i, s in enumerate(shares)]


def probabilities(w, x):
    logits = x @ w[:-1] + w[-1]
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


def local_update(w, x, y, rng):
    """A few epochs of SGD on the cross-entropy."""
    w = w.copy()
    for _ in range(EPOCHS):
        order = rng.permutation(len(y))
        for first in range(0, len(y), BATCH_SIZE):
            rows = order[first : first + BATCH_SIZE]
            error = probabilities(w, x[rows])
            error[np.arange(len(rows)), y[rows]] -= 1
            w[:-1] -= LEARNING_RATE * x[rows].T @ error / len(rows)
            w[-1] -= LEARNING_RATE * error.mean(axis=0)
    return w


def main():
    rng = np.random.default_rng(0)
    data = split_among_clients(rng)
    train = [(x[8:], y[8:]) for x, y in data]
    test = [(x[:8], y[:8]) for x, y in data]
    w = np.zeros((65, 10))  # weights, and biases in the last row
    for _ in range(ROUNDS):
        cohort = rng.choice(CLIENTS, CLIENTS_PER_ROUND, replace=False)
        trained = [local_update(w, *train[k], rng) for k in cohort]
        sizes = np.array([len(train[k][1]) for k in cohort])
        w = np.tensordot(sizes / sizes.sum(), trained, axes=1)
    correct = sum((probabilities(w, x).argmax(axis=1) == y).sum() for x, y in test)
    accuracy = correct / sum(len(y) for _, y in test)
    print(f"One model for all clients: {100 * accuracy:.0f} % accuracy")
    return accuracy


if __name__ == "__main__":
    main()
