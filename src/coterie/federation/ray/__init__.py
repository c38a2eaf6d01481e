"""Transport to simulated clients that are spread over the machines of a Ray cluster (`run.backend = "ray"`).

    settings.py    the [ray] section
    shares.py      how a cohort is cut into shares
    shipping.py    data and requests, as they travel to workers
    worker.py      a worker: the vectorized transport on shares of a cohort
    scheduling.py  shares to workers; shares of lost workers again
    transport.py   `RayTransport`
    actor_pool.py  workers in actors of a Ray cluster
    cluster.py     Ray: connection, processes, machines; the only module that imports it

None but the last two knows Ray, so tests run the rest with workers in one process.
"""
