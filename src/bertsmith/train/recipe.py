"""Recipes: runs as TOML files, checked key by key."""

import math
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import tomli_w
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from bertsmith.errors import BertsmithError, nearest, setting_name
from bertsmith.files import cause, one_line, reading
from bertsmith.numbers import real_number

RECIPES = files("bertsmith.recipes")
START = setting_name("model.start", option="--from")  # in messages
LONGEST, MOST_TOKENS, MOST_STEPS, MOST_MINUTES = 2**20, 2**31, 10**9, 10**7


def key(default: Any, description: str, **bounds: Any) -> Any:
    """Declare a key of a recipe."""
    return Field(default, description=description, **bounds)


class RecipePart(BaseModel):
    """A table of a recipe. Unknown keys, infinity and NaN are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


Kind = TypeVar("Kind", bound=RecipePart)
Share = Annotated[float, Field(ge=0, le=1)]
Steps = Annotated[int, Field(ge=0, le=MOST_STEPS)]
Tokens = Annotated[int, Field(ge=0, le=MOST_TOKENS)]
Beta = Annotated[float, Field(ge=0, lt=1)]
Weight = Annotated[float, Field(ge=0, le=1e6)]
Norm = Annotated[float, Field(ge=0, le=1e9)]  # of gradients


def _plain(value: Any, place: str = "") -> Any:
    """The value, as it is; an error for what config.json or a recipe file cannot hold."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            _plain(key, place)
            _plain(inner, f"{place}{key}: ")
    elif isinstance(value, list | tuple):
        for inner in value:
            _plain(inner, place)
    elif isinstance(value, str):
        value.encode()  # half a surrogate pair is a ValueError
    elif not isinstance(value, int | float):
        raise ValueError(f"{place}{value!r} is not text, a number, a list or a table")
    elif not math.isfinite(value):
        raise ValueError(f"{place}{value} is not a finite number")
    return value


class ModelPart(RecipePart):
    """The model."""

    size: str = key(
        "bert-tiny", "a published size, as `bertsmith.presets()` lists; empty: only with `start`"
    )
    settings: Annotated[dict[str, Any], AfterValidator(_plain)] = key(
        {}, "keys of config.json that differ from that size"
    )
    start: str = key(
        "",
        "a model to continue from, instead of new weights; of `size` and `settings` only dropout"
        " then counts",
    )
    keep: tuple[Annotated[int, Field(ge=0, le=1000)], ...] = key(
        (),
        "the layers of `start` that are kept, from 0; empty: all. A layer that is named again is"
        " copied: the model becomes deeper, and begins with the same outputs",
    )


class TeacherPart(RecipePart):
    """The teacher of a distillation: objectives soft_targets, cosine and relations."""

    model: str = key("", "its directory, or the name of a built-in model")
    temperature: float = key(2.0, "of soft_targets", gt=0, le=1000)
    layer: int = key(0, "whose relations are learned, from 1; 0: the last", ge=0, le=1000)
    relation_heads: int = key(0, "parts of queries, keys, values; 0: the teacher's", ge=0, le=4096)


class CorpusPart(RecipePart):
    """A corpus of a mixture."""

    path: str = Field(min_length=1, description="a folder written by `bertsmith prepare`")
    weight: float = key(1.0, "its share of the tokens, up to a common factor", gt=0, le=1e6)


class DataPart(RecipePart):
    """The text and how it is cut into sequences."""

    corpus: str = key("", "a folder written by `bertsmith prepare`")
    corpora: tuple[CorpusPart, ...] = key(
        (), "a mixture of several, instead of `corpus`", max_length=64
    )
    format: Literal["spans", "joined", "next", "order", "crops"] = key(
        "spans",
        "spans of documents, joined documents, sentence pairs, or crops: two texts of one document",
    )
    length: int = key(128, "tokens in a sequence at most", ge=8, le=LONGEST)
    short: Share = key(0.1, "share of pairs cut to a random length")
    workers: int = key(2, "threads that make batches", ge=1, le=1024)


class MaskingPart(RecipePart):
    """Which tokens are masked."""

    rate: float = key(0.15, "share of tokens to predict", gt=0, lt=1)
    mask: Share = key(0.8, "share of those shown as the mask token")
    random: Share = key(0.1, "share of those shown as a random token")
    unit: Literal["token", "word", "span"] = "token"
    span: float = key(5.0, "mean words in a span", ge=1, le=1000)
    longest_span: int = Field(10, ge=1, le=1000)
    smoothing: float = key(
        0.0, "tokens are masked in proportion to frequency ** -smoothing; 0: evenly", ge=0, le=4
    )


