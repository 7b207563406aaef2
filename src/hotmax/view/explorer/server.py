"""The server of `hotmax explore`: this machine and one token only, and nothing of the file system.

Every request must name this server in its Host header, come from its own page if it has an Origin,
and carry the token: the page in its address, other requests in a header.
"""

from __future__ import annotations

import hmac
import json
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

import hotmax as hm
from hotmax.io.places import suffix_of
from hotmax.view.cli import reason
from hotmax.view.explorer import assemble
from hotmax.view.explorer.data import ExplorerData

LARGEST_UPLOAD = 64 << 20  # bytes
LONGEST_ADDRESS = 64 << 10
HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def plain(value: Any) -> Any:
    """As JSON has it; inf and nan, for which it has no word, as {"number": "inf"}."""
    if isinstance(value, np.ndarray | np.generic):
        if value.dtype.kind != "f" or (value.ndim and np.isfinite(value).all()):
            return value.astype(np.float64).tolist() if value.dtype.kind == "f" else value.tolist()
        value = value.astype(np.float64).tolist()
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"number": str(value)}
    return value


def answer(value: Any, status: int = 200) -> Response:
    text = json.dumps(plain(value), allow_nan=False)
    return Response(text, status, HEADERS, "application/json")


class Guard:
    """Lets in who names this server, comes from its own page and knows the token."""

    def __init__(self, app: ASGIApp, token: str, port: Callable[[], int]) -> None:
        self.app, self.token, self.port = app, token, port

    def refusal(self, request: Request) -> tuple[int, str] | None:
        hosts = [f"{name}:{self.port()}" for name in ("127.0.0.1", "localhost")]
        if request.headers.getlist("host") not in [[host] for host in hosts]:
            return 403, "the Host header must name this server"
        origins = request.headers.getlist("origin")
        if origins and origins not in [[f"http://{host}"] for host in hosts]:
            return 403, "requests from other origins are refused"
        if len(request.scope["query_string"]) > LONGEST_ADDRESS:
            return 414, "the address is too long"
        given = request.headers.get("x-hotmax-token", "")
        if request.url.path == "/" and request.method in ("GET", "HEAD"):
            given = request.query_params.get("token", "")
        if not hmac.compare_digest(given.encode(), self.token.encode()):
            return 403, "the token is missing or wrong: open the address that hotmax explore prints"
        return None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (refused := self.refusal(Request(scope))):
            status, text = refused
            await answer({"error": text}, status)(scope, receive, send)
        elif scope["type"] in ("http", "lifespan"):
            await self.app(scope, receive, send)


class Explorer:
    """What the server holds: the data, if there is a file, and the folder of an uploaded one."""

    def __init__(self, data: ExplorerData | None) -> None:
        self.data = data
        self.folder: tempfile.TemporaryDirectory[str] | None = None

    def about(self) -> dict[str, Any]:
        return {"largest": LARGEST_UPLOAD, **({} if self.data is None else self.data.about())}

    def open(self, path: Path, name: str) -> None:
        try:
            found = hm.io.read(path)
        except (ValueError, OSError, ImportError, MemoryError) as error:
            # The user knows the file by its own name, not by that of our copy.
            raise ValueError(reason(error).replace(str(path), name)) from error
        self.data = ExplorerData(found, name, name)

    def close(self) -> None:
        if self.folder is not None:
            self.data = None
            self.folder.cleanup()


def number(request: Request, name: str) -> float:
    text = request.query_params.get(name, "")
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{name} must be a number, got {text[:40]!r}") from None


def integer(request: Request, name: str) -> int:
    text = request.query_params.get(name, "")
    if not text.isdecimal() or len(text) > 20:
        raise ValueError(f"{name} must be an int of at least 0, got {text[:40]!r}")
    return int(text)


def integers(request: Request, name: str) -> list[int]:
    parts = request.query_params.get(name, "").split(",")
    if not all(part.isdecimal() and len(part) < 12 for part in parts if part):
        raise ValueError(f"{name} must be ints between commas")
    return [int(part) for part in parts if part]


def numbers(request: Request, name: str) -> dict[str, float]:
    """A JSON object of numbers."""
    try:
        given = json.loads(request.query_params.get(name, "{}"))
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict) or not all(type(v) in (int, float) for v in given.values()):
        raise ValueError(f"{name} must be a JSON object of numbers")
    return given


def questions(explorer: Explorer) -> dict[str, Callable[[Request], Any]]:
    """What the page may ask, by the last part of the path."""

    def data() -> ExplorerData:
        if explorer.data is None:
            raise ValueError("no file is open")
        return explorer.data

    def all_rows(request: Request) -> bool:
        return request.query_params.get("rows") == "all"

    def sample(request: Request) -> Any:
        return data().sample(
            integer(request, "row"),
            number(request, "temperature"),
            request.query_params.get("order", "hf"),
            numbers(request, "steps"),
            integers(request, "tokens"),
            numbers(request, "penalties"),
            integer(request, "seed"),
            integer(request, "draws"),
        )

    return {
        "about": lambda request: explorer.about(),
        "row": lambda request: data().row(integer(request, "row"), number(request, "temperature")),
        "sweep": lambda request: data().sweep(
            integer(request, "row"), integers(request, "classes")
        ),
        "sample": sample,
        "calibration": lambda request: data().calibration(
            number(request, "temperature"), all_rows(request)
        ),
        "fit": lambda request: data().fit(all_rows(request)),
    }


def application(explorer: Explorer, token: str, port: Callable[[], int]) -> ASGIApp:
    """The ASGI application; `port` gives the port that it is served on."""
    text, policy = assemble.page_html(served=True)
    asked = questions(explorer)

    async def page(request: Request) -> Response:
        rule = f"{policy}; frame-ancestors 'none'"
        return Response(text, 200, {**HEADERS, "Content-Security-Policy": rule}, "text/html")

    def ask(request: Request) -> Response:
        question = asked.get(request.path_params["question"])
        if question is None:
            return answer({"error": "there is no such question"}, 404)
        try:
            return answer(question(request))
        except (ValueError, TypeError, OSError, ImportError, MemoryError) as error:
            return answer({"error": reason(error)}, 400)

    async def upload(request: Request) -> Response:
        """Keep what is sent, up to the limit, read it as any file, and explore it."""
        name = Path(request.query_params.get("name", "")).name[:200]
        most = f"{name}: at most {LARGEST_UPLOAD >> 20} MiB can be opened here"
        try:
            declared = int(request.headers.get("content-length", "0"))
        except ValueError:
            return answer({"error": "the Content-Length must be a number"}, 400)
        if declared > LARGEST_UPLOAD:
            return answer({"error": most}, 413)
        folder = tempfile.TemporaryDirectory(prefix="hotmax-")
        path = Path(folder.name) / f"file{suffix_of(name)[:20]}"
        size = 0
        with path.open("wb") as file:
            async for part in request.stream():
                size += len(part)
                if size > LARGEST_UPLOAD:
                    break
                file.write(part)
        if size > LARGEST_UPLOAD:
            folder.cleanup()
            return answer({"error": most}, 413)
        try:
            await run_in_threadpool(explorer.open, path, name)
        except ValueError as error:
            folder.cleanup()
            return answer({"error": str(error)}, 400)
        old, explorer.folder = explorer.folder, folder
        if old is not None:
            old.cleanup()
        return answer(explorer.about())

    app = Starlette(
        routes=[
            Route("/", page, methods=["GET"]),
            Route("/api/file", upload, methods=["POST"]),
            Route("/api/{question}", ask, methods=["GET"]),
        ]
    )
    return Guard(app, token, port)
