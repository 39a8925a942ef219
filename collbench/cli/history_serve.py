"""``collbench history serve``: a published page on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from collbench.cli.context import CONTEXT
from collbench.errors import UsageError

if TYPE_CHECKING:
    from http.server import ThreadingHTTPServer

_PORT = 8080


@click.command(context_settings=dict(CONTEXT))
@click.argument("folder", metavar="DIR")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=_PORT,
    show_default=True,
    help="0 takes a free one.",
)
@click.option(
    "--bind",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="The interface's address; any but a loopback one lets others read the page.",
)
def serve(folder: str, port: int, bind: str) -> None:
    """Show the page that `collbench history publish` made in DIR, until Ctrl-C.

    A browser does not let a page that is opened as a file read its data; so it is served, DIR/html
    and nothing else.

    \b
    Examples:
      collbench history serve nccl-history
      collbench history serve nccl-history --port 0
    """  # noqa: D301  click's mark for "do not rewrap"
    from collbench.cli.output import say

    with page_server(Path(folder), port=port, bind=bind) as server:
        host, number = server.server_address[:2]
        name = f"[{host!s}]" if ":" in str(host) else str(host)
        say(f"http://{name}:{number}/ shows {folder}/html; Ctrl-C ends it")
        server.serve_forever()


def page_server(folder: Path, *, port: int, bind: str) -> ThreadingHTTPServer:
    """Returns a server of a published page that listens already.

    Args:
        folder: that was published into.
        port: 0: a free one.
        bind: the address of an interface.

    Raises:
        UsageError: nothing is published there, or the port or the address cannot be had.
    """
    import socket
    from functools import partial
    from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

    html = folder / "html"
    if not (html / "index.json").is_file():
        raise UsageError(
            f"'{folder}' holds no published page; 'collbench history publish {folder}' makes one"
        )

    class Page(SimpleHTTPRequestHandler):
        def list_directory(self, path: object) -> None:
            """Refuses to list a folder: the page knows its files."""
            del path
            self.send_error(404)

        def log_message(self, *_: object) -> None:
            """Says nothing of what is read."""

    try:
        family = socket.getaddrinfo(bind, port, type=socket.SOCK_STREAM)[0][0]

        class Server(ThreadingHTTPServer):
            address_family = family

        return Server((bind, port), partial(Page, directory=str(html)))
    except OSError as problem:
        raise UsageError(
            f"cannot listen on {bind} port {port}: {problem.strerror}; --port 0 takes a free port,"
            " --bind another address"
        ) from None
