"""The parts of flwr that are not public, in one place: each name with its module and the parameters that are used."""

from __future__ import annotations

import importlib
import inspect
from functools import cache
from importlib import metadata
from types import SimpleNamespace

from coterie.errors import SpecError

#: Versions of flwr whose internals are known.
SUPPORTED = ">=1.41,<1.42"

_INFLATABLE = "flwr.supercore.inflatable"
_PROTOBUF = "flwr.supercore.inflatable.inflatable_protobuf_utils"

#: Name → its module, and the parameters that are passed to it by name.
NAMES: dict[str, tuple[str, tuple[str, ...]]] = {
    # Clients of the HTTP interfaces of SuperLink and SuperNode
    "RuntimeHttpClient": ("flwr.supercore.runtime", ()),
    "ControlHttpClient": ("flwr.supercore.control", ()),
    "RuntimeTokenHttpInterceptor": ("flwr.supercore.interceptors", ("token",)),
    "RuntimeVersionHttpInterceptor": ("flwr.supercore.interceptors", ("component_name",)),
    "SuperExecAuthHttpInterceptor": ("flwr.supercore.interceptors", ("master_secret", "protected_methods")),
    "FleetHttpClient": ("flwr.supernode.fleet_http_client", ("base_url", "interceptors", "verify", "timeout")),
    "NodeAuthHttpInterceptor": ("flwr.supernode.node_auth_http_interceptor", ("private_key", "public_key")),
    "HttpGrid": ("flwr.superlink.grid", ("runtime_api_address", "insecure", "root_certificates", "token")),
    "TaskIdentity": ("flwr.supercore.task_identity", ()),
    # Messages ↔ objects
    "pull_and_inflate_object_from_tree": (
        f"{_INFLATABLE}.inflatable_utils",
        ("object_tree", "pull_object_fn", "confirm_object_received_fn", "return_type", "max_time"),
    ),
    "push_objects": (f"{_INFLATABLE}.inflatable_utils", ("objects", "push_object_fn", "object_ids_to_push")),
    "get_all_nested_objects": (f"{_INFLATABLE}.inflatable_object", ()),
    "get_object_tree": (f"{_INFLATABLE}.inflatable_object", ()),
    "no_object_id_recompute": (f"{_INFLATABLE}.inflatable_object", ()),
    "make_pull_object_fn_protobuf": (_PROTOBUF, ("pull_object_protobuf", "node", "run_id")),
    "make_push_object_fn_protobuf": (_PROTOBUF, ("push_object_protobuf", "node", "run_id", "session_id")),
    "make_confirm_message_received_fn_protobuf": (
        _PROTOBUF,
        ("confirm_message_received_protobuf", "node", "run_id"),
    ),
    "remove_content_from_message": ("flwr.app.message", ()),
    "message_to_proto": ("flwr.common.serde", ()),
    "run_from_proto": ("flwr.common.serde", ()),
    # Requests
    "AcquireTaskRequest": ("flwr.proto.runtime_pb2", ()),
    "PullTaskInputRequest": ("flwr.proto.runtime_pb2", ()),
    "PullAppMessagesRequest": ("flwr.proto.runtime_pb2", ()),
    "PushAppMessagesRequest": ("flwr.proto.runtime_pb2", ()),
    "PushTaskOutputRequest": ("flwr.proto.runtime_pb2", ()),
    "SendTaskHeartbeatRequest": ("flwr.proto.runtime_pb2", ()),
    "Node": ("flwr.proto.node_pb2", ()),
    "Fab": ("flwr.proto.fab_pb2", ()),
    "StartRunRequest": ("flwr.proto.control_pb2", ()),
    "ListRunsRequest": ("flwr.proto.control_pb2", ()),
    "StopRunRequest": ("flwr.proto.control_pb2", ()),
    "RegisterNodeRequest": ("flwr.proto.control_pb2", ()),
    "UnregisterNodeRequest": ("flwr.proto.control_pb2", ()),
    "ListNodesRequest": ("flwr.proto.control_pb2", ()),
    "DeactivateNodeRequest": ("flwr.proto.fleet_pb2", ()),
}

#: Attributes that are relied on: name → attributes.
ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "RuntimeHttpClient": (
        "from_server_address",
        "AcquireTask",
        "PullTaskInput",
        "PullMessages",
        "PushMessages",
        "PushObject",
        "PullObject",
        "ConfirmMessageReceived",
        "PushTaskOutput",
        "SendTaskHeartbeat",
        "close",
    ),
    "ControlHttpClient": (
        "from_server_address",
        "StartRun",
        "ListRuns",
        "StopRun",
        "RegisterNode",
        "UnregisterNode",
        "ListNodes",
        "close",
    ),
    "FleetHttpClient": ("DeactivateNode", "close"),
    "HttpGrid": ("push_messages", "pull_messages", "get_nodes", "set_run", "close", "_runtime_client"),
}


def changes() -> list[str]:
    """What is missing or different in the installed version of flwr; empty if everything is as expected."""
    found = []
    for name, (module, parameters) in NAMES.items():
        try:
            value = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            found.append(f"{module}.{name} is missing")
            continue
        if parameters:
            missing = set(parameters) - set(inspect.signature(value).parameters)
            found += [f"{module}.{name} has no parameter {each!r}" for each in sorted(missing)]
        found += [f"{module}.{name}.{each} is missing" for each in ATTRIBUTES.get(name, ()) if not hasattr(value, each)]
    return found


@cache
def internals() -> SimpleNamespace:
    """The names of `NAMES`, imported.

    Raises:
        SpecError: If flwr is missing or one of the names has changed.
    """
    problems = changes()
    if problems:
        raise SpecError(
            f"flwr {installed_version()} does not have the internals that Coterie uses: {'; '.join(problems[:3])}. "
            f"Supported: flwr{SUPPORTED}. Install it: pip install 'coterie[network]'"
        )
    return SimpleNamespace(
        **{name: getattr(importlib.import_module(module), name) for name, (module, _) in NAMES.items()}
    )


def installed_version() -> str:
    """The installed version of flwr, or "(not installed)"."""
    try:
        return metadata.version("flwr")
    except metadata.PackageNotFoundError:
        return "(not installed)"
