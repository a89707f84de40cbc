"""The clauses against the requirement texts, which lie beside the corpus."""

from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.clauses import CLAUSES, Clause

from tests.corpus.files import CORPUS

FILES = {
    "calico": "calico-node-requirements.txt",
    "secure-workload": "secure-workload-requirements.txt",
    "runtime-enforcer": "runtime-enforcer-production.txt",
}


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.quote)
def test_clause_is_quoted(clause: Clause) -> None:
    """Heading and quote of a clause are in its text, whatever its line breaks."""
    text = " ".join((CORPUS.parent / "requirements" / FILES[clause.document]).read_text(encoding="utf-8").split())

    assert clause.quote in text
    # A heading may be split over lines of the text with others between.
    assert all(word in text for word in clause.heading.split())