class ContrastivePart(RecipePart):
    """The objective contrastive, and the pairs of texts of data.format = "crops"."""

    temperature: float = key(0.03, "cosines are divided by it", gt=0, le=10)
    titles: Share = key(0.3, "share of pairs whose first text is a document's first line")
    sentences: Share = key(0.5, "share of pairs whose first text is a sentence nearby")
    same: Share = key(0.0, "share of pairs of one text with itself, under different masks")


class GeneratorPart(RecipePart):
    """The generator of replaced tokens: a trained model, or a new, smaller one."""

    model: str = key(
        "",
        "a trained masked LM of the same vocabulary, which is not trained further; start: the"
        " one that `model.start` names; empty: a new generator learns beside the model",
    )
    temperature: float = key(1.0, "its logits are divided by it before sampling", gt=0, le=100)
    width: float = Field(0.25, gt=0, le=1)
    depth: float = Field(1.0, gt=0, le=1)
    sharing: Literal["shared", "disentangled", "none"] = "shared"
    fills: float = key(
        1.0, "fraction of sequences whose masks it fills; masked_lm predicts the others", gt=0, le=1
    )


class Stage(RecipePart):
    """A part of the run with its own sequence length."""

    length: int = Field(ge=8, le=LONGEST)
    steps: Steps = key(0, "0: all that are left")
    batch_tokens: Tokens = key(0, "tokens in a step; 0: train.batch_tokens")


def freezable(text: str) -> str:
    """What can be frozen, as it is; an error for anything else."""
    if text not in ("none", "embedding", "encoder"):
        if not (text.isascii() and text.isdecimal() and len(text) <= 4):
            raise ValueError("should be none, embedding, encoder or a number of layers")
    return text


class TrainPart(RecipePart):
    """How the model is trained."""

    seed: int = Field(0, ge=0, le=2**62)
    steps: Steps = key(0, "optimizer steps; 0: as many as fit `minutes`")
    minutes: float = key(0.0, "a time budget instead of steps", ge=0, le=MOST_MINUTES)
    batch_tokens: int = key(16384, "tokens in a step, over all devices", ge=8, le=MOST_TOKENS)
    micro_tokens: int = key(16384, "tokens in one pass of one device", ge=8, le=MOST_TOKENS)
    ramp_from: Tokens = key(0, "batch_tokens of the first step; 0: no ramp")
    ramp_steps: Steps = key(0, "steps over which the batch grows")
    optimizer: Literal["adamw", "lamb", "stable_adamw", "muon"] = "adamw"
    learning_rate: float = Field(1e-4, gt=0, le=100)
    matrix_learning_rate: float = key(0.02, "learning rate of matrices with muon", gt=0, le=100)
    weight_decay: float = Field(0.01, ge=0, le=100)
    betas: tuple[Beta, Beta] = (0.9, 0.999)
    epsilon: float = Field(1e-6, gt=0, le=1)
    schedule: Literal["linear", "cosine", "stable", "constant"] = "linear"
    warmup: float = key(0.01, "share of the run; 1 or more: steps", ge=0, le=MOST_STEPS)
    decay: float = key(
        0.2, "for schedule = stable: share of the run; more than 1: steps", ge=0, le=MOST_STEPS
    )
    clip: Norm = key(1.0, "largest gradient norm; 0: no gradient clipping")
    spike: Norm = key(
        20.0, "skip a step whose gradient norm is this many times the recent one; 0: never"
    )
    precision: Literal["float32", "bfloat16", "float16", "fp8"] = key(
        "float32",
        "of the computation; float16, with loss scaling: for GPUs without bfloat16 (T4, V100);"
        " fp8: matrix multiplications on new GPUs",
    )
    trained: Literal["all", "lora", "biases"] = key(
        "all",
        "which parameters are trained, beside those of heads; lora: low-rank updates of linear"
        " layers, merged into the stored model",
    )
    adapter: bool = key(False, "store the low-rank updates as an adapter, unmerged")
    freeze: Annotated[str, AfterValidator(freezable)] = key(
        "none", "not trained: embedding, encoder, or a number of lower layers"
    )
    layer_decay: float = key(
        1.0, "learning rate of a layer as a share of the next one's", gt=0, le=1
    )
    checkpointing: bool = key(False, "recompute activations in the backward pass, to save memory")
    compile: bool = False
    graphs: bool = key(True, "with compile on one GPU: replay whole steps as CUDA graphs")
    ema: float = key(0.0, "decay of the averaged weights; 0: no average", ge=0, lt=1)
    parallel: Literal["ddp", "fsdp", "hsdp"] = key(
        "ddp", "copies; shards over all devices; shards in each machine"
    )
    device: str = key("", "cpu, cuda or mps; by default a GPU if there is one")
    threads: int = key(0, "CPU threads; 0: all of them, one for the smallest models", ge=0, le=1024)


