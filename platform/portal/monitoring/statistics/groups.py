"""Additive quality sums of rankings and of label sets, like those of `quality`."""

import math
from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any, Final

Sums = dict[str, Any]
RANKINGS: Final = "rankings"
SETS: Final = "sets"


def sums_of_rankings(
    scores: Sequence[float], relevance: Sequence[float], groups: Sequence[str]
) -> Sums:
    """Return the sums of rankings: each group is a query, its rows are ranked by their scores.

    Queries with one labelled row, without a relevant one, or with negative relevance are not
    measurable, and are counted.
    """
    queries: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for score, value, group in zip(scores, relevance, groups, strict=True):
        queries[group].append((score, value))
    ndcg, reciprocal, measured = [], [], 0
    for rows in queries.values():
        values = [value for _, value in rows]
        if len(rows) < 2 or min(values) < 0 or max(values) <= 0:
            continue
        measured += 1
        ndcg.append(_dcg(rows) / _dcg([(value, value) for value in values]))
        reciprocal.append(_reciprocal_rank(rows))
    return {
        "kind": RANKINGS,
        "n": len(scores),
        "queries": measured,
        "unmeasured": len(queries) - measured,
        "ndcg": math.fsum(ndcg),
        "reciprocal": math.fsum(reciprocal),
    }


def _dcg(rows: Sequence[tuple[float, float]]) -> float:
    """Return the discounted cumulative gain. Equal scores share theirs, as in scikit-learn."""
    by_score: defaultdict[float, list[float]] = defaultdict(list)
    for score, value in rows:
        by_score[score].append(value)
    rank, gain = 0, 0.0
    for score in sorted(by_score, reverse=True):
        values = by_score[score]
        discounts = math.fsum(1 / math.log2(rank + at + 2) for at in range(len(values)))
        gain += math.fsum(values) / len(values) * discounts
        rank += len(values)
    return gain


def _reciprocal_rank(rows: Sequence[tuple[float, float]]) -> float:
    """Return 1 / the rank of the first relevant row. Ties get the last rank."""
    best = max(score for score, value in rows if value > 0)
    return 1 / max(1, sum(score >= best for score, value in rows if value <= 0) + 1)


def sums_of_sets(
    predicted: Sequence[Collection[str]], true: Sequence[Collection[str]], known: Collection[str]
) -> Sums:
    """Return the sums of predicted label sets. `known` are all existing labels."""
    names = {name: [0, 0, 0] for name in sorted(known)}
    exact, shared = 0, []
    for value, fact in zip(predicted, true, strict=True):
        there, right = set(value), set(fact)
        exact += there == right
        shared.append(len(there & right) / len(there | right) if there | right else 0.0)
        for name in there | right:
            names[name][0 if name in there & right else 1 if name in there else 2] += 1
    return {
        "kind": SETS,
        "n": len(predicted),
        "exact": exact,
        "shared": math.fsum(shared),
        "names": names,
    }


def add_groups(parts: Sequence[Sums]) -> Sums:
    """Return the sums of several windows together."""
    if parts[0]["kind"] == RANKINGS:
        return {"kind": RANKINGS} | _summed(
            parts, ("n", "queries", "unmeasured", "ndcg", "reciprocal")
        )
    names: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for part in parts:
        for name, counts in part["names"].items():
            names[name] = [a + b for a, b in zip(names[name], counts, strict=True)]
    return {"kind": SETS, "names": dict(names)} | _summed(parts, ("n", "exact", "shared"))


def _summed(parts: Sequence[Sums], names: Sequence[str]) -> Sums:
    return {name: sum(part[name] for part in parts) for name in names}


def measures_of_groups(sums: Sums) -> tuple[dict[str, float], dict[str, str]]:
    """Return measures, and the reasons for undefined ones."""
    if sums["kind"] == RANKINGS:
        if not sums["queries"]:
            reason = (
                "No request has two labelled rows with at least one relevant row. A request is "
                "a query, and a label is the relevance of one of its rows."
            )
            return {}, {"ndcg": reason, "mrr": reason}
        count = sums["queries"]
        return {"ndcg": sums["ndcg"] / count, "mrr": sums["reciprocal"] / count}, {}
    n, names = sums["n"], sums["names"]
    measures = {"subset_accuracy": sums["exact"] / n, "jaccard": sums["shared"] / n}
    if not names:
        reason = "None of these rows has a label."
        return measures, {"hamming_loss": reason, "f1_micro": reason, "f1": reason}
    wrong = sum(counts[1] + counts[2] for counts in names.values())
    right = sum(counts[0] for counts in names.values())
    measures["hamming_loss"] = wrong / (n * len(names))
    measures["f1_micro"] = 2 * right / (2 * right + wrong) if right + wrong else 0.0
    each = [2 * a / (2 * a + b + c) if a + b + c else 0.0 for a, b, c in names.values()]
    measures["f1"] = sum(each) / len(each)
    return measures, {}
