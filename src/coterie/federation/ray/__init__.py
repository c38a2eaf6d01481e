"""Transport to simulated clients that are spread over the machines of a Ray cluster (`run.backend = "ray"`).

    settings.py    the [ray] section
    shares.py      how a cohort is cut into shares
    shipping.py    data and requests in the form in which they are sent to workers
    worker.py      a worker: the vectorized transport on shares of a cohort
    scheduling.py  gives shares to workers, and shares of lost workers to others
    transport.py   `RayTransport`
    actor_pool.py  workers in actors of a Ray cluster
    cluster.py     Ray: connection, processes, machines; the only module that imports it

Only the last two depend on Ray, so tests run the rest with workers in one process.
"""