class LoraPart(RecipePart):
    """The low-rank updates, for train.trained = "lora"."""

    rank: int = Field(8, ge=1, le=4096)
    alpha: float = key(16.0, "scale, times the rank", gt=0, le=1e6)
    targets: str = key("all", "all, attention, feedforward, or names such as query,value")
    stabilised: bool = key(False, "rsLoRA: alpha is divided by the square root of the rank")


class EvaluatePart(RecipePart):
    """How the run is evaluated."""

    every: Steps = key(0, "steps between evaluations; 0: only at the end")
    tokens: Tokens = key(65536, "held-out tokens to evaluate on")
    held_out: dict[Annotated[str, Field(pattern=r"^[\w.-]{1,40}$")], str] = key(
        {}, "other prepared corpora that are scored, by the names of their scores"
    )
    keep: Literal["last", "best"] = key(
        "last", "which model is stored: the last, or that of the least loss"
    )
    patience: Steps = key(
        0, "stop after so many evaluations without a lower held-out loss; 0: never"
    )
    pseudo: int = key(16, "held-out sequences for pseudo-perplexity, at the end", ge=0, le=10**6)


class ProbePart(RecipePart):
    """A linear classifier of labelled texts on the model's states, at every evaluation."""

    data: str = key("", "a table: .csv, .tsv, .jsonl or .parquet; empty: no probe")
    text: str = key("text", "its column or key of texts")
    label: str = key("label", "its column or key of labels")
    pooling: Literal["mean", "cls"] = key("mean", "of a text's states: their mean, or the first")
    most: int = key(1000, "rows that are read", ge=10, le=10**5)


class CheckpointPart(RecipePart):
    """How often the run is saved."""

    every: Steps = key(500, "steps between checkpoints; 0: only at the end")
    minutes: float = key(0.0, "also so many minutes after the last one", ge=0, le=MOST_MINUTES)
    keep: int = key(2, "how many checkpoints are kept", ge=1, le=10**4)
    film: bool = key(
        False,
        "also keep the weights of steps 0, 1, 2, 4, 8, ... and of the last one, for `bertsmith"
        " export RUN --html`",
    )


class Recipe(RecipePart):
    """A whole run."""

    about: str = ""
    model: ModelPart = Field(default_factory=ModelPart)
    data: DataPart = Field(default_factory=DataPart)
    masking: MaskingPart = Field(default_factory=MaskingPart)
    objectives: dict[str, Weight] = Field(default={"masked_lm": 1.0}, min_length=1)
    generator: GeneratorPart = Field(default_factory=GeneratorPart)
    teacher: TeacherPart = Field(default_factory=TeacherPart)
    contrastive: ContrastivePart = Field(default_factory=ContrastivePart)
    stages: tuple[Stage, ...] = ()
    train: TrainPart = Field(default_factory=TrainPart)
    lora: LoraPart = Field(default_factory=LoraPart)
    evaluate: EvaluatePart = Field(default_factory=EvaluatePart)
    probe: ProbePart = Field(default_factory=ProbePart)
    checkpoint: CheckpointPart = Field(default_factory=CheckpointPart)

    def lengths(self) -> list[tuple[int, int, int]]:
        """The stages of the run: (length, tokens in a step, steps; 0 for all that are left)."""
        train = self.train
        if not self.stages:
            return [(self.data.length, train.batch_tokens, 0)]
        return [
            (stage.length, stage.batch_tokens or train.batch_tokens, stage.steps)
            for stage in self.stages
        ]

    @property
    def longest(self) -> int:
        """The most tokens in a sequence of any stage."""
        return max(length for length, _, _ in self.lengths())

    def toml(self) -> str:
        """The whole recipe, every key spelled out."""
        return tomli_w.dumps(self.model_dump())


