"""`whatwhere report`: the page of one run or of several studies, and its tables."""

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from whatwhere.cli.verbs import app


def run(*arguments: object):
    return CliRunner().invoke(app, ["report", *(str(a) for a in arguments)], catch_exceptions=True)


@pytest.mark.whole
def test_a_page_is_written_again_where_asked(build, tmp_path):
    """One run is written again where it is or where asked."""
    folder = build("one", models=("ap",))
    assert run(folder).exit_code == 0 and (folder / "report.html").is_file()
    (folder / "report.html").unlink()
    result = run(folder, "--out", tmp_path / "x" / "page.html", "--json")
    assert json.loads(result.stdout) == {"report": str(tmp_path / "x" / "page.html"), "tables": []}
    assert (tmp_path / "x" / "page.html").is_file() and not (folder / "report.html").exists()


def test_several_are_compared_and_their_tables_handed_out(build, tmp_path, monkeypatch):
    runs = [build("one", models=("ap",)), build("two", models=("rope",))]
    monkeypatch.chdir(tmp_path)
    result = run(*runs, "--csv", tmp_path / "tables")
    assert result.exit_code == 0 and "The report is comparison.html" in result.stdout
    assert "one/ap" in (tmp_path / "comparison.html").read_text(encoding="utf-8")
    assert (tmp_path / "tables" / "pick.csv").is_file() and (tmp_path / "tables" / "costs.csv").is_file()
    assert not (runs[0] / "report.html").exists()


def test_a_geometry_run_has_its_tables_written(geometry_folder, tmp_path):
    result = run(geometry_folder, "--out", tmp_path / "page.html", "--csv", tmp_path / "tables", "--json")
    assert (
        result.exit_code == 0
        and len(json.loads(result.stdout)["tables"]) == len(list((tmp_path / "tables").iterdir())) > 3
    )


def test_wrong_input_writes_nothing(build, tmp_path, monkeypatch):
    folder = build("one", models=("ap",))
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    for arguments, message in (
        ((folder, folder), "once more"),
        ((folder, tmp_path / "none"), "is no study"),
        ((folder, "--out", tmp_path), "--out is the file of the page, for example"),
        ((folder, "--out", tmp_path / "page.png"), r"name ends in \.html; got .*page.png. Give .*page.html"),
        ((folder, "--csv", folder), "which is no CSV file"),
    ):
        result = run(*arguments)
        with pytest.raises(ValueError, match=message):
            raise result.exception
    assert sorted(tmp_path.rglob("*")) == before


def test_a_page_of_a_read_only_run_needs_out(build, tmp_path, monkeypatch):
    """The error named no --out, and the tables were written before it; root may write everywhere, hence the patch."""
    folder = build("one", models=("ap",))
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK or Path(path) != folder)
    with pytest.raises(ValueError, match="may not write in .*one. Give another --out"):
        raise run(folder, "--csv", tmp_path / "tables").exception
    assert not (tmp_path / "tables").exists()
