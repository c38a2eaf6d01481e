"""Federation between machines: requests and replies as bytes, over any `Channel`.

channel.py   `Channel`: takes messages to clients and brings replies back; in-process implementation for tests
wire.py      requests and replies ↔ bytes
site.py      the client's half: bytes in, bytes out
remote.py    the server's half: a `Transport` over a channel
compressed.py the server's half of compressed answers
roster.py    which key belongs to which client id; who is present

keys.py certificates.py      key pairs of clients; the certificates of a federation and its server
admissions.py admitted.py    which clients may join: a folder on the server
presence.py                  who is present, as a file that a running server writes
files.py                     atomic writes of small files
"""
