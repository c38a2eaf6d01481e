"""Federation between machines: requests and replies as bytes, over any `Channel`.

channel.py   `Channel`: takes messages to clients and brings replies back; in-process implementation for tests
wire.py      requests and replies ↔ bytes
site.py      the client's half: bytes in, bytes out
remote.py    the server's half: a `Transport` over a channel
compressed.py the server's half of compressed answers
roster.py    which key belongs to which client id; who is present
"""
