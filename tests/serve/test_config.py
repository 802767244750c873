"""Configuration files, keys, and models by version and alias."""

import hashlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bertsmith import Bert
from bertsmith.errors import BertsmithError
from bertsmith.serve import ServingSettings
from bertsmith.serve.access import Key
from bertsmith.serve.config import overridden, plan_of, read_configuration
from bertsmith.settings.serving import Listening
from serve.live import serving

GOOD = """
[models]
topics = "first"
"topics@2" = { path = "second", dtype = "int8" }

[aliases]
"text-embedding-3-small" = "topics"
stable = { topics = 0.9, "topics@2" = 0.1 }

[server]
port = 9000

[limits]
timeout = 5

[[keys]]
name = "team"
sha256 = "SUM"
models = ["topics"]
requests_per_minute = 600
""".replace("SUM", "a" * 64)


def test_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    (tmp_path / "site.toml").write_text(GOOD)
    content = read_configuration(tmp_path / "site.toml")
    server = Listening(**overridden(content.server, {"port": 8080, "host": "::1"}, Listening))
    assert (server.port, server.host, server.workers) == (9000, "::1", 1)
    limits = ServingSettings(
        **overridden(content.limits, {"timeout": 60.0, "max_inputs": 3}, ServingSettings)
    )
    assert (limits.timeout, limits.max_inputs) == (5, 3)
    plan = plan_of(content, tmp_path, limits, {"other": "place"}, {"dtype": "float32"})
    assert list(plan.models) == ["other", "topics", "topics@2"]
    assert plan.models["topics"].path == str(tmp_path / "first")  # beside the file
    assert plan.models["topics@2"].path == "second"  # the name of another model
    assert (plan.models["other"].dtype, plan.models["topics@2"].dtype) == ("float32", "int8")
    assert plan.aliases["text-embedding-3-small"] == {"topics": 1.0}
    assert plan.keys[0].scopes == ("use", "search")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("timeout = 5", "timout = 5", "limits.timout; did you mean limits.timeout?"),
        ("[limits]", "[limit]", "unknown key limit; did you mean limits?"),
        ("dtype", "dtpe", "models.topics@2.dtpe; did you mean models.topics@2.dtype?"),
        ('"int8"', '"int7"', "models.topics@2.dtype"),
        ("port = 9000", "port = 90000", "server.port: input should be less than or equal"),
        ("requests_per_minute", "request_per_minute", "keys.0.requests_per_minute"),
        ("= 600", "= 0", "keys.0.requests_per_minute: input should be greater than 0"),
        ("a" * 64, "secret", "keys.0.sha256"),
        ('["topics"]', '["topcs"]', "no model 'topcs'; did you mean topics?"),
        ('"topics@2" = {', '"topics@" = {', "write NAME or NAME@VERSION"),
        ("0.9", "1.9", "aliases.stable.topics"),
        ("[models]", "[models", "not TOML"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, old: str, new: str, says: str) -> None:
    assert old in GOOD
    (tmp_path / "site.toml").write_text(GOOD.replace(old, new))
    with pytest.raises(BertsmithError) as error:
        read_configuration(tmp_path / "site.toml")
    assert says in str(error.value)
    assert str(error.value).startswith(str(tmp_path / "site.toml"))
    assert "\n" not in str(error.value)


def test_two_keys_of_one_name_and_no_models(tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text(GOOD + GOOD[GOOD.index("[[keys]]") :])
    with pytest.raises(BertsmithError, match="two keys are named team"):
        read_configuration(tmp_path / "site.toml")
    with pytest.raises(BertsmithError, match="names no models"):
        plan_of(read_configuration(None), tmp_path, ServingSettings(), {}, {})


def model_of(http: Any, name: str | None) -> str:
    answer = http.post("/tag", json={"inputs": "a", "model": name})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["model"])


