"""Commits of models that a command and the workers of its cluster take from the Hub."""

import shutil

import huggingface_hub
import pytest
from foreign_models import put_in_hub_cache

import whatwhere as ww
from whatwhere.analysis.record_context import RecordContext
from whatwhere.run.hub import revisions_of
from whatwhere.study.evaluation_run import _context_of_trial
from whatwhere.study.heads_run import HeadsTask, measure_task


def test_worker_with_another_commit_refuses_its_job(tmp_path, monkeypatch):
    """A name on the Hub was each worker's own copy: of two commits, one table of results was made."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    put_in_hub_cache(ww.reference(), "some/encoder", tmp_path / "cache")
    wanted = revisions_of(["some/encoder", "reference", ww.reference()])
    assert wanted == {"some/encoder": "abc123"}
    with _context_of_trial("one", None, wanted):
        pass
    place = tmp_path / "cache/models--some--encoder"
    shutil.move(place / "snapshots/abc123", place / "snapshots/def456")
    (place / "refs/main").write_text("def456")
    said = r"some/encoder is at the revision def456 on \S+, at abc123 where the command runs: results would differ"
    with pytest.raises(ValueError, match=said), _context_of_trial("two", None, wanted):
        pass
    with pytest.raises(ValueError, match=said):
        measure_task(HeadsTask("some/encoder", RecordContext("encoder"), None, 0, (), wanted), lambda *state: None)
