"""Scores of rankings equal trec_eval's; files of queries and judgements are read."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertsmith.errors import BertsmithError
from bertsmith.search.build import BuildSettings, update_folders
from bertsmith.search.evaluate import (
    compare,
    evaluate_search,
    read_judgements,
    read_queries,
    score_run,
    write_run,
)
from bertsmith.search.index import Index
from search.conftest import HashedWords

pytrec_eval = pytest.importorskip("pytrec_eval")

NAMES = st.sampled_from([f"d{number}" for number in range(30)])
# Few different scores, so that ties are common; some differ in double precision only.
SCORES = st.sampled_from([0.0, 0.5, 0.5 + 1e-12, 1.0, 2.0, -1.0, 1 / 3])
RUNS = st.dictionaries(NAMES, SCORES, min_size=1)
GRADES = st.dictionaries(NAMES, st.integers(-1, 4), min_size=1)


@settings(max_examples=60)
@given(st.lists(st.tuples(RUNS, GRADES), min_size=1, max_size=4))
def test_scores_equal_trec_eval(pairs: list[tuple[dict[str, float], dict[str, int]]]) -> None:
    run = {f"q{number}": ranking for number, (ranking, _) in enumerate(pairs)}
    judgements = {f"q{number}": grades for number, (_, grades) in enumerate(pairs)}
    names = {"ndcg@10": "ndcg_cut_10", "recall@100": "recall_100", "mrr": "recip_rank"}
    measures = {"ndcg_cut.10", "recall.100", "recip_rank"}
    theirs = pytrec_eval.RelevanceEvaluator(judgements, measures).evaluate(run)
    ours = score_run(run, judgements, draws=10)
    for query, scores in ours.queries.items():
        for name, other in names.items():
            assert scores[name] == pytest.approx(theirs[query][other], abs=1e-9)


def test_formats_of_queries(tmp_path: Path) -> None:
    texts = {
        "beir.jsonl": '{"_id": "1", "text": "red fruit"}\n{"_id": 2, "text": "x"}\n',
        "plain.tsv": "1\tred fruit\n2\tx\n",
        "topics.txt": "<top>\n<num> Number: 1\n<title> red fruit\n<desc> more\n</top>\n"
        "<top>\n<num> Number: 2\n<title> x\n</top>\n",
        "smart.qry": ".I 001\n.W\nred\nfruit\n.I 004\n.W\nx\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        assert read_queries(tmp_path / name) == {"1": "red fruit", "2": "x"}, name
    (tmp_path / "bad").write_text("no tab here\n")
    with pytest.raises(BertsmithError, match="line 1: not a query"):
        read_queries(tmp_path / "bad")


def test_formats_of_judgements(tmp_path: Path) -> None:
    want = {"1": {"a": 1, "b": 0}}
    for name, text in {
        "beir.tsv": "query-id\tcorpus-id\tscore\n1\ta\t1\n1\tb\t0\n",
        "trec.qrels": "1 0 a 1\n1 Q0 b 0\n",
        "smart": "1 a 1 \n1 b 0 \n",
    }.items():
        (tmp_path / name).write_text(text)
        assert read_judgements(tmp_path / name) == want, name
    (tmp_path / "cranqrel").write_text("1 a 1\n1 b 4\n1 c -1\n")
    assert read_judgements(tmp_path / "cranqrel", 1) == {"1": {"a": 4, "b": 1, "c": -1}}
    for text, match in {
        "1 a\n": "2 columns",
        "1 a x\n": "the grade is 'x'",
        "\n \n": "empty",
    }.items():
        (tmp_path / "bad").write_text(text)
        with pytest.raises(BertsmithError, match=match):
            read_judgements(tmp_path / "bad")


def test_documents_count_once(tmp_path: Path) -> None:
    """A document's score is that of its best passage; the run file says the same."""
    lines = [f'{{"_id": "d{n}", "text": "{"word " * 60}number{n}"}}' for n in range(5)]
    (tmp_path / "corpus.jsonl").write_text("\n".join(lines))
    encoder = HashedWords()
    update_folders(
        tmp_path / "i",
        [tmp_path / "corpus.jsonl"],
        BuildSettings(encoder=encoder, passage_size=100),
    )
    index = Index(tmp_path / "i", model=encoder)
    assert len(index) > 10
    queries = {"q": "number3", "unjudged": "word"}
    scores = evaluate_search(index, queries, {"q": {"d3": 1}}, "keywords", draws=20)
    assert scores.means == {"ndcg@10": 1.0, "recall@100": 1.0, "mrr": 1.0}
    hybrid = evaluate_search(index, queries, {"q": {"d3": 1}}, "hybrid", draws=20)
    assert len(hybrid.run["q"]) == 5
    assert compare(scores, hybrid, draws=20)["difference"] == 0
    write_run(tmp_path / "run", hybrid)
    assert (tmp_path / "run").read_text().split()[:4] == ["q", "Q0", "d3", "1"]
    with pytest.raises(BertsmithError, match="no query is judged"):
        evaluate_search(index, queries, {"other": {"d3": 1}})


def test_cranfield_by_keywords(data: Path, tmp_path: Path) -> None:
    """A real collection: BM25 on Cranfield, equal to trec_eval on the same run."""
    folder = data / "cranfield"
    update_folders(tmp_path / "i", [folder / "cran.all.1400.xz"], BuildSettings(keywords_only=True))
    index = Index.open(tmp_path / "i")
    queries = read_queries(folder / "cran.qry.xz")
    judgements = read_judgements(folder / "cranqrel.xz", 1)
    chosen = {name: judgements[name] for name in list(judgements)[:40]}
    scores = evaluate_search(index, queries, chosen, "keywords", draws=50)
    theirs = pytrec_eval.RelevanceEvaluator(chosen, {"ndcg_cut.10"}).evaluate(scores.run)
    for name, grades in theirs.items():
        assert scores.queries[name]["ndcg@10"] == pytest.approx(grades["ndcg_cut_10"], abs=1e-9)
    assert scores.means["ndcg@10"] > 0.3