def load_recipe(source: str | Path, changes: Iterable[str] = ()) -> Recipe:
    """Read a recipe: a file, or the name of one that comes with bertsmith.

    `changes` are like "train.learning_rate=1e-3"; the value is TOML, or else a plain string.
    """
    values = load_values(source, changes, RECIPES, "recipe", "bertsmith recipes lists them")
    return checked(values, str(source))


def load_values(
    source: str | Path, changes: Iterable[str], folder: Traversable, kind: str, hint: str
) -> dict[str, Any]:
    """The values of a TOML file, or of the one in a folder of the package that has this name."""
    path, names = Path(source), toml_names(folder)
    if path.is_file():
        text = read_toml(path)
    elif str(source) in names:
        text = (folder / f"{source}.toml").read_text("utf-8")
    else:
        near = nearest(str(source), names)
        fault = f"no such {kind} file, and bertsmith has none of that name{near}"
        raise BertsmithError(f"{source}: {fault} ({hint})")
    values = parsed(text, str(source))
    for change in changes:
        apply_change(values, change)
    return values


def parsed(text: str, where: str) -> dict[str, Any]:
    """TOML as plain values; a syntax error is one line."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # numbers or nesting without end, too
        raise BertsmithError(f"{where}: not TOML ({cause(error)})") from error


def change(key: str, value: str) -> str:
    """The change that gives a key this very string, even one that reads like a number."""
    return f"{key}={tomli_w.dumps({'value': value}).removeprefix('value = ').strip()}"


def data_changes(corpora: Sequence[str]) -> list[str]:
    """The changes that name the corpora of a run: one, or several as PATH or PATH=WEIGHT."""
    if len(corpora) == 1:
        return [change("data.corpus", corpora[0]), "data.corpora=[]"]
    tables = []
    for text in corpora:
        path, _, weight = text.rpartition("=")
        if not path or Path(text).exists():
            path, weight = text, "1"
        value = real_number(weight, f"the weight of {path}")
        tables.append(f"{{{change('path', path)}, weight={value!r}}}")
    return ['data.corpus=""', f"data.corpora=[{', '.join(tables)}]"]


def validated(kind: type[Kind], values: Mapping[str, Any], where: str) -> Kind:
    """Plain values as a model of this kind; a bad one is a one-line error."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise BertsmithError(f"{where}: {complaint(error, kind)}") from error


def checked(values: Mapping[str, Any], where: str) -> Recipe:
    """A recipe of plain values; a bad one is a one-line error."""
    recipe = validated(Recipe, values, where)
    for mistake in _mistakes(recipe):
        raise BertsmithError(f"{where}: {mistake}")
    return recipe


def recipe_names() -> list[str]:
    """The recipes that come with bertsmith."""
    return toml_names(RECIPES)


def toml_names(folder: Traversable) -> list[str]:
    """The TOML files of a folder of the package, by their names."""
    names = (item.name for item in folder.iterdir())
    return sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml"))


