"""explore: a page where softmax can be played with, on the user's own predictions."""

from __future__ import annotations

import contextlib
import secrets
import socket
import sys
import threading
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from hotmax.view.cli.options import COMMON, READING, Common, Reading
from hotmax.view.cli.output import progress, say, say_json

HOST = "127.0.0.1"
NEEDED = 'the explorer needs starlette and uvicorn: pip install "hotmax[explore]"'


def explore(
    file: Annotated[str | None, Parameter(name="FILE")] = None,
    /,
    *,
    port: int = 0,
    open: bool = True,
    out: Path | None = None,
    force: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    reading: Reading = READING,
    common: Common = COMMON,
) -> None:
    """Play with softmax in the browser, on your own predictions; Ctrl-C ends it.

    Example: hotmax explore predictions.npz

    Example: hotmax explore --out explorer.html

    Parameters
    ----------
    file
        Logits, with labels if there are any: .npz, .npy, .csv, .parquet or .safetensors; or a
        directory, a pattern in quotes or a .zarr, whose rows are brought into memory. Without it,
        your own numbers and a small classifier of digits.
    port
        The port on 127.0.0.1; 0 takes a free one.
    open
        Open the page in a browser.
    out
        Write the page to this file instead of serving it; it then works by itself, without a FILE.
    force
        Overwrite that file if it is there.
    """
    if out is not None:
        return write_page(out, force, file)
    if not 0 <= port <= 65535:
        raise ValueError(f"--port must lie in 0..65535, got {port}")
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise ImportError(NEEDED) from None
    from hotmax.view.explorer.data import ExplorerData
    from hotmax.view.explorer.server import Explorer

    data = None
    if file is not None:
        with progress("reading"):
            data = ExplorerData(reading.read(file), Path(file).name, file)
    with listening(port) as sock:
        serve(Explorer(data), sock, open, common.json)


def write_page(out: Path, force: bool, file: str | None) -> None:
    """The page as a file."""
    from hotmax._core.files import whole
    from hotmax.view.cli.options import check_free
    from hotmax.view.explorer import assemble

    if file is not None:
        raise ValueError(f"--out writes the page alone, without a FILE, got {file}")
    check_free(out, force)
    with whole(out, force=force) as target:
        target.write(assemble.page_html()[0].encode())
    say(f"written: {out}")


@contextlib.contextmanager
def listening(port: int) -> Iterator[socket.socket]:
    """A socket on this machine only."""
    # With the protocol named, asyncio sets TCP_NODELAY: without it each answer waits for 40 ms.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((HOST, port))
        except OSError as error:
            error.filename = f"{HOST}:{port}"
            raise
        yield sock


def serve(explorer: Any, sock: socket.socket, open: bool, as_json: bool) -> None:
    """Serve until Ctrl-C."""
    import uvicorn

    from hotmax.view.explorer.server import application

    token, port = secrets.token_urlsafe(24), sock.getsockname()[1]
    address = f"http://{HOST}:{port}/?token={token}"
    app = application(explorer, token, lambda: port)
    config = uvicorn.Config(
        app, log_level="error", access_log=False, server_header=False, lifespan="off",
        timeout_graceful_shutdown=2,
    )  # fmt: skip
    server = uvicorn.Server(config)
    if as_json:
        say_json({"address": address})
    else:
        say(address, "Ctrl-C ends it.")
    sys.stdout.flush()
    if open:  # a browser on the terminal would keep this thread
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
    try:
        server.run(sockets=[sock])
    finally:
        explorer.close()
