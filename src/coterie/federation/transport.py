"""`Transport`: sends requests to clients. The simulators, and the wrappers for faults and attacks, implement it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from coterie.errors import ClientFailed
from coterie.federation.messages import ReplyBatch, Request
from coterie.federation.protocol import Mean
from coterie.models import Task
from coterie.types import ClientId

if TYPE_CHECKING:
    from coterie.data.federated import FederatedData


class Transport(Protocol):
    """Sends requests to clients and returns their replies."""

    @property
    def outlives_server(self) -> bool:
        """Whether clients keep what they store when the server is restarted. Simulated clients are restored with it."""

    @property
    def clients(self) -> Sequence[ClientId]:
        """Client ids, sorted."""

    @property
    def task(self) -> Task:
        """The task that the clients learn."""

    def send(self, request: Request) -> Iterator[ReplyBatch]:
        """Send a request and yield replies: first of clients that miss a cached value, then in the order of client ids.

        A reply that arrives after the deadline is marked `late` or left out.
        """

    def on(self, task: Task) -> Transport:
        """Return a transport to the same clients with another task."""

    def set_data(self, data: FederatedData) -> None:
        """Replace the examples of simulated clients, as after a shift."""

    def save(self) -> dict[str, Any]:
        """Return what simulated clients store, as plain data for a checkpoint."""

    def load(self, saved: Mapping[str, Any]) -> None:
        """Restore what `save` returned."""


@runtime_checkable
class SummingTransport(Transport, Protocol):
    """A transport whose workers sum models (`ReplyBatch.summed`), so that these need not travel."""

    def send_for_means(self, request: Request, means: Sequence[Mean]) -> Iterator[ReplyBatch]:
        """Send a request and yield replies like `send`; where possible, with the sums of models that `means` need."""


class TransportWrapper:
    """Base class of transports that change the replies of another one. Subclasses define `on` and `send`."""

    def __init__(self, transport: Transport) -> None:
        """Wrap a transport."""
        self._transport = transport

    @property
    def outlives_server(self) -> bool:
        """Whether clients keep what they store when the server is restarted."""
        return self._transport.outlives_server

    @property
    def clients(self) -> Sequence[ClientId]:
        """Client ids, sorted."""
        return self._transport.clients

    @property
    def task(self) -> Task:
        """The task that the clients learn."""
        return self._transport.task

    def set_data(self, data: FederatedData) -> None:
        """Replace the clients' examples."""
        self._transport.set_data(data)

    def save(self) -> dict[str, Any]:
        """Return what the clients store, as plain data."""
        return self._transport.save()

    def load(self, saved: Mapping[str, Any]) -> None:
        """Restore what `save` returned."""
        self._transport.load(saved)


def send(transport: Transport, request: Request, means: Sequence[Mean] = ()) -> Iterator[ReplyBatch]:
    """Send a request and yield replies; an exception raised by the model in compiled code becomes `ClientFailed`.

    Args:
        transport: Sends the request.
        request: The request.
        means: The means that the transport may sum.
    """
    if means and isinstance(transport, SummingTransport):
        yield from guarded(transport.task, request, transport.send_for_means(request, means))
    else:
        yield from guarded(transport.task, request, transport.send(request))


def guarded(task: Task, request: Request, replies: Iterator[ReplyBatch]) -> Iterator[ReplyBatch]:
    """Yield replies; an exception raised by the model in compiled code becomes `ClientFailed`."""
    try:
        yield from replies
    except Exception:  # JAX raises several types for it
        fault = None if task.fault is None else task.fault()
        if fault is None:
            raise
        if not isinstance(fault, Exception):
            raise fault from None  # Ctrl-C
        text = f"{type(fault).__name__}: {fault}"
        raise ClientFailed(f"Model {task.name} failed in {request.work.name!r} with {text}") from fault
