"""The cache of built things."""

from pathlib import Path

import pytest

from tests.lab import cache


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def test_built_once():
    """The second call finds what the first made."""
    calls = []

    def make(directory: Path) -> None:
        calls.append(directory)
        (directory / "file").write_text("x")

    first, second = (cache.ensure("thing", "1", make) for _ in range(2))

    assert first == second
    assert (first / "file").read_text() == "x"
    assert len(calls) == 1


def test_interrupted_build_leaves_no_entry():
    """The next call starts from an empty directory."""

    def broken(directory: Path) -> None:
        (directory / "half").write_text("x")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.ensure("thing", "1", broken)
    found = cache.ensure("thing", "1", lambda directory: (directory / "whole").touch())

    assert [path.name for path in found.iterdir()] == ["whole"]


def test_digest_counts_boundaries():
    """Different lists do not share a name."""
    assert cache.digest(["ab", "c"]) != cache.digest(["a", "bc"])
    assert cache.digest(["a", b"b"]) == cache.digest(["a", "b"])


def test_tree_parts_see_modes(tmp_path: Path):
    """A file that becomes a program makes another tree."""
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "file").write_text("x")
    before = list(cache.tree_parts(tree))
    (tree / "file").chmod(0o755)

    assert list(cache.tree_parts(tree)) != before
