"""coterie join: take part in a federation with the data on this machine; coterie leave: withdraw."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coterie.cli import flags
from coterie.cli.output import document, line, plural, result, size

if TYPE_CHECKING:
    from coterie.federation.network.site import Answered
    from coterie.runs.joining import Membership
    from coterie.runs.terms import Terms


def join(
    server: Annotated[
        str, typer.Option(metavar="HOST:PORT", show_default=False, help="Address of the server (coterie serve).")
    ],
    key: Annotated[
        Path,
        typer.Option(
            metavar="FILE", show_default=False, help="Private key of this client (coterie keys client); it stays here."
        ),
    ],
    data: Annotated[
        str,
        typer.Option(
            metavar="PATH",
            show_default=False,
            help="Data of this client: a .npz file with arrays x and y, a folder, or a table.",
        ),
    ],
    client: Annotated[
        str | None,
        typer.Option(metavar="NAME", show_default=False, help="The client in the data, if they contain several."),
    ] = None,
    certificate: Annotated[
        Path | None,
        typer.Option(
            "--ca",
            metavar="FILE",
            show_default=False,
            help="Certificate of the federation, ca.crt; default: beside the key.",
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            show_default=False,
            help="Where this client stores its log, its models and what it must remember; default: KEY-client.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="data.KEY=VALUE",
            show_default=False,
            help="A setting of the data, such as data.test_share.",
        ),
    ] = None,
    allow_model: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            show_default=False,
            help="Allow a model that this function of an installed package builds; repeatable.",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Agree to what the client reveals, without a question.")] = False,
    once: Annotated[bool, typer.Option("--once", help="End when the first model has been received.")] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Check data, key and server, show what the client would reveal, and end."),
    ] = False,
    as_json: flags.Json = False,
    quiet: flags.Quiet = False,
    debug: flags.Debug = False,
) -> None:
    """Take part in a federation with the data on this machine. The data never leave it.

    Shows what the server would learn from this client before anything is sent, and asks. Then answers the server's
    requests until it is stopped, and shows each of them. Everything that was asked and answered is in log.jsonl.
    """
    from coterie.deployment import check_admission, check_installed, client_folder, server_address
    from coterie.errors import SpecError
    from coterie.runs.joining import LEFT, Membership
    from coterie.runs.terms import Terms

    check_installed()
    address = server_address(server)
    authority = certificate or key.parent / "ca.crt"
    for file, how in (
        (key, "make one with: coterie keys client NAME"),
        (authority, "get ca.crt from the server, --ca"),
    ):
        if not file.is_file():
            raise SpecError(f"There is no file {file}; {how}")
    show = _Shown(quiet or as_json)
    home = folder or key.with_name(f"{key.stem}-client")
    member = Membership(
        data,
        home,
        consent=lambda terms: True if yes else None,
        client=client,
        options=_options(settings),
        on_answer=show.answered,
        on_terms=show.terms,
        on_model=lambda file, about: show.model(file, about, member if once else None),
        on_problem=show.line,
        allowed_models=tuple(allow_model or ()),
    )
    facts = member.facts
    show.line(f"data: {facts.fit:,} training and {facts.test:,} test examples of shape {_shape(facts.shape)}")
    if dry_run:
        about = check_admission(address, private_key=key, root_certificates=authority)
        _report(Terms.of(about, table=facts.table), facts.to_dict(), as_json=as_json)
        return
    try:
        with client_folder(home):
            _take_part(address, member, show, key=key, authority=authority, yes=yes)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            "The client is away; to return, start the same command again. "
            f"To withdraw it: coterie leave {shlex.quote(str(home))}"
        ) from None
    if (home / LEFT).exists():
        show.line("this client has withdrawn (coterie leave)")


def _take_part(address: str, member: Membership, show: _Shown, *, key: Path, authority: Path, yes: bool) -> None:
    """Wait for the server, ask the owner, and answer requests until the client is stopped."""
    from coterie.deployment import join as answer_requests
    from coterie.deployment import wait_for_server
    from coterie.errors import SpecError
    from coterie.runs.joining import CONSENTS
    from coterie.runs.terms import Terms

    about = wait_for_server(address, key=key, certificate=authority, on_wait=lambda why: show.line(f"waiting: {why}"))
    terms = Terms.of(about, table=member.facts.table)
    if member.has_agreed(terms) is None:
        _ask(member, terms, yes=yes)
    if not member.has_agreed(terms):
        raise SpecError(
            "You have not agreed to what this client would reveal, so it does not take part. To decide again, remove "
            f"{member.folder / CONSENTS}"
        )
    answer_requests(address, member, key=key, certificate=authority, on_status=show.line)


def leave(
    folder: Annotated[Path, typer.Argument(metavar="DIR", show_default=False, help="Folder of the client (--folder).")],
    forget: Annotated[
        bool, typer.Option("--forget", help="Also delete the models and memories of all runs; the log stays.")
    ] = False,
    debug: flags.Debug = False,
) -> None:
    """Withdraw this client: a running `coterie join` ends, and answers no further request.

    What the server has received stays there. To take part again, remove the file `left` in the folder.
    """
    from coterie.runs.joining import leave as withdraw

    count = withdraw(folder, forget=forget)
    deleted = f"; the storage of {plural(count, 'run')} was deleted" if forget else ""
    result(f"{folder} has withdrawn{deleted}")


class _Shown:
    """Lines on stderr, each with the time."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._said = ""

    def line(self, text: str) -> None:
        """Show a line."""
        if not self._quiet:
            line(f"{time.strftime('%H:%M:%S')}  {text}")

    def answered(self, entry: Answered) -> None:
        """Show a request and what was sent in reply."""
        what = f"failed: {entry.problem}" if entry.problem else ", ".join(entry.names)
        purpose = " (evaluation)" if entry.evaluating else ""
        sizes = f"{size(entry.received)} received, {size(entry.sent)} sent"
        self.line(f"{entry.work}{purpose}: {what} · {sizes} · {entry.seconds:.1f} s")

    def terms(self, terms: Terms, decision: str) -> None:
        """Show a greeting whose terms are new."""
        text = f"the server runs {terms.method}: {decision}"
        if decision == "waiting":
            text = f"the server wants to run {terms.method} now; stop and start coterie join to read what it reveals"
        if text != self._said:
            self._said = text
            self.line(text)

    def model(self, file: Path, about: Mapping[str, Any], member: Membership | None) -> None:
        """Show that a model has arrived; `member`: the client to end."""
        cluster = "the fallback model" if about["cluster"] is None else f"the model of cluster {about['cluster']}"
        self.line(f"received {cluster}: {file}")
        if member is not None:
            member.end_soon()


