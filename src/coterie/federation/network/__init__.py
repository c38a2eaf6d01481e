"""Federation between machines: requests and replies as bytes, over any `Channel`.

Messages; nothing here knows Flower:

    channel.py      `Channel`: takes messages to clients and brings replies back; in-process implementation for tests
    wire.py         requests and replies ↔ bytes
    site.py         the client's half: bytes in, bytes out
    store.py        what a client stores on its disk: memories, cached values, its last reply
    remote.py       the server's half: a `Transport` over a channel
    compressed.py   the server's half of compressed answers
    roster.py       which key belongs to which client id; who is present
    hello.py        greetings: what will run, whether a client takes part, and what its data are like
    delivery.py     the end of a run: each client gets its model
    settings.py     the `network` section of a spec

Keys and admissions:

    keys.py certificates.py      key pairs of clients; the certificates of a federation and its server
    fingerprint.py               fingerprints and formats of public keys
    admissions.py admitted.py    which clients may join: a folder on the server
    admission_check.py           the client's question before it joins: does the server admit this key?
    presence.py                  who is present, as a file that a running server writes
    files.py                     atomic writes of small files

Flower and its processes:

    flower/       Flower as a channel; the only part that imports flwr
    gate/         the proxy in front of the SuperLink, the only process that other machines reach
    launch.py     SuperLink, gate and SuperNode: how they are started
    process.py    one supervised process
    loopback.py   ports, secrets and certificates for processes on this machine
"""
