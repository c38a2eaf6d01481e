"""`Admissions`: which clients may join a federation; a folder on the server.

    admitted/NAME.toml               a client that may join: its name, public key, fingerprint and date
    revoked/NAME.FINGERPRINT.toml    a key that may not join any more
    .lock                            held by the process that changes the folder

Each file is written atomically, so readers need no lock. A running server calls `changed` often and `clients` when it
is true. A damaged file admits no client; it is reported by its name and affects no other client. A key in both
folders, as after a crash, is revoked.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from coterie.errors import SpecError, shown, unknown
from coterie.federation.network import files
from coterie.federation.network.admitted import Admitted, decode, encode, file_part, now
from coterie.federation.network.certificates import CA_CERTIFICATE
from coterie.federation.network.keys import check_client_name, parse_public_key, read_public_key
from coterie.types import ClientId

log = logging.getLogger(__name__)

ADMITTED, REVOKED, LOCK = "admitted", "revoked", ".lock"

#: Seconds to wait for another process that changes the folder.
_PATIENCE = 10.0

#: Shortest beginning of a fingerprint that names a key, in characters after `SHA256:`.
_PREFIX = 8


@dataclass(frozen=True)
class _Content:
    """The files of one of the two folders: those that can be read, and the others with the reason."""

    entries: dict[Path, Admitted] = field(default_factory=dict)
    damaged: dict[Path, str] = field(default_factory=dict)


class Admissions:
    """The clients that may join a federation."""

    def __init__(self, folder: Path) -> None:
        """Open the folder of a federation.

        Raises:
            SpecError: If it is not such a folder.
        """
        if not (folder / ADMITTED).is_dir() and not (folder / CA_CERTIFICATE).is_file():
            raise SpecError(
                f"There is no federation in the folder {shown(str(folder))}. Give its folder with --folder, or create "
                "one: coterie keys init --host NAME"
            )
        self.folder = folder
        #: File → reason, for the files that the last call of `clients` could not read.
        self.damaged: dict[Path, str] = {}
        self._seen: object = None

    # --------------------------------------------------------------------------------------------------------- reading

    def clients(self) -> dict[ClientId, Admitted]:
        """Client id → client, for all that may join, in the order of ids. Damaged files are logged and left out."""
        self._seen = self._signature()  # before reading, so that a change in the meantime is noticed
        admitted = self._read(ADMITTED)
        revoked = self._revoked_files()  # after the other folder: a file moves from there to here
        damaged = admitted.damaged
        owners: dict[str, Path] = {}
        found: dict[ClientId, Admitted] = {}
        for file, entry in admitted.entries.items():
            if file_part(entry.fingerprint) in revoked:
                continue
            if entry.fingerprint in owners:  # written by hand
                damaged[file] = f"it has the key of {owners[entry.fingerprint].name}"
                continue
            owners[entry.fingerprint] = file
            found[entry.client] = entry
        for file, reason in damaged.items():
            if self.damaged.get(file) != reason:
                log.warning("%s is ignored: %s", file, reason)
        self.damaged = damaged
        return found

    def revoked(self) -> list[Admitted]:
        """The revoked clients whose files can be read."""
        return list(self._read(REVOKED).entries.values())

    def changed(self) -> bool:
        """Whether the folder has changed since the last call of `clients`; reads no file."""
        return self._seen != self._signature()

    # -------------------------------------------------------------------------------------------------------- changing

    def admit(
        self, public_key_file: Path, name: str | None = None, cluster: int | None = None, *, again: bool = False
    ) -> Admitted:
        """Let a client join.

        Args:
            public_key_file: Its public key.
            name: Client id; None: the comment of the key.
            cluster: Its true cluster, if known.
            again: Whether a revoked key may be admitted.

        Raises:
            SpecError: If the key or name is not valid or in use, or the key was revoked and `again` is false.
        """
        key = read_public_key(public_key_file)
        client = _client_id(key.comment, public_key_file) if name is None else ClientId(check_client_name(name))
        if cluster is not None and cluster < 0:
            raise SpecError(f"--cluster must be at least 0, got {cluster}")
        entry = Admitted(client, f"{key.text} {client}", key.fingerprint, now(), cluster)
        with self._changing():
            revoked = self._revoked_files().get(file_part(key.fingerprint), [])
            if revoked and not again:
                raise SpecError(
                    f"The key {key.fingerprint} was revoked ({revoked[0].name}); to admit it anyway: --again"
                )
            leftover = self._check_unused(entry, public_key_file)
            write = files.write_over if leftover else files.write_new
            write(self.folder / ADMITTED / f"{client}.toml", encode(entry), files.PUBLIC)
            for file in revoked:
                file.unlink()
        return entry

    def revoke(self, which: str | Path) -> Admitted:
        """Stop a client from joining.

        Args:
            which: Its name; its fingerprint or the unique beginning of it; or a file with its public key, whose name
                ends with `.pub` or has a folder.

        Returns:
            The client that was revoked.

        Raises:
            SpecError: If there is no such client.
        """
        with self._changing():
            entry = self._find(str(which))
            file = self.folder / REVOKED / f"{entry.client}.{file_part(entry.fingerprint)}.toml"
            # The rename revokes the key, in one step. The date is written afterwards.
            (self.folder / ADMITTED / f"{entry.client}.toml").replace(file)
            entry = replace(entry, revoked=now())
            files.write_over(file, encode(entry), files.PUBLIC)
        return entry

    # ----------------------------------------------------------------------------------------------------------- inside

    def _check_unused(self, entry: Admitted, key_file: Path) -> bool:
        """Check that name and key are not in use; returns whether a file of the same name can be replaced."""
        clients = self.clients()
        for other in clients.values():
            if other.fingerprint == entry.fingerprint:
                raise SpecError(f"This key was admitted as {other.client} on {other.admitted:%Y-%m-%d}")
            if other.client.casefold() == entry.client.casefold():  # file systems may ignore case
                raise SpecError(
                    f"The name {other.client} belongs to another key, {other.fingerprint}. Revoke that one first: "
                    f"coterie revoke {other.client}; or choose another name: coterie admit {key_file} --name NAME"
                )
        file = self.folder / ADMITTED / f"{entry.client}.toml"
        if file in self.damaged:
            raise SpecError(f"{file} is damaged: {self.damaged[file]}. Remove it and try again")
        return file.exists()  # of a key that is in the folder of revoked keys too

    def _find(self, which: str) -> Admitted:
        """The client that may join and has this name, fingerprint or key file."""
        clients = self.clients()
        name, matches = which, [entry for entry in clients.values() if entry.client == which]
        if which.startswith("SHA256:"):
            name = which.rstrip("…=")
            if len(name) < len("SHA256:") + _PREFIX:
                raise SpecError(f"{shown(which)} is too short; give at least {_PREFIX} characters after SHA256:")
            matches = [entry for entry in clients.values() if entry.fingerprint.startswith(name)]
        elif which.endswith(".pub") or os.path.basename(which) != which:
            name = parse_public_key(Path(which)).fingerprint
            matches = [entry for entry in clients.values() if entry.fingerprint == name]
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise SpecError(f"Several keys begin with {shown(which)}: {', '.join(each.client for each in matches)}")
        for entry in self.revoked():
            if name == entry.client or entry.fingerprint.startswith(name):
                raise SpecError(f"{entry.client}, {entry.fingerprint}, is revoked already and not admitted")
        file = self.folder / ADMITTED / f"{which}.toml"
        if file in self.damaged:
            raise SpecError(f"{file} is damaged and admits no client: {self.damaged[file]}. Remove the file")
        raise SpecError(unknown("admitted client", which, clients))

    def _read(self, part: str) -> _Content:
        content = _Content()
        for file in sorted((self.folder / part).glob("[!.]*.toml")):
            try:
                entry = decode(file)
                expected = {ADMITTED: entry.client, REVOKED: f"{entry.client}.{file_part(entry.fingerprint)}"}[part]
                if file.stem != expected:
                    raise SpecError(f"its name should be {expected}.toml")
                content.entries[file] = entry
            except FileNotFoundError:
                continue  # removed by another process since the folder was listed
            except (OSError, SpecError, ValueError) as fault:  # ValueError: neither UTF-8 nor TOML
                content.damaged[file] = str(fault)
        return content

    def _revoked_files(self) -> dict[str, list[Path]]:
        """Fingerprint as in file names → files. Contents are not read: a damaged file revokes its key too."""
        found: dict[str, list[Path]] = {}
        for file in sorted((self.folder / REVOKED).glob("[!.]*.toml")):
            found.setdefault(file.stem.rpartition(".")[2], []).append(file)
        return found

    def _signature(self) -> object:
        """What changes with the files: their names, times, sizes and inodes. A folder's own time is too coarse."""
        seen = []
        for part in (ADMITTED, REVOKED):
            with contextlib.suppress(FileNotFoundError), os.scandir(self.folder / part) as listed:
                for each in listed:
                    if each.name.startswith("."):  # a temporary file
                        continue
                    with contextlib.suppress(FileNotFoundError):
                        state = each.stat()
                        seen.append((part, each.name, state.st_mtime_ns, state.st_size, state.st_ino))
        return sorted(seen)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """Hold the lock; the operating system releases it if the process is killed."""
        import filelock

        try:
            lock = filelock.FileLock(self.folder / LOCK, timeout=_PATIENCE)
            with lock:
                for part in (ADMITTED, REVOKED):
                    (self.folder / part).mkdir(exist_ok=True)
                    files.remove_leftovers(self.folder / part)
                yield
        except filelock.Timeout as fault:
            raise SpecError(
                f"Another process is changing the folder {self.folder}; try again when it has finished"
            ) from fault
        except OSError as fault:
            raise SpecError(f"The folder {self.folder} cannot be changed: {fault.strerror or fault}") from fault


def _client_id(comment: str, file: Path) -> ClientId:
    if not comment:
        raise SpecError(f"The key in {file} has no comment to use as the client's name; give it: --name NAME")
    try:
        return ClientId(check_client_name(comment))
    except SpecError as fault:
        raise SpecError(
            f"The comment of the key in {file} is not usable: {fault}. Give another name: --name NAME"
        ) from fault
