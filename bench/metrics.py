"""The metrics alone, beside peers that compute the same: ids and judgments in memory, figures out."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable

from bench.jobs import Job
from ranking_evaluate.core import metrics
from ranking_evaluate.operations.figures import by_metric
from ranking_evaluate.operations.rankings import grades_within_k

Qrels = dict[str, dict[str, int]]
Run = dict[str, dict[str, float]]

OURS = "ranking-evaluate, judgments kept"
PEER = "pytrec_eval, evaluator kept"


def candidates(job: Job) -> dict[str, Callable[[], object]]:
    """Return what is timed on one job, by name.

    Kept means: what the judgments alone say is made ready once, and each call takes ids, looks up their grades and
    returns the figures. The other rows of each pair start from the plain judgments every time.
    """
    k = job.input["k"]
    qrels = {
        query["id"]: {judgment["id"]: judgment["grade"] for judgment in query["judgments"]}
        for query in job.input["queries"]
    }
    run = {
        query["id"]: {document: float(1000 - rank) for rank, document in enumerate(query["retrieved"])}
        for query in job.input["queries"]
    }
    return {
        OURS: _ours(job, qrels),
        PEER: _pytrec_eval(qrels, run, k),
        "ranking-evaluate, from plain judgments": _ours_anew(job, qrels),
        "pytrec_eval, evaluator made anew": _pytrec_eval_anew(qrels, run, k),
        "ir_measures": _ir_measures(qrels, run, k),
        "ranx": _ranx(qrels, run, k),
        "scikit-learn, NDCG only": _scikit_learn(job, qrels, k),
    }


def _ours(job: Job, qrels: Qrels) -> Callable[[], object]:
    rules = metrics.Rules(job.input["k"], 1)
    retrieved, grades = _given(job, qrels)
    judged = [metrics.judge(grade_by_id.values(), rules) for grade_by_id in grades]
    return lambda: _scored(retrieved, grades, judged, rules)


def _ours_anew(job: Job, qrels: Qrels) -> Callable[[], object]:
    rules = metrics.Rules(job.input["k"], 1)
    retrieved, grades = _given(job, qrels)

    def score() -> object:
        judged = [metrics.judge(grade_by_id.values(), rules) for grade_by_id in grades]
        return _scored(retrieved, grades, judged, rules)

    return score


def _scored(
    retrieved: list[list[str]], grades: list[dict[str, int]], judged: list[metrics.Judged], rules: metrics.Rules
) -> object:
    """Return every figure of each query, and their means."""
    scores = metrics.score(grades_within_k(retrieved, grades, rules.k), judged, rules)
    return scores, {name: metrics.mean(values) for name, values in by_metric(scores).items()}


def _given(job: Job, qrels: Qrels) -> tuple[list[list[str]], list[dict[str, int]]]:
    """Return the rankings and the grades by id, query by query."""
    queries = job.input["queries"]
    return [query["retrieved"] for query in queries], [qrels[query["id"]] for query in queries]


def _measures(k: int) -> set[str]:
    return {f"P_{k}", f"recall_{k}", "recip_rank", f"map_cut_{k}", f"ndcg_cut_{k}"}


def _pytrec_eval(qrels: Qrels, run: Run, k: int) -> Callable[[], object]:
    import pytrec_eval

    evaluator = pytrec_eval.RelevanceEvaluator(qrels, _measures(k))
    return lambda: evaluator.evaluate(run)


def _pytrec_eval_anew(qrels: Qrels, run: Run, k: int) -> Callable[[], object]:
    import pytrec_eval

    return lambda: pytrec_eval.RelevanceEvaluator(qrels, _measures(k)).evaluate(run)


def _ir_measures(qrels: Qrels, run: Run, k: int) -> Callable[[], object]:
    import ir_measures
    from ir_measures import AP, RR, P, R, nDCG

    measures = [P @ k, R @ k, RR @ k, AP @ k, nDCG @ k]
    evaluator = ir_measures.evaluator(measures, qrels)
    return lambda: list(evaluator.iter_calc(run))


def _ranx(qrels: Qrels, run: Run, k: int) -> Callable[[], object]:
    logging.getLogger("numba").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import ranx  # type: ignore[import-untyped]

        names = [f"precision@{k}", f"recall@{k}", f"mrr@{k}", f"map@{k}", f"ndcg@{k}"]
        judged, ranked = ranx.Qrels(qrels), ranx.Run(run)
        return lambda: ranx.evaluate(judged, ranked, names, make_comparable=False)


def _scikit_learn(job: Job, qrels: Qrels, k: int) -> Callable[[], object]:
    import numpy as np
    from sklearn.metrics import ndcg_score  # type: ignore[import-untyped]

    rows = []
    for query in job.input["queries"]:
        grades = qrels[query["id"]]
        within = set(query["retrieved"])
        documents = [*query["retrieved"], *(document for document in grades if document not in within)]
        truth = np.array([[grades.get(document, 0) for document in documents]])
        rows.append((truth, np.array([[float(1000 - rank) for rank in range(len(documents))]])))
    return lambda: [ndcg_score(truth, scores, k=k, ignore_ties=True) for truth, scores in rows]
