"""The search page: a small read-only server for one machine."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from bertsmith.errors import BertsmithError
from bertsmith.pages import page
from bertsmith.search.index import MODES, Index

HOSTS = ("127.0.0.1", "localhost")  # accepted Host headers: protects against DNS rebinding
LONGEST = 1 << 16  # characters of a request's address
TOP = 20
LONGEST_EXCERPT = 700  # characters of a passage that are shown


def server(index: Index, port: int = 0) -> ThreadingHTTPServer:
    """Return a server for the page and its searches, reachable from this machine only."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            host = self.headers.get("Host", "").rpartition(":")[0]
            if host not in HOSTS or len(self.path) > LONGEST:
                self._send(403, "text/plain", b"this page is for this machine alone\n")
                return
            address = urlsplit(self.path)
            if address.path == "/":
                self._send(200, "text/html", search_page(index).encode())
            elif address.path == "/search":
                status, hits = answer(index, address.query)
                self._send(status, "application/json", json.dumps(hits).encode())
            else:
                self._send(404, "text/plain", b"there is no such page\n")

        def _send(self, status: int, kind: str, content: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.send_header("X-Content-Type-Options", "nosniff")
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *values: Any) -> None:
            pass

    try:
        return ThreadingHTTPServer(("127.0.0.1", port), Handler)
    except (OSError, OverflowError) as error:
        raise BertsmithError(f"the port {port} cannot be used ({error})") from None


def answer(index: Index, query: str) -> tuple[int, dict[str, Any]]:
    """Return the HTTP status and the hits of a request (q, mode, kind, file)."""
    values = {name: texts[0] for name, texts in parse_qs(query, errors="replace").items()}
    mode = values.get("mode", "hybrid")
    try:
        hits = index.search(
            values.get("q", ""),
            TOP,
            mode=mode if mode in MODES else "hybrid",
            files=[values["file"]] if values.get("file") else (),
            kinds=[values["kind"]] if values.get("kind") else (),
        )
    except BertsmithError as error:
        return 400, {"error": str(error)}
    results = []
    for hit in hits:
        start, end = hit.excerpt(LONGEST_EXCERPT)
        shown = {"excerpt": [start, end], "cut": start > hit.body_start}
        results.append({**hit.to_dict(), **shown})
    return 200, {"results": results}


def search_page(index: Index) -> str:
    """Return the page, which sends its queries to /search."""
    about = index.about
    model = about["model"]
    return page(
        "search.html",
        "Search",
        styles=("search.css",),
        scripts=("search.js",),
        connects=True,
        path=about["path"],
        files=f"{about['files']:,}",
        passages=f"{about['passages']:,}",
        model=model["name"] if model else "",
        kinds=index.kinds(),
        modes=MODES if model else ("keywords",),
    )
