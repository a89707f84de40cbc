"""The clauses against the requirement texts, which lie beside the corpus."""

from __future__ import annotations

import re

import pytest

from tests.corpus.files import CORPUS
from tools.clause_table import CLAUSES, Clause

TEXTS = CORPUS.parent / "requirements"
FILES = {
    "calico": "calico-node-requirements.txt",
    "secure-workload": "secure-workload-requirements.txt",
    "runtime-enforcer": "runtime-enforcer-production.txt",
}


# Words that a demand has; many sentences without a demand have one too, and a clause says so of them.
DEMANDS = re.compile(
    r"\b(?:must|requires?|required|needs?|should|cannot|do(?:es)? not|only|minimum|supported|supports|tested|due|ensure"
    r"|make sure|keep|set|add|use|exclude|restrict|plan|point|remove|restart|turn|provide|allow|specify|download"
    r"|disabled?|enabled)\b",
    re.IGNORECASE,
)
SENTENCE_ENDS = re.compile(r"(?<=[.:!?])\s+|\s*•\s*|\s*```\s*")

pytestmark = pytest.mark.skipif(not TEXTS.is_dir(), reason="the requirement texts are not beside the corpus")


def text_of(document: str) -> str:
    """A text on one line, with the quotation marks of a keyboard."""
    text = " ".join((TEXTS / FILES[document]).read_text(encoding="utf-8").split())
    return text.translate(str.maketrans("\u201c\u201d\u2018\u2019", "\"\"''"))


def sentences(text: str) -> list[str]:
    """Its sentences; a word alone is a key of YAML."""
    return [part for part in SENTENCE_ENDS.split(text) if " " in part]


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.quote)
def test_clause_is_quoted(clause: Clause) -> None:
    """Heading and quote of a clause are in its text, whatever its line breaks."""
    text = text_of(clause.document)

    assert clause.quote in text
    # A heading may be split over lines of the text with others between.
    assert all(word in text for word in clause.heading.split())


@pytest.mark.parametrize("document", FILES)
def test_each_demand_is_a_clause(document: str) -> None:
    """What a text demands is quoted by a clause, which names a check or says why there is none."""
    quotes = [clause.quote for clause in CLAUSES if clause.document == document]
    demands = [sentence for sentence in sentences(text_of(document)) if DEMANDS.search(sentence)]

    assert len(demands) > 10
    assert [item for item in demands if not any(_answers(quote, item) for quote in quotes)] == []


def _answers(quote: str, sentence: str) -> bool:
    """Whether a quote is in a sentence, or goes over it."""
    return quote in sentence or any(part in sentence for part in sentences(quote))
