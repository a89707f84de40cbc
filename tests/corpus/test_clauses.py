"""The clauses against the requirement texts, which lie beside the corpus."""

from __future__ import annotations

import pytest

from tests.corpus.files import CORPUS
from tools.clause_table import CLAUSES, Clause

TEXTS = CORPUS.parent / "requirements"
FILES = {
    "calico": "calico-node-requirements.txt",
    "secure-workload": "secure-workload-requirements.txt",
    "runtime-enforcer": "runtime-enforcer-production.txt",
}


@pytest.mark.skipif(not TEXTS.is_dir(), reason="the requirement texts are not beside the corpus")
@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.quote)
def test_clause_is_quoted(clause: Clause) -> None:
    """Heading and quote of a clause are in its text, whatever its line breaks."""
    text = " ".join((TEXTS / FILES[clause.document]).read_text(encoding="utf-8").split())

    assert clause.quote in text
    # A heading may be split over lines of the text with others between.
    assert all(word in text for word in clause.heading.split())
