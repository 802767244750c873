"""`bertsmith.connect`: a model on a server, with the methods of `bertsmith.load`."""

import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote, urlsplit
from weakref import WeakSet

import numpy as np

from bertsmith.errors import BertsmithError
from bertsmith.files import write_text
from bertsmith.infer.states import TextStates
from bertsmith.infer.texts import listed_strings
from bertsmith.tasks.embedding import Vectors
from bertsmith.tasks.methods import Methods
from bertsmith.tasks.use import RequestBody, Use

LARGEST = 1 << 30  # bytes of an answer
AT_ONCE = 64  # texts in a request; servers limit them
WAITS = 5  # retries if the server is busy


def connect(
    url: str, *, model: str | None = None, api_key: str | None = None, timeout: float = 120.0
) -> "RemoteBert":
    """Use a model of a running `bertsmith serve` as if it were loaded here.

    `model` is a name that the server knows, an alias too; by default the server uses its first
    model that supports the task.
    """
    return RemoteBert(url, model=model, api_key=api_key, timeout=timeout)


@dataclass(frozen=True)
class RemoteAttention:
    """Attention weights of a text, computed by a server."""

    server: "RemoteBert"
    body: Mapping[str, Any]
    tokens: list[str]
    layers: list[int]
    heads: list[int]
    weights: Vectors  # (layers, heads, n, n)

    def __len__(self) -> int:
        return len(self.tokens)

    def maps(self) -> Vectors:
        """All weights: (layers, heads, n, n)."""
        return self.weights

    def save(self, path: str | Path) -> None:
        """Write a page (.html) that shows them."""
        if Path(path).suffix not in (".html", ".htm"):
            raise BertsmithError(f"{path}: write to a .html file")
        write_text(path, self._repr_html_())

    def _repr_html_(self) -> str:
        return str(self.server.request("/attention", {**self.body, "format": "html"}))