def test_versions_and_aliases(bert: Bert) -> None:
    aliases = {"gpt": {"tiny@1": 1.0}, "stable": {"tiny@1": 0.8, "tiny@2": 0.2}}
    models = {"tiny@1": bert, "tiny@2": bert, "other": bert}
    with serving(models, aliases=aliases) as http:
        assert model_of(http, "tiny") == "tiny@2"  # the newest
        assert [model_of(http, name) for name in ("tiny@1", "gpt")] == ["tiny@1"] * 2
        shares = Counter(model_of(http, "stable") for _ in range(200))
        assert 10 <= shares["tiny@2"] <= 80  # 0.2 of 200; P(outside) < 1e-8
        unknown = http.post("/embed", json={"inputs": "a", "model": "tiny@3"})
        assert unknown.status_code == 404
        assert "tiny@1, tiny@2, other, tiny, gpt, stable" in unknown.json()["error"]
        described = http.get("/models").json()["models"]
        assert [one["version"] for one in described] == ["1", "2", None]


def test_an_alias_of_a_models_own_name_withdraws_its_newest_version(bert: Bert) -> None:
    models = {"tiny@1": bert, "tiny@2": bert}
    with serving(models, aliases={"tiny": {"tiny@1": 1.0}}) as http:
        assert {model_of(http, name) for name in ("tiny", None)} == {"tiny@1"}


def test_an_alias_of_nothing_is_an_error(bert: Bert) -> None:
    with (
        pytest.raises(BertsmithError, match="no model 'tiney'; did you mean tiny"),
        serving({"tiny": bert}, aliases={"a": {"tiney": 1.0}}),
    ):
        pass


def test_any_model_name_if_told(bert: Bert) -> None:
    body = {"input": "a", "model": "text-embedding-ada-002"}
    with serving({"tiny": bert}) as http:
        assert http.post("/v1/embeddings", json=body).status_code == 404
    with serving({"tiny": bert}, ServingSettings(any_model_name=True)) as http:
        assert http.post("/v1/embeddings", json=body).json()["model"] == "tiny"


def key(name: str, **more: Any) -> Key:
    return Key(name=name, sha256=hashlib.sha256(name.encode()).hexdigest(), **more)


def test_scopes_models_and_rates_of_keys(bert: Bert) -> None:
    keys = (
        key("team", models=("tiny",)),
        key("slow", requests_per_minute=2),
        key("few", tokens_per_minute=5),
        key("late", models=("other",)),
        key("watch", scopes=("metrics",)),
        key("ops", scopes=("admin",)),
    )
    with serving({"tiny@1": bert, "other": bert}, keys=keys) as http:

        def ask(name: str, path: str = "/embed", model: str = "tiny") -> int:
            headers = {"Authorization": f"Bearer {name}"}
            body = {"inputs": "a b c", "model": model}
            return http.post(path, json=body, headers=headers).status_code

        assert http.post("/embed", json={"inputs": "a"}).status_code == 401
        assert [ask("team"), ask("team", model="other"), ask("nobody")] == [200, 403, 401]
        assert ask("team", "/tokenize", model="other") == 403
        team = {"Authorization": "Bearer team"}
        assert {*http.get("/drift", headers=team).json()["models"]} == {"tiny@1"}
        # Without a name, one of the models that a key may use.
        late = {"Authorization": "Bearer late"}
        for path in ("/tag", "/"):
            assert http.post(path, json={"inputs": "a"}, headers=late).is_success
        pair = {"query": "a", "texts": ["b", "c"]}
        assert "the model other" in http.post("/rerank", json=pair, headers=late).json()["error"]
        assert [ask("slow") for _ in range(3)] == [200, 200, 429]
        assert [ask("few"), ask("few")] == [200, 429]
        assert [ask("watch"), ask("ops"), ask("team", "/admin/reload")] == [403] * 3
        assert ask("ops", "/admin/reload") == 409  # there is no file to read again
        for address in ("/models/tiny", "/models/a%2Fb"):  # the same routes by another way
            assert [ask(name, f"{address}/admin/reload") for name in ("team", "ops")] == [403, 409]
            assert ask("watch", f"{address}/search") == 403
        assert http.get("/metrics").status_code == 401  # a key has the scope for it
        watch = {"Authorization": "Bearer watch"}
        assert http.get("/metrics", headers=watch).is_success
        refused = http.post(
            "/embed", json={"inputs": "a"}, headers={"Authorization": "Bearer slow"}
        )
        assert 1 <= int(refused.headers["Retry-After"]) <= 60
        assert "2 requests a minute" in refused.json()["error"]


def test_nobody_reloads_a_server_without_keys(bert: Bert) -> None:
    with serving({"tiny": bert}) as http:
        assert http.post("/admin/reload").status_code == 403