def _mistakes(recipe: Recipe) -> Iterator[str]:
    """What is wrong with the values of several keys together."""
    train, stages, held, shares = recipe.train, recipe.stages, recipe.evaluate, recipe.contrastive
    if not train.steps and not train.minutes:
        yield "how long? Set train.steps or train.minutes above 0"
    if train.steps and train.minutes:
        values = f"train.steps is {train.steps} and train.minutes {train.minutes:g}"
        yield f"{values}; set one of the two to 0"
    if 0 < train.steps <= train.warmup:
        advice = "lower train.warmup (below 1 it is a share of the run)"
        yield f"train.warmup is {train.warmup:g} steps, but the run has {train.steps}: {advice}"
    if recipe.data.corpus and recipe.data.corpora:
        yield "set data.corpus or data.corpora, not both"
    if len({part.path for part in recipe.data.corpora}) < len(recipe.data.corpora):
        yield "data.corpora names a folder twice"
    if train.decay > max(1, train.steps):
        steps = f"the run has {train.steps}" if train.steps else "train.minutes has no steps"
        yield f"train.decay is {train.decay:g} steps, but {steps}"
    if any(stage.steps == 0 for stage in stages[:-1]):
        yield "only the last of the stages may leave out its steps"
    if recipe.masking.mask + recipe.masking.random > 1:
        yield "masking.mask + masking.random is more than 1"
    if recipe.masking.smoothing and recipe.masking.unit != "token":
        yield 'masking.smoothing needs masking.unit = "token"'
    if train.precision == "fp8" and not train.compile:
        yield 'train.precision = "fp8" needs train.compile = true'
    if train.trained != "all" and not recipe.model.start:
        yield f'train.trained = "{train.trained}" continues a model: name it with {START}'
    if train.trained != "all" and (train.freeze != "none" or train.precision == "fp8"):
        name = "freeze" if train.freeze != "none" else 'precision = "fp8"'
        yield f'train.{name} needs train.trained = "all"'
    if train.adapter and recipe.model.keep:
        yield "train.adapter needs no model.keep: the model is as before"
    if train.adapter and train.trained != "lora":
        yield 'train.adapter needs train.trained = "lora"'
    if train.checkpointing and train.compile:
        yield "train.checkpointing needs train.compile = false"
    if (held.patience or held.keep == "best") and not (held.every and held.tokens):
        name = "patience" if held.patience else "keep"
        yield f"evaluate.{name} needs evaluate.every and evaluate.tokens"
    if held.held_out and not held.tokens:
        yield "evaluate.held_out needs evaluate.tokens"
    if shares.titles + shares.sentences + shares.same > 1:
        yield "the shares of titles, sentences and same are more than 1"
    needed = {"next_sentence": "next", "sentence_order": "order", "contrastive": "crops"}
    for name, format in needed.items():
        if name in recipe.objectives and recipe.data.format != format:
            yield f'the objective {name} needs data.format = "{format}"'


def read_toml(path: Path) -> str:
    """The text of a TOML file."""
    try:
        with reading(path):
            return path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BertsmithError(f"{path}: not UTF-8 text (byte {error.start})") from error


def change_name(change: str) -> str:
    """A change such as "train.steps=5" in a message; the command line makes it with --set."""
    return setting_name(change, option=f"--set {change}")


def apply_change(values: dict[str, Any], change: str) -> None:
    """Set one key of a nested table; a number picks one of the stages."""
    key, sign, value = change.partition("=")
    where = change_name(change)
    if not sign or not key.strip():
        raise BertsmithError(f"{where}: it should look like train.learning_rate=1e-3")
    *names, last = key.strip().split(".")
    table: Any = values
    for name in names:
        if not isinstance(table, list):
            table = table.setdefault(name, {})
        elif name.isdecimal() and int(name) < len(table):
            table = table[int(name)]
        else:
            raise BertsmithError(f"{where}: there are {len(table)}, numbered from 0")
        if not isinstance(table, dict | list):
            raise BertsmithError(f"{where}: {name} is not a table")
    if isinstance(table, list):
        raise BertsmithError(f"{where}: name a key of {key.strip()}")
    try:
        table[last] = tomllib.loads(f"value = {value.strip()}")["value"]
    except (ValueError, RecursionError):
        table[last] = value.strip()


def complaint(error: ValidationError, root: type[RecipePart]) -> str:
    """The first mistake in a line, with the nearest known key of `root` where one is unknown."""
    first = min(error.errors(), key=lambda mistake: mistake["type"] != "extra_forbidden")
    place = ".".join(map(str, first["loc"]))
    if first["type"] == "extra_forbidden":
        near = nearest(str(first["loc"][-1]), _keys(root, first["loc"][:-1]))
        before, dot, _ = place.rpartition(".")
        near = near.replace("did you mean ", f"did you mean {before}{dot}")
        tables = root.model_fields.items() if not dot else ()
        inside = [n for n, one in tables if place in getattr(one.annotation, "model_fields", ())]
        near = f"; did you mean {inside[0]}.{place}?" if inside else near
        return one_line(f"unknown key {place}{near}")
    message = first["msg"].removeprefix("Value error, ")
    return one_line(f"{place}: {message[0].lower()}{message[1:]}")


def _keys(root: type[RecipePart], table: tuple[int | str, ...]) -> list[str]:
    """The keys that a table of a recipe may have."""
    kind: Any = root
    for name in table:
        if get_origin(kind) in (dict, tuple):  # of tables by name, or of several in a row
            kind = get_args(kind)[get_origin(kind) is dict]
        else:
            kind = kind.model_fields[name].annotation
    return list(kind.model_fields)
