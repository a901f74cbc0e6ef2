"""The pinned lexical workflow: search supplied documents with BM25, then measure what was returned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Final, Literal

from pydantic import Field, with_config
from typing_extensions import TypedDict

from ranking_evaluate.core import bm25, canonical, instants, metrics, pins
from ranking_evaluate.core.errors import ErrorCode, OperationError, Violation
from ranking_evaluate.operations import measurement
from ranking_evaluate.operations.duplicates import refuse_duplicate
from ranking_evaluate.operations.fields import STRICT, Gain, Id, Instant, Sha256
from ranking_evaluate.operations.measurement import CAUTIONS, RETURNED
from ranking_evaluate.operations.operation import GENERAL_ERROR_CODES, GENERAL_LIMITS, Operation
from ranking_evaluate.operations.results import CLOSED, Count, Measurement

DOCUMENTS: Final = 500
QUERIES: Final = 50
QUERY_CODE_POINTS: Final = 400
LABELS_PER_QUERY: Final = 500

TIE_POLICY: Final = (
    "Scores rounded to 12 decimals, highest first; equal ones by document id, ascending by code point. What ties with "
    "the last of the first topK is shown too, marked beyondTopK, at most 100 rows."
)
CONVENTIONS: Final = (
    (
        "Search is lexical: BM25 with k1 1.2 and b 0.75 over the words of the case-folded text. No reranker, no "
        "vectors, no relevance inference. A query without words returns nothing; a document without a word of the "
        "query is not returned."
    ),
    (
        "The pin covers id, text and date of every named document, as supplied; corpus.id is a label that nothing "
        "checks."
    ),
    (
        "Documents after the cutoff are not searched and are counted. Their labels, and those of documents that are "
        "not named, stay in the population: a relevant one lies outside what was searched and counts as missed."
    ),
    (
        "Rows marked beyondTopK are shown for the tie bounds alone and were not returned by the workflow. tieGroup "
        "numbers equal scores from 1 by falling score. Where the bound of 100 cuts a tie, tie bounds are unavailable "
        "with TIES_CUT."
    ),
    *CAUTIONS,
)


@with_config(STRICT)
class Workflow(TypedDict):
    """What is retrieved, from which of the documents, and against which reference it is measured."""

    kind: Literal["retrieval"]
    method: Literal["lexical"]
    topK: Annotated[int, Field(ge=1, le=metrics.MAXIMUM_K)]
    cutoff: Instant
    documentIds: Annotated[list[Id], Field(min_length=1, max_length=DOCUMENTS)]
    referenceVersion: Id


@with_config(STRICT)
class Document(TypedDict):
    """One document of the corpus."""

    id: Id
    text: str
    publishedAt: Instant
    access: Literal["granted", "revoked"]


@with_config(STRICT)
class Corpus(TypedDict):
    """The documents, and the pin that they must match; null computes the pin."""

    id: Id
    sha256: Sha256 | None
    documents: Annotated[list[Document], Field(min_length=1, max_length=DOCUMENTS)]


@with_config(STRICT)
class LexicalQuery(TypedDict):
    """One query."""

    id: Id
    text: Annotated[str, Field(max_length=QUERY_CODE_POINTS)]


@with_config(STRICT)
class Label(TypedDict):
    """The gain of one document for one query: 1 or more is relevant, 0 is known not to be."""

    queryId: Id
    id: Id
    gain: Gain


@with_config(STRICT)
class Reference(TypedDict):
    """What is known about relevance; for a query without labels that is a known empty set."""

    version: Id
    populationComplete: bool
    labels: Annotated[list[Label], Field(max_length=QUERIES * LABELS_PER_QUERY)]


@with_config(STRICT)
class LexicalInput(TypedDict):
    """What is searched and measured; reference null is a missing reference set."""

    workflow: Workflow
    corpus: Corpus
    queries: Annotated[list[LexicalQuery], Field(min_length=1, max_length=QUERIES)]
    reference: Reference | None


@with_config(CLOSED)
class SearchedCorpus(TypedDict):
    """The corpus with its digest, and whether that was supplied as a pin and verified."""

    id: str
    sha256: Sha256
    pinned: bool
    documentCount: Count
    excludedAfterCutoffCount: Count


@with_config(CLOSED)
class Hit(TypedDict):
    """One returned document."""

    rank: Count
    id: str
    score: float
    tieGroup: Count
    beyondTopK: bool


@with_config(CLOSED)
class Returned(TypedDict):
    """What the search returned for one query."""

    queryId: str
    returned: list[Hit]


@with_config(CLOSED)
class Result(TypedDict):
    """What the workflow answers."""

    profile: Literal["pinned-lexical-retrieval-v1"]
    corpus: SearchedCorpus
    workflow: Workflow
    tiePolicy: str
    observations: list[Returned]
    measurement: Measurement
    conventions: list[str]


def evaluate(request: LexicalInput) -> dict[str, object]:
    """Return what the search returned for each query, and its strict measurement.

    Raises:
        OperationError: DUPLICATE_ID, DOCUMENT_MISSING, ACCESS_REVOKED, CORPUS_CHANGED or REFERENCE_VERSION_MISMATCH,
            the first of them that applies anywhere.
    """
    workflow, corpus, reference = request["workflow"], request["corpus"], request["reference"]
    _refuse_duplicates(request)
    documents = _named_documents(request)
    pin = pins.pin((one["id"], one["text"], one["publishedAt"]) for one in documents)
    if corpus["sha256"] not in (None, pin):
        raise OperationError(
            ErrorCode.CORPUS_CHANGED,
            "The named documents are not those that were pinned: an id, a text or a date differs.",
            "/corpus/sha256",
        )
    if reference is not None and reference["version"] != workflow["referenceVersion"]:
        raise OperationError(
            ErrorCode.REFERENCE_VERSION_MISMATCH,
            "The reference is not of the version that the workflow names.",
            "/reference/version",
        )

    cutoff = instants.nanoseconds(workflow["cutoff"])
    searched = {one["id"]: one["text"] for one in documents if instants.nanoseconds(one["publishedAt"]) <= cutoff}
    index = bm25.Index(searched)
    found = {query["id"]: index.search(query["text"], workflow["topK"], RETURNED) for query in request["queries"]}
    return {
        "profile": "pinned-lexical-retrieval-v1",
        "corpus": {
            "id": corpus["id"],
            "sha256": pin,
            "pinned": corpus["sha256"] is not None,
            "documentCount": len(documents),
            "excludedAfterCutoffCount": len(documents) - len(searched),
        },
        # The order of its members must not depend on the order in which they were sent.
        "workflow": {name: workflow[name] for name in Workflow.__annotations__},  # type: ignore[literal-required]
        "tiePolicy": TIE_POLICY,
        "observations": [
            {
                "queryId": query,
                "returned": [
                    {
                        "rank": rank,
                        "id": hit.id,
                        "score": canonical.number(hit.score),
                        "tieGroup": hit.tie_group,
                        "beyondTopK": rank > workflow["topK"],
                    }
                    for rank, hit in enumerate(hits.hits, 1)
                ],
            }
            for query, hits in found.items()
        ],
        "measurement": _measurement(request, pin, found),
        "conventions": CONVENTIONS,
    }


def contradictions(request: LexicalInput) -> Iterator[Violation]:
    """Yield where members of a valid input do not go together."""
    labels = request["reference"]["labels"] if request["reference"] is not None else []
    queries = {query["id"] for query in request["queries"]}
    labels_per_query: Counter[str] = Counter()
    for position, label in enumerate(labels):
        labels_per_query[label["queryId"]] += 1
        if label["queryId"] not in queries:
            yield Violation(f"/reference/labels/{position}/queryId", "No query has this id.")
        elif labels_per_query[label["queryId"]] == LABELS_PER_QUERY + 1:
            yield Violation(f"/reference/labels/{position}", f"A query should have at most {LABELS_PER_QUERY} labels.")


def _refuse_duplicates(request: LexicalInput) -> None:
    """Raise DUPLICATE_ID at the second of two equal ids; documents that are not named are ignored."""
    named = set(request["workflow"]["documentIds"])
    refuse_duplicate("A document is named twice.", "/workflow/documentIds/{}", request["workflow"]["documentIds"])
    refuse_duplicate(
        "Two documents have the same id.",
        "/corpus/documents/{}/id",
        # A position is no string, so it equals no other entry.
        [one["id"] if one["id"] in named else index for index, one in enumerate(request["corpus"]["documents"])],
    )
    refuse_duplicate("Two queries have the same id.", "/queries/{}/id", [query["id"] for query in request["queries"]])
    if request["reference"] is not None:
        refuse_duplicate(
            "A document is labeled twice for one query.",
            "/reference/labels/{}/id",
            [(label["queryId"], label["id"]) for label in request["reference"]["labels"]],
        )


def _named_documents(request: LexicalInput) -> list[Document]:
    """Return the documents that the workflow names, all of them present and granted, in its order."""
    position_by_id = {one["id"]: index for index, one in enumerate(request["corpus"]["documents"])}
    document_ids = request["workflow"]["documentIds"]
    for index, document in enumerate(document_ids):
        if document not in position_by_id:
            raise OperationError(
                ErrorCode.DOCUMENT_MISSING,
                "A document that the workflow names is not in the corpus.",
                f"/workflow/documentIds/{index}",
            )
    documents = []
    for document in document_ids:
        position = position_by_id[document]
        documents.append(request["corpus"]["documents"][position])
        if documents[-1]["access"] != "granted":
            raise OperationError(
                ErrorCode.ACCESS_REVOKED,
                "Access to a document that the workflow names is revoked.",
                f"/corpus/documents/{position}/access",
            )
    return documents


def _measurement(request: LexicalInput, pin: str, found: dict[str, bm25.Hits]) -> dict[str, object]:
    """Return what retrieval-measure would say about what was returned, less the tie bounds where a tie is cut."""
    workflow, reference = request["workflow"], request["reference"]
    corpus: measurement.Corpus = {"id": request["corpus"]["id"], "sha256": pin}
    protocol: measurement.Protocol = {
        "method": "lexical",
        "corpus": corpus,
        "cutoff": workflow["cutoff"],
        "retrievalUnit": "document",
        "k": workflow["topK"],
        "referenceVersion": workflow["referenceVersion"],
    }
    labels: dict[str, list[measurement.Label]] = {query: [] for query in found}
    for label in reference["labels"] if reference is not None else []:
        labels[label["queryId"]].append({"id": label["id"], "gain": label["gain"]})
    observed: list[measurement.Observation] = [
        {
            "queryId": query,
            "corpus": corpus,
            "cutoff": protocol["cutoff"],
            "retrievalUnit": protocol["retrievalUnit"],
            "k": protocol["k"],
            "referenceVersion": protocol["referenceVersion"],
            "returned": [hit.id for hit in hits.hits],
            "labels": labels[query] if reference is not None else None,
            "populationComplete": reference is not None and reference["populationComplete"],
            "scan": "complete",
            "access": "permitted",
            "scores": [hit.score for hit in hits.hits],
            "tiePolicy": TIE_POLICY,
        }
        for query, hits in found.items()
    ]
    ties_cut = {query for query, hits in found.items() if hits.tie_is_cut}
    return measurement.measure(protocol, observed, ties_cut=ties_cut, rank_ends_at_k=True)


OPERATION: Final = Operation(
    id="lexical-retrieval",
    name="Pinned lexical retrieval",
    description=(
        "Search up to 500 supplied documents for up to 50 queries with BM25, and measure what was returned against "
        "explicit reference evidence. The corpus is pinned by a digest, so figures are never compared across changed "
        "texts; revoked and missing documents, another reference version and a changed corpus are refused. Ties are "
        "ordered by a stated rule, marked, and bounded. Lexical only: no vectors, no reranker, no relevance inference."
    ),
    category="data-assurance",
    input_type=LexicalInput,
    evaluate=evaluate,
    result_type=Result,
    example_input={
        "workflow": {
            "kind": "retrieval",
            "method": "lexical",
            "topK": 2,
            "cutoff": "2026-01-01T00:00:00Z",
            "documentIds": ["reset", "login", "vpn"],
            "referenceVersion": "v1",
        },
        "corpus": {
            "id": "helpdesk",
            "sha256": None,
            "documents": [
                {"id": document, "text": text, "publishedAt": "2025-06-01T00:00:00Z", "access": "granted"}
                for document, text in (
                    ("reset", "How to reset a password. Reset links expire."),
                    ("login", "Login fails after a password change"),
                    ("vpn", "VPN login"),
                )
            ],
        },
        "queries": [{"id": "q1", "text": "reset password"}],
        "reference": {
            "version": "v1",
            "populationComplete": True,
            "labels": [
                {"queryId": "q1", "id": "reset", "gain": 3},
                {"queryId": "q1", "id": "login", "gain": 1},
            ],
        },
    },
    short_input={
        "workflow": {
            "kind": "retrieval",
            "method": "lexical",
            "topK": 1,
            "cutoff": "2026-01-01T00:00:00Z",
            "documentIds": ["a"],
            "referenceVersion": "1",
        },
        "corpus": {
            "id": "c",
            "sha256": None,
            "documents": [
                {"id": "a", "text": "reset a password", "publishedAt": "2025-06-01T00:00:00Z", "access": "granted"}
            ],
        },
        "queries": [{"id": "q", "text": "reset"}],
        "reference": {
            "version": "1",
            "populationComplete": True,
            "labels": [{"queryId": "q", "id": "a", "gain": 1}],
        },
    },
    intents=(
        "run a reproducible bm25 baseline over supplied documents",
        "retrieve and evaluate with a pinned corpus",
        "measure lexical retrieval precision recall ndcg mrr",
    ),
    when_not_to_use=(
        "Semantic, vector or hybrid retrieval",
        "Search the web or documents that are not supplied",
        "Judge relevance or answers",
    ),
    capabilities=(
        "deterministic bm25 over supplied text",
        "corpus pin by digest",
        "ties ordered, marked and bounded",
        "strict measurement: unavailable rather than zero",
    ),
    related=("retrieval-measure", "ranking-evaluate"),
    limits={
        **GENERAL_LIMITS,
        "documents": DOCUMENTS,
        "queries": QUERIES,
        "queryCodePoints": QUERY_CODE_POINTS,
        "labelsPerQuery": LABELS_PER_QUERY,
        "returnedPerQuery": RETURNED,
        "maximumTopK": metrics.MAXIMUM_K,
    },
    error_codes=(
        *GENERAL_ERROR_CODES,
        ErrorCode.DUPLICATE_ID,
        ErrorCode.DOCUMENT_MISSING,
        ErrorCode.ACCESS_REVOKED,
        ErrorCode.CORPUS_CHANGED,
        ErrorCode.REFERENCE_VERSION_MISMATCH,
    ),
    notes=(
        (
            "Send corpus.sha256 null once, and the digest that the result returns from then on: a changed text or date "
            "is then refused instead of measured. corpus.id is a label; the digest says which documents these are."
        ),
        (
            "A word is a longest run of letters, digits, combining marks and _ in the text after NFC and case folding, "
            "by the Unicode tables of the Python that runs the service. So a run of Chinese is one word, snake_case is "
            "one, and C++ and C# are both c. Scores are rounded to 12 decimals before they are ordered."
        ),
        (
            "The measurement is what retrieval-measure answers for the returned observations, but reciprocal rank ends "
            "at topK, since the rows beyond it were not returned. A reference of null is a missing reference set; a "
            "query without labels has a known empty one."
        ),
        *CAUTIONS,
    ),
    contradictions=contradictions,
    inline_bytes=3_072,
)
