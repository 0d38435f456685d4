"""How to reach the engine, and what it means when that fails."""

from __future__ import annotations

import contextlib
import http.client
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import docker.context.config
import docker.errors
import requests
import urllib3
from docker.context import ContextAPI
from docker.utils import kwargs_from_env

from harness.errors import InfrastructureError, Unrecorded

CONNECT_TIMEOUT_S = 15.0
ANSWER_TIMEOUT_S = 120.0
FULL_REMEDY = "free some: nox -s images -- remove; docker system prune"
NO_ENGINE_REMEDY = "start it (systemctl start docker), or check DOCKER_HOST and `docker context ls`"
SSH_REMEDY = "forward its socket, ssh -NL /tmp/engine.sock:/var/run/docker.sock HOST, and set DOCKER_HOST=unix:///tmp/engine.sock"
GONE = (
    requests.exceptions.RequestException,
    urllib3.exceptions.HTTPError,
    http.client.HTTPException,
    ConnectionError,
    EOFError,
    TimeoutError,
)


class EngineGone(Unrecorded):
    """The engine does not answer, or not any more; `problem` is the connection's error."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"the container engine does not answer: {problem[:300]}", NO_ENGINE_REMEDY)
        self.problem = problem


class EngineRefused(InfrastructureError):
    """The engine answers, and will not do it."""

    def __init__(self, problem: str) -> None:
        if "o space left on device" in problem:
            super().__init__(f"the container engine's disk is full: {problem}", FULL_REMEDY)
        else:
            super().__init__(f"the container engine refused: {problem}", "docker info; docker events")


def _contexts() -> str:
    return str(Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker") / "contexts")


docker.context.config.get_context_dir = _contexts  # the SDK's own finds none where no config.json lies beside them


def endpoint() -> dict[str, Any]:
    """The client's arguments, as `docker` itself chooses: DOCKER_HOST, else DOCKER_CONTEXT, else the current context.

    InfrastructureError where the context does not exist, or certificates are missing.
    """
    name = os.environ.get("DOCKER_CONTEXT")
    try:
        if os.environ.get("DOCKER_HOST"):
            arguments: dict[str, Any] = kwargs_from_env()
            if str(arguments.get("base_url")).startswith("ssh://"):
                raise InfrastructureError("DOCKER_HOST: engines are not reached through ssh:// here", SSH_REMEDY)
            return arguments
        context = ContextAPI.get_context(name) if name else ContextAPI.get_current_context()
    except (docker.errors.DockerException, OSError, ValueError, KeyError) as error:
        raise InfrastructureError(f"the engine's address is not known: {error}", NO_ENGINE_REMEDY) from None
    if context is None:
        raise InfrastructureError(f"there is no Docker context {name!r}", "docker context ls")
    if str(context.Host).startswith("ssh://"):
        raise InfrastructureError(f"{context.Host}: engines are not reached through ssh:// here", SSH_REMEDY)
    return {"base_url": context.Host, **({"tls": context.TLSConfig} if context.TLSConfig else {})}


def context_name() -> str:
    return os.environ.get("DOCKER_CONTEXT") or str(ContextAPI.get_current_context().Name)


def reason_of(error: docker.errors.APIError) -> str:
    return " ".join(str(error.explanation or error).split())


@contextlib.contextmanager
def answering() -> Iterator[None]:
    """EngineGone for what the SDK raises when no engine answers, EngineRefused for an answer that no caller expects."""
    try:
        yield
    except docker.errors.APIError as error:
        if error.status_code in (502, 503, 504) or "shutting down" in str(error).lower():
            raise EngineGone(str(error)) from None
        raise EngineRefused(reason_of(error)) from None
    except docker.errors.DockerException as error:
        raise EngineGone(str(error)) from None
    except GONE as error:
        raise EngineGone(str(error)) from None