class RemoteBert(Methods):
    """A model on a server, with the methods of `Bert`; `with` closes its connections."""

    def __init__(self, url: str, *, model: str | None, api_key: str | None, timeout: float) -> None:
        try:
            address = urlsplit(url)
            self._host, self._port = address.hostname or "", address.port
        except ValueError as error:
            raise BertsmithError(f"{url!r} is not the address of a server ({error})") from error
        if address.scheme not in ("http", "https") or not self._host:
            raise BertsmithError(
                f"{url!r} is not the address of a server, such as http://127.0.0.1:8080"
            )
        self.url, self.model, self.timeout = url.rstrip("/"), model, timeout
        self._https, self._path = address.scheme == "https", address.path.rstrip("/")
        self._key = api_key
        self._own = threading.local()  # a connection for each thread
        self._connections: WeakSet[HTTPConnection] = WeakSet()  # those of all threads
        self.models: list[dict[str, Any]] = self.request("/models")["models"]
        if model is not None:  # NAME@VERSION, NAME or an alias: the server knows
            try:
                self.request(f"/models/{quote(model, safe='')}")
            except BertsmithError:
                self.close()
                raise

    def __repr__(self) -> str:
        names = self.model or ", ".join(model["id"] for model in self.models)
        return f"<{names} on {self.url}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; another request opens a new one."""
        for connection in list(self._connections):
            connection.close()

    def ask(self, use: Use, request: RequestBody) -> Any:
        """Return the server's answer to a request; many texts are sent in several requests."""
        body, path = dict(request), f"/{use.verb}"
        texts = {name: body.pop(name) for name in use.lists if body[name] is not None}
        results = self._each(path, texts, **body) if texts else self.request(path, body)["results"]
        return use.rebuilt(results)

    def states(
        self,
        texts: str | Sequence[str],
        *,
        depth: int | Sequence[int] | None = None,
        pool: str | None = None,
        special: bool = False,
    ) -> Any:
        """The hidden states of a text, or of each of several."""
        single = depth is None or isinstance(depth, int)
        depths = None if depth is None else [depth] if isinstance(depth, int) else list(depth)
        listed = [texts] if isinstance(texts, str) else listed_strings(texts)
        rows = self._each("/states", {"inputs": listed}, depths=depths, pool=pool, special=special)
        results = []
        for text, row in zip(listed, rows, strict=True):
            vectors = np.asarray(row.pop("vectors"), dtype=np.float32)
            (spans,) = row.values()
            spans = [(start, end) for start, end in spans]
            results.append(TextStates(text, spans, vectors[0] if single else vectors))
        return results[0] if isinstance(texts, str) else results

    def attention(
        self,
        text: str,
        pair: str | None = None,
        *,
        layers: Sequence[int] | None = None,
        heads: Sequence[int] | None = None,
    ) -> RemoteAttention:
        """Return attention weights; shown in a notebook, or saved by `.save("page.html")`."""
        chosen = {"layers": layers, "heads": heads}
        lists = {name: None if value is None else list(value) for name, value in chosen.items()}
        body = {"text": text, "pair": pair, **lists}
        answer = self.request("/attention", body)
        tokens = [token["text"] for token in answer["tokens"]]
        weights = np.asarray(answer["weights"], dtype=np.float32)
        return RemoteAttention(self, body, tokens, answer["layers"], answer["heads"], weights)

    def search(self, query: str, top: int = 10) -> list[dict[str, Any]]:
        """Return the best passages of the server's index."""
        return list(self.request("/search", {"query": query, "top": top})["results"])

    # ------------------------------------------------------------------ requests

    def request(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Send a request and return the response; retry if the server is busy."""
        payload = None
        if body is not None:
            full = {"model": self.model, **body} if path != "/search" else body
            try:
                payload = json.dumps(full, ensure_ascii=False, allow_nan=False).encode()
            except (TypeError, ValueError) as error:
                raise BertsmithError(f"this cannot be sent to a server: {error}") from error
        for attempt in range(WAITS + 1):
            response, content = self._send(path, payload)
            status, wait = response.status, response.headers.get("Retry-After", "")
            if status != 429 or attempt == WAITS:
                break
            time.sleep(min(60.0, float(wait) if wait.isdigit() else 1.0))
        if status == 200 and response.headers.get("Content-Type", "").startswith("text/html"):
            return content.decode()
        try:
            value = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise BertsmithError(f"{self.url}{path}: the answer ({status}) is not JSON") from error
        if status != 200:
            message = value.get("error") if isinstance(value, dict) else None
            raise BertsmithError(f"{self.url}{path}: {message or f'status {status}'}")
        return value

    def _send(self, path: str, payload: bytes | None) -> tuple[HTTPResponse, bytes]:
        headers = {"Content-Type": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        kind = HTTPSConnection if self._https else HTTPConnection
        for fresh in (False, True):  # a kept-alive connection may have been closed
            if fresh or not hasattr(self._own, "connection"):
                self._own.connection = kind(self._host, self._port, timeout=self.timeout)
                self._connections.add(self._own.connection)
            connection = self._own.connection
            try:
                method = "GET" if payload is None else "POST"
                connection.request(method, self._path + path, payload, headers)
                response = connection.getresponse()
                return response, response.read(LARGEST)
            except (OSError, HTTPException, UnicodeError) as error:
                connection.close()
                if fresh:
                    raise BertsmithError(f"{self.url} does not answer ({error})") from error
        raise AssertionError

    def _each(self, path: str, texts: Mapping[str, list[str]], **body: Any) -> list[Any]:
        count, *others = map(len, texts.values())
        if any(other != count for other in others):
            raise BertsmithError(f"{count} texts cannot be paired with as many others")
        results: list[Any] = []
        for start in range(0, count, AT_ONCE):
            portion = {name: column[start : start + AT_ONCE] for name, column in texts.items()}
            results += self.request(path, {**portion, **body})["results"]
        return results