def _ask(member: Membership, terms: Terms, *, yes: bool) -> None:
    """Show what the client would reveal, and ask its owner."""
    from coterie.errors import SpecError

    for sentence in ("What this client would reveal:", *terms.sentences()):
        line(sentence if sentence.endswith(":") else f"  - {sentence}")
    if not yes:
        if not sys.stdin.isatty():
            raise SpecError(
                "The input is not a terminal, so you cannot be asked; read the terms with --dry-run, agree with --yes"
            )
        yes = typer.confirm("Take part?", err=True)
    member.agree(terms, yes)


def _report(terms: Terms, facts: Mapping[str, Any], *, as_json: bool) -> None:
    shown = {key: value for key, value in facts.items() if key != "moments"}
    if as_json:
        document({"data": shown, "method": terms.method, "model": terms.model, "reveals": terms.sentences()})
        return
    result("The server admits this client. It would reveal:", *(f"  - {each}" for each in terms.sentences()))


def _options(settings: list[str] | None) -> dict[str, Any]:
    from coterie.errors import SpecError
    from coterie.runs.settings_conversion import parse_setting

    found = {}
    for text in settings or ():
        path, value = parse_setting(text)
        section, _, name = path.partition(".")
        if section != "data":
            raise SpecError(
                f"--set of coterie join takes settings of the data, such as data.test_share=0.2, got {text}"
            )
        found[name] = value
    return found


def _shape(shape: tuple[int, ...]) -> str:
    return " × ".join(map(str, shape)) or "1"
