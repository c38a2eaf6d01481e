"""The resident executor of a client: answers the messages that its SuperNode receives, in this process.

The SuperNode runs with `--isolation process`, so it starts no process for a message. With each message comes the code
of the server's app (FAB); it is dropped unread: no code of the server runs on a client.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import httpx

from coterie.errors import FederationError, shown
from coterie.federation.network.channel import Message
from coterie.federation.network.flower.connection import Heartbeat, Retry, is_temporary, runtime_client
from coterie.federation.network.flower.content import content, pieces, value
from coterie.federation.network.flower.internals import internals
from coterie.federation.network.wire import WireError

log = logging.getLogger(__name__)

#: Flower's code for an exception in a ClientApp.
_RAISED = 2

#: Seconds for which calls to the SuperNode about a task are repeated.
_RETRY = 30.0

#: Longest pause between two attempts to reach a SuperNode that does not answer, in seconds.
_LONGEST_PAUSE = 5.0


def answer_tasks(
    address: str,
    answer: Callable[[Message], bytes],
    stop: threading.Event,
    on_idle: Callable[[], None] | None = None,
    *,
    secret: bytes | None = None,
    pause: float = 0.2,
) -> None:
    """Answer the messages of a SuperNode until `stop` is set.

    An exception in `answer` becomes an error reply. It names the type of the exception only, since its text might
    contain examples; a `WireError` is about the message, so its text is sent. If the SuperNode does not answer, it is
    tried again.

    Args:
        address: Host and port of the Runtime API of the SuperNode, on this machine.
        answer: Message → reply.
        stop: Set to return.
        on_idle: Called each time there is no message.
        secret: The secret that the SuperNode was started with.
        pause: Seconds between two looks for a message.

    Raises:
        SpecError: If the installed flwr is not supported.
        FederationError: If the SuperNode refuses this process.
    """
    acquire = internals().AcquireTaskRequest(supported_task_types=["flwr-clientapp"])
    client = runtime_client(address, "SuperExec", root_certificates=None, secret=secret)
    waited = pause
    try:
        while not stop.is_set():
            try:
                task = client.AcquireTask(acquire)
                if task.HasField("task") and task.token:
                    _answer_task(address, task.token, answer, stop)
                    continue
                waited = pause
                if on_idle is not None:
                    on_idle()
            except httpx.HTTPError as fault:
                _check_refused(fault)
                waited = min(2 * waited, _LONGEST_PAUSE)
                log.info("The SuperNode at %s does not answer (%s); next attempt in %.1f s", address, fault, waited)
            stop.wait(waited)
    finally:
        client.close()


def _check_refused(fault: httpx.HTTPError) -> None:
    if (
        isinstance(fault, httpx.HTTPStatusError)
        and not is_temporary(fault)
        and fault.response.status_code in (401, 403)
    ):
        raise FederationError(
            "The SuperNode refuses this process: it was started with another secret. Start both with the same one"
        ) from fault


def _answer_task(address: str, token: str, answer: Callable[[Message], bytes], stop: threading.Event) -> None:
    """Answer one message."""
    retry = Retry(_RETRY, stop)
    client = runtime_client(address, "flwr-clientapp", root_certificates=None, token=token, retry=retry)
    try:
        with Heartbeat(client) as heartbeat:
            task = client.PullTaskInput(internals().PullTaskInputRequest())
            request = _pull(client, task.context.node_id, task.context.run_id)
            reply, problem = _reply(request, answer)
            if heartbeat.lost.is_set():
                return  # Flower has told the server already
            _push(client, task.context.node_id, task.context.run_id, reply)
            client.PushTaskOutput(
                internals().PushTaskOutputRequest(
                    context=task.context, sub_status="failed" if problem else "completed", details=problem
                )
            )
    except httpx.TransportError:
        raise  # the SuperNode does not answer
    except Exception as fault:  # this message only: the server has stopped waiting, or the run has ended
        log.warning("A reply could not be handed over: %s", shown(fault))
    finally:
        client.close()


def _reply(request: Any, answer: Callable[[Message], bytes]) -> tuple[Any, str]:
    """The reply to a message, and what went wrong."""
    from flwr.app import Error
    from flwr.app import Message as FlowerMessage

    try:
        message = Message(value(request.content, "common"), value(request.content, "own"))
        return FlowerMessage(content(pieces("reply", answer(message))), reply_to=request), ""
    except Exception as fault:
        log.exception("A message could not be answered")
        problem = f"WireError: {fault}" if isinstance(fault, WireError) else type(fault).__name__
        return FlowerMessage(Error(_RAISED, problem), reply_to=request), problem


def _pull(client: Any, node_id: int, run_id: int) -> Any:
    """The message of a task."""
    from flwr.app import Message as FlowerMessage

    flwr = internals()
    pulled = client.PullMessages(flwr.PullAppMessagesRequest())
    if not pulled.messages_list:
        raise RuntimeError("The SuperNode has no message for its task")
    node, tree = flwr.Node(node_id=node_id), pulled.message_object_trees[0]
    message = flwr.pull_and_inflate_object_from_tree(
        object_tree=tree,
        pull_object_fn=flwr.make_pull_object_fn_protobuf(client.PullObject, node, run_id),
        confirm_object_received_fn=flwr.make_confirm_message_received_fn_protobuf(
            client.ConfirmMessageReceived, node, run_id
        ),
        return_type=FlowerMessage,
        max_time=_RETRY,
    )
    message.metadata.__dict__["_message_id"] = tree.object_id  # a reply refers to it; Flower does not send it
    return message


def _push(client: Any, node_id: int, run_id: int, reply: Any) -> None:
    """Hand a reply to the SuperNode."""
    flwr = internals()
    reply.metadata.__dict__["_message_id"] = reply.object_id
    head = flwr.message_to_proto(flwr.remove_content_from_message(reply))
    with flwr.no_object_id_recompute():
        tree, objects = flwr.get_object_tree(reply), flwr.get_all_nested_objects(reply)
        pushed = client.PushMessages(flwr.PushAppMessagesRequest(messages_list=[head], message_object_trees=[tree]))
        flwr.push_objects(
            objects,
            flwr.make_push_object_fn_protobuf(client.PushObject, flwr.Node(node_id=node_id), run_id, pushed.session_id),
            object_ids_to_push=set(pushed.objects_to_push),
        )
