"""Validation errors: the wrong key, what is expected there, and what was sent."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel, Tag, ValidationError

from bertsmith.serve.errors import ServeError

Path = tuple[str | int, ...]
EXPECTED = {  # by pydantic's types of errors
    "string_type": "a string",
    "string_unicode": "valid Unicode text",
    "list_type": "a list",
    "int_type": "an integer",
    "int_from_float": "an integer",
    "int_parsing_size": "a smaller integer",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
}
LIMITS = {"greater_than_equal": ("at least", "ge"), "less_than_equal": ("at most", "le")}
KEY_ERRORS = {"missing", "extra_forbidden"}  # errors about a key, not about its value
# Keys of objects within bodies.
FIELDS = {"source_sentence", "sentences", "text", "question", "context"}
MOST = 3  # problems in one message


def members(annotation: Any) -> dict[str | None, type[BaseModel]]:
    """The models of a body by their tags; a body of one dialect has no tag."""
    if isinstance(annotation, type):
        return {None: annotation}
    models: dict[str | None, type[BaseModel]] = {}
    union = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
    for member in get_args(union):
        model, *notes = get_args(member)
        models[next(note.tag for note in notes if isinstance(note, Tag))] = model
    return models


def invalid(error: ValidationError, models: Mapping[str | None, type[BaseModel]]) -> ServeError:
    """Return a one-line error that names every wrong key."""
    problems: dict[str, list[tuple[Path, dict[str, Any]]]] = {}
    model = models.get(None)
    for problem in error.errors(include_url=False):
        where = problem["loc"]
        if where and where[0] in models:
            model, where = models[str(where[0])], where[1:]
        if problem["type"] == "json_invalid":
            return ServeError(422, f"the body is not valid JSON: {problem['ctx']['error']}")
        path = (*where[:1], *_indices(where[1:], problem))
        problems.setdefault(str(where[0]) if where else "", []).append((path, {**problem}))
    keys = list(model.model_fields) if model is not None else []
    messages: list[str] = []
    for key, own in problems.items():
        if any(problem["type"] in ("too_short", "string_too_short") for _, problem in own):
            return ServeError(400, f"{key or 'the body'} is empty", kind="Empty", param=key or None)
        messages.append(_problem(own))
    message = "; ".join(messages[:MOST])
    kinds = {problem["type"] for own in problems.values() for _, problem in own}
    if keys and kinds & KEY_ERRORS:
        message += f" (keys of this route: {', '.join(keys)})"
    return ServeError(422, message, param=next(iter(problems), None) or None)


def _indices(where: Sequence[str | int], error: Mapping[str, Any]) -> Path:
    """The path below a key, without pydantic's names for the members of unions."""
    about_key = error["type"] in KEY_ERRORS
    last = len(where) - 1
    return tuple(
        part
        for place, part in enumerate(where)
        if isinstance(part, int) or part in FIELDS or (about_key and place == last)
    )


def _problem(errors: Sequence[tuple[Path, dict[str, Any]]]) -> str:
    """Return the problem with one key; for unions, of the member that matches best."""
    paths = [path for path, _ in errors]
    path = max(paths, key=lambda path: (len(path), [n for n in path if isinstance(n, int)]))
    own = [error for where, error in errors if where == path]
    where = spelled(path)
    kinds = {error["type"] for error in own}
    if "missing" in kinds:
        return f"{where} is missing"
    if "extra_forbidden" in kinds:
        return f"{where} is not a known key"
    wanted = list(dict.fromkeys(map(_wanted, own)))
    return f"{where} must be {' or '.join(wanted)}, not {_sent(own[0]['input'])}"


def _wanted(error: Mapping[str, Any]) -> str:
    kind, context = error["type"], error.get("ctx") or {}
    if kind in LIMITS:
        words, name = LIMITS[kind]
        return f"{words} {context[name]}"
    if kind == "too_long":
        return f"a list of at most {context['max_length']} items"
    if kind == "literal_error":
        return str(context["expected"])
    message = str(error["msg"])
    return EXPECTED.get(kind) or message.removeprefix("Input should be ").removeprefix("a valid ")


def _sent(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return "a number" if abs(value) > 1e12 else f"{value:.12g}"
    if isinstance(value, str):
        return repr(value) if len(value) <= 20 else "a string"
    return f"a list of {len(value)}" if isinstance(value, list) else "an object"


def spelled(path: Path) -> str:
    """Return a path in JavaScript's notation: inputs[1].text."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".") or "the body"
