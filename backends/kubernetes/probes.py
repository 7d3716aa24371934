"""Container ports and probes for the API servers of a pod."""

from __future__ import annotations

from typing import Any

PERIOD_SECONDS = 10
LIVENESS_FAILURES = 6
"""Number of consecutive failed probes after which a pod restarts. It is above Kubernetes' default
of 3, because an overloaded engine may miss some probes."""


def port_name(port: int, ports: tuple[int, ...]) -> str:
    """Return the name of ``port``, which is one of the ports of a pod."""
    return "api" if len(ports) == 1 else f"api-{port}"


def server_settings(ports: tuple[int, ...], path: str, startup_minutes: int) -> dict[str, Any]:
    """Return the ports and probes of a container; an empty dict without API servers.

    Each probe succeeds if all API servers respond with status 200 at ``path``.
    """
    if not ports:
        return {}
    probe = {**_probe(ports, path), "periodSeconds": PERIOD_SECONDS, "timeoutSeconds": 10}
    attempts = startup_minutes * 60 // PERIOD_SECONDS
    return {
        "ports": [{"containerPort": port, "name": port_name(port, ports)} for port in ports],
        "startupProbe": {**probe, "failureThreshold": attempts},
        "livenessProbe": {**probe, "failureThreshold": LIVENESS_FAILURES},
        "readinessProbe": probe,
    }


def _probe(ports: tuple[int, ...], path: str) -> dict[str, Any]:
    """Return the request of a probe.

    An HTTP probe of Kubernetes checks one port, so a Bash command checks several ports.
    """
    if len(ports) == 1:
        return {"httpGet": {"path": path, "port": ports[0]}}
    script = (
        f"for port in {' '.join(map(str, ports))}; do exec 3<>/dev/tcp/127.0.0.1/$port && "
        f"printf 'GET {path} HTTP/1.0\\r\\n\\r\\n' >&3 && read -r _ status _ <&3 && "
        "[[ $status == 200 ]] || exit 1; done"
    )
    return {"exec": {"command": ["bash", "-c", script]}}
