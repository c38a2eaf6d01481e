"""coterie ray status: the machines of a Ray cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from coterie.cli import flags
from coterie.cli.output import document, plural, result, size, table

if TYPE_CHECKING:
    from rich.table import Table


def status(
    address: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS", help="Address of the cluster: auto (that of this machine), ray://HOST:PORT or HOST:PORT."
        ),
    ] = "auto",
    as_json: flags.Json = False,
    debug: flags.Debug = False,
) -> None:
    """Show the machines of a Ray cluster, and whether simulations can use them.

    All machines need the same versions of Coterie, JAX, NumPy and Python as this one.
    """
    from coterie.federation.ray.cluster import nodes
    from coterie.federation.ray.settings import RaySettings

    found = nodes(RaySettings(address))
    usable = [node for node in found if node["problem"] is None]
    cores = sum(node["cores"] for node in usable)
    if as_json:
        document({"address": address, "nodes": found, "usable_cores": cores})
        return
    result(_table(found))
    result(*(f"{node['host']} cannot be used: {node['problem']}" for node in found if node["problem"]))
    result(f"{plural(len(usable), 'machine')} with {plural(cores, 'core')} can be used.")


def _table(found: list[dict[str, Any]]) -> Table:
    shown = table("machine", "processor", "cores", "memory", "object store", "Coterie", "JAX", left=2)
    for node in found:
        versions = [node["versions"][name] or "–" for name in ("Coterie", "JAX")]
        sizes = [size(node[key]) for key in ("memory_bytes", "object_store_bytes")]
        shown.add_row(node["host"], node["cpu"] or "–", str(node["cores"]), *sizes, *versions)
    return shown
