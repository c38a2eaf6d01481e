"""`DiskStore`: what one client on a network stores: memories by version, cached values, and its last reply.

    memory/   one file for each version of each memory
    cache/    cached values and task recipes by hash; the least recently used are removed first
    reply     the last reply, which is sent again if its request is repeated

Damaged files are removed: the client then has no such value, as after a disk failure, and the server sends it again.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import shutil
from pathlib import Path

from coterie import codec
from coterie.data.federated import FederatedData
from coterie.errors import RecordError
from coterie.federation.client_memory import ClientMemory
from coterie.federation.client_store import ClientStore
from coterie.federation.messages import Request
from coterie.federation.network import files
from coterie.federation.network.wire import WireError, hash_of
from coterie.types import Bank, ClientId, Params

log = logging.getLogger(__name__)

_HASH = re.compile(r"[0-9a-f]{32}")

#: Default size of the cache, in bytes.
CACHE_BYTES = 1 << 30


class DiskStore(ClientStore):
    """The storage of one client in a folder."""

    keeps_checkpoints = True

    def __init__(self, data: FederatedData, folder: Path, *, cache_bytes: int = CACHE_BYTES) -> None:
        """Open the storage; the folder is created if it does not exist.

        Args:
            data: The examples of the client.
            folder: Where it stores memories and values.
            cache_bytes: Maximum size of the cached values. The value that was stored last is always kept.
        """
        super().__init__(data)
        (self._client,) = data.clients
        self._folder, self._cache_bytes = folder, cache_bytes
        for name in ("memory", "cache"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        os.chmod(folder, 0o700)
        for file in folder.glob("**/.*.part"):
            file.unlink()
        self._load_memories()

    def renew(self, data: FederatedData) -> None:
        """Use new examples of the same client, as after new rows have arrived."""
        assert data.clients == (self._client,)
        self.data = data
        self.data_version += 1

    # -------------------------------------------------------------------------------------------------------- memories

    def remember(self, request: Request, memory: Bank | list[Params]) -> None:
        """Store the new memory, and remove the versions that no later request names."""
        super().remember(request, memory)
        if not request.writes_memory:
            return
        assert request.memory is not None
        name = request.memory
        versions = self._memories[name].versions_of(self._client)
        content = {"memory": name, "version": request.id, "values": versions[request.id]}
        encoded = codec.encode(content, checksum=True)
        files.write_over(self._memory_file(name, request.id), encoded, files.PRIVATE)
        kept = {self._memory_file(name, version) for version in versions}
        for file in set((self._folder / "memory").glob(f"{_short(name)}.*")) - kept:
            file.unlink(missing_ok=True)

    def _memory_file(self, name: str, version: int) -> Path:
        return self._folder / "memory" / f"{_short(name)}.{version}"

    def _load_memories(self) -> None:
        for file in sorted((self._folder / "memory").iterdir()):
            try:
                content = codec.decode(file.read_bytes())
                name, version, values = content["memory"], content["version"], content["values"]
            except (KeyError, TypeError, OSError, RecordError) as fault:
                log.warning("%s is damaged and was removed: %s", file, fault)
                file.unlink(missing_ok=True)
                continue
            self._memories.setdefault(name, ClientMemory()).add(version, self._client, values)

    # --------------------------------------------------------------------------------------------------- cached values

    def value(self, digest: str) -> bytes | None:
        """A stored value, encoded; None if there is none."""
        file = self._value_file(digest)
        try:
            data = file.read_bytes()
            os.utime(file)  # it was used now
        except OSError:
            return None
        if hash_of(data) != digest:
            log.warning("%s is damaged and was removed", file)
            file.unlink(missing_ok=True)
            return None
        return data

    def store_value(self, digest: str, data: bytes) -> None:
        """Store an encoded value, and remove the least recently used ones if the cache is too large."""
        file = self._value_file(digest)
        files.write_over(file, data, files.PRIVATE)
        others = sorted((each for each in file.parent.iterdir() if each != file), key=_last_use)
        size = sum(each.stat().st_size for each in (*others, file))
        for each in others:
            if size <= self._cache_bytes:
                break
            size -= each.stat().st_size
            each.unlink()

    def _value_file(self, digest: str) -> Path:
        if not _HASH.fullmatch(digest):  # it comes from the server and becomes a path
            raise WireError("A message cannot be read: a value is not named by a hash")
        return self._folder / "cache" / digest

    # ------------------------------------------------------------------------------------------------------ last reply

    def last_reply(self, message: str) -> bytes | None:
        """The reply to the last message, if that had this hash."""
        with contextlib.suppress(OSError):
            data = (self._folder / "reply").read_bytes()
            digest, of_reply, reply = data[:32].decode(errors="replace"), data[32:64], data[64:]
            if digest == message and of_reply == hash_of(reply).encode():
                return reply
        return None

    def store_reply(self, message: str, reply: bytes) -> None:
        """Store the reply to a message, instead of the one before."""
        content = message.encode() + hash_of(reply).encode() + reply
        files.write_over(self._folder / "reply", content, files.PRIVATE)

    def forget(self, client: ClientId) -> None:
        """Delete everything that the client stored."""
        super().forget(client)
        for name in ("memory", "cache"):
            shutil.rmtree(self._folder / name, ignore_errors=True)
            (self._folder / name).mkdir()
        (self._folder / "reply").unlink(missing_ok=True)


def _short(name: str) -> str:
    """A file name for the name of a memory."""
    return hashlib.blake2b(name.encode(), digest_size=8).hexdigest()


def _last_use(file: Path) -> tuple[int, str]:
    return file.stat().st_mtime_ns, file.name
