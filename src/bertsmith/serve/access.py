"""Who may ask for what, and how often: API keys with scopes and rate limits."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints

from bertsmith.serve.errors import ServeError
from bertsmith.train.recipe import RecipePart

Scope = Literal["use", "search", "metrics", "admin"]
ALL: tuple[Scope, ...] = ("use", "search", "metrics", "admin")
SCOPES: dict[str, Scope] = {"/search": "search", "/metrics": "metrics"}  # others: use, admin
Rate = Annotated[float, Field(gt=0)]


class Key(RecipePart):
    """An API key: the hash of its text, and what requests with it may do."""

    name: Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[\w.@ -]+$")]
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-fA-F]{64}$", to_lower=True)]
    scopes: tuple[Scope, ...] = ("use", "search")
    models: tuple[str, ...] | None = None  # names without versions; None: all
    requests_per_minute: Rate | None = None
    tokens_per_minute: Rate | None = None

    @classmethod
    def of(cls, text: str) -> Self:
        """The key of a server that has only one."""
        digest = hashlib.sha256(text.encode()).hexdigest()
        return cls(name="default", sha256=digest, scopes=ALL)


class Bucket:
    """A token bucket that is refilled evenly; a full one allows a request of any size."""

    def __init__(self, rate: float) -> None:
        self.rate = self.level = rate  # a minute
        self.filled = monotonic()

    def spend(self, amount: float) -> float:
        """Spend an amount, or return the seconds until it can be spent."""
        now = monotonic()
        self.level = min(self.rate, self.level + (now - self.filled) * self.rate / 60)
        self.filled = now
        missing = min(amount, self.rate) - self.level
        if missing > 0:
            return missing * 60 / self.rate
        self.level -= amount
        return 0.0


@dataclass
class Caller:
    """Who sends a request: the holder of a key, or an address."""

    name: str
    key: Key | None = None
    buckets: dict[str, Bucket] = field(default_factory=dict)

    def spend(self, what: str, amount: int) -> None:
        """Take requests or tokens from the caller's rate; an error if it is used up."""
        bucket = self.buckets.get(what)
        if bucket is not None and (seconds := bucket.spend(amount)):
            wait = str(math.ceil(seconds))
            message = f"the key {self.name} has a limit of {bucket.rate:,g} {what} a minute"
            raise ServeError(
                429,
                f"{message}: try again in {wait} s",
                code="rate_limit_exceeded",
                headers={"Retry-After": wait},
            )

    def may_use(self, model: str) -> bool:
        """Whether the caller may use a model of this name."""
        return self.key is None or self.key.models is None or model in self.key.models

    def check_model(self, model: str) -> None:
        """Raise an error unless the caller may use a model of this name."""
        if self.key is not None and not self.may_use(model):
            allowed = ", ".join(self.key.models or ())
            message = f"the key {self.name} may not use the model {model}"
            raise ServeError(403, f"{message}; it may use: {allowed}", param="model")


class Access:
    """The keys of a server; without any, everyone may use it, and nobody administer it."""

    def __init__(self, keys: Sequence[Key]) -> None:
        self.callers: dict[str, Caller] = {}
        for key in keys:
            rates = {"requests": key.requests_per_minute, "tokens": key.tokens_per_minute}
            buckets = {what: Bucket(rate) for what, rate in rates.items() if rate is not None}
            self.callers[key.sha256] = Caller(key.name, key, buckets)
        self.metrics_closed = any("metrics" in key.scopes and key.scopes != ALL for key in keys)

    def caller(self, headers: Mapping[bytes, bytes], address: str, scope: Scope) -> Caller:
        """Return who sends a request; one without the right for it is an error."""
        if not self.callers:
            if scope == "admin":
                raise ServeError(403, "this server has no key with the scope admin")
            return Caller(address)
        word, _, text = headers.get(b"authorization", b"").partition(b" ")
        digest = hashlib.sha256(text.strip()).hexdigest()
        caller = self.callers.get(digest) if word.lower() == b"bearer" else None
        if caller is None or caller.key is None:
            more = {"WWW-Authenticate": "Bearer"}
            raise ServeError(401, "the API key is missing or wrong", headers=more)
        if scope not in caller.key.scopes:
            raise ServeError(403, f"the key {caller.name} has no scope {scope}")
        return caller
