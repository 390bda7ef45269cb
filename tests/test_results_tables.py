"""The tables of docs/results/tables.py: means, intervals and paired differences of made-up records, beside the paper's
values."""

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import t
from scripts import module_of

from whatwhere.records.record import Record, write_records
from whatwhere.records.table import Point, Table
from whatwhere.study.study_settings import StudyConfig

RESULTS = Path(__file__).parents[1] / "docs/results"
SCRIPT = RESULTS / "tables.py"
LOSSES = {"dstg": [3.5, 3.6, 3.8], "ap": [3.9, 3.8, 4.3]}


@pytest.fixture(scope="module")
def tables():
    return module_of(SCRIPT)


@pytest.fixture
def records():
    made = [Record("s", "", "loss.unigram", 6.5)]
    for model, losses in LOSSES.items():
        for seed, loss in enumerate(losses):
            who = {"study": "s", "model": model, "seed": seed}
            made += [Record(metric="parameters", value=1.5e6, **who), Record(metric="tokens", value=1.024e7, **who)]
            made += [
                Record(metric="loss", value=v, part="validation", step=s, **who) for s, v in ((0, 8.0), (100, loss))
            ]
            for layer in range(5):
                for part in ("all", "position") if model == "dstg" else ("all",):
                    made.append(Record(metric="r2.token", value=0.1 * layer, part=part, layer=layer, **who))
                    made.append(
                        Record(metric="r2.token", value=9.0, part=part, layer=layer, index=1, **who)
                    )  # one split
                    made.append(
                        Record(metric="r2.token", value=9.0, part=part, layer=layer, step=0, **who)
                    )  # untrained
    return made


def test_losses_have_intervals_between_seeds(tables, records):
    """Losses have intervals between seeds and differences seed by seed."""
    rows = tables.loss_table(Table(records)).splitlines()
    half = t.ppf(0.975, 2) * np.std(LOSSES["dstg"], ddof=1) / 3**0.5
    seeds = "; 3.50, 3.60, 3.80"
    assert f"| `dstg` | 1.50 | 10.2 | 3.63 [{3.6333 - half:.2f}, {3.6333 + half:.2f}]{seeds} |" in rows[2]
    gaps = np.subtract(LOSSES["ap"], LOSSES["dstg"])
    half = t.ppf(0.975, 2) * gaps.std(ddof=1) / 3**0.5
    assert f"+{gaps.mean():.2f} [{gaps.mean() - half:+.2f}, {gaps.mean() + half:+.2f}]" in rows[3]
    assert "6.50 nats" in rows[-1]


def test_page_of_schemes_has_the_tables_of_its_records(capsys):
    """A row that was typed anew could be of other records."""
    folder = RESULTS / "schemes"
    module_of(folder / "tables.py").main(str(folder / "records.parquet"))
    page = (folder / "README.md").read_text(encoding="utf-8").splitlines()
    rows = [line for line in capsys.readouterr().out.splitlines() if line]
    assert len(rows) > 40 and [row for row in rows if row not in page] == []


def test_table_of_schemes_reads_final_models(records, tmp_path, capsys):
    """R² in the table of all schemes were those before training, whose records come last in a file."""
    records = [r for r in records if r.seed in (None, 0) and not (r.step == 0 and r.metric == "loss")]
    records += [Record("s", model, "operations", 2e6, seed=0) for model in LOSSES]
    tries = {1: 3.25, 10: 2.75}
    records += [
        Record("schemes-search", "dstg", "loss", loss, part=f"validation.biases-{scale}", seed=9)
        for scale, loss in tries.items()
    ]
    file = tmp_path / "records.parquet"
    write_records(file, records)
    module_of(RESULTS / "schemes/tables.py").main(str(file))
    rows = capsys.readouterr().out.splitlines()
    assert rows[2] == "| `dstg` | 3.50 |  | 0.30, position 0.30 | – | – | 1.00 |"
    assert rows[3] == "| `ap` | 3.90 | – | 0.30 | – | – | 1.00 |"
    assert rows[-1] == "| `dstg` | 3.25 → 2.75 |"


def test_probes_are_of_final_models(tables, records):
    """Probes are of final models and stand above the papers row."""
    rows = tables.probe_table(Table(records), "r2.token").splitlines()
    ours = next(i for i, row in enumerate(rows) if row.startswith("| `dstg`, position stream"))
    cells = [f"{v:.2f} ± 0.00; {v:.2f}, {v:.2f}, {v:.2f}" for v in (0, 0.1, 0.2, 0.3, 0.4)]
    assert rows[ours].split("|")[2:7] == [*(f" {cell} " for cell in cells[:4]), f" ({cells[4]}) "]  # untrained
    assert rows[ours + 1].split("|")[3] == " *0.99* "  # Table 2, "AP only", column 0: the output of the first block
    assert not any(row.startswith("| `dstg` |") for row in rows) and any(row.startswith("| `ap` |") for row in rows)


def test_one_seed_has_no_interval_of_its_own(tables):
    assert tables.said(Point.between(0.5)) == "0.50"
    assert tables.said(Point.between(0.5, 0.4, 0.7)) == "0.50 [0.40, 0.70]"
    assert tables.said(None) == "–"
    assert tables.said(Point.between(0.5, 0.4, 0.61), short=True) == "0.50 ± 0.10"
    assert tables.said(Point.between(0.9, 0.6, 0.99), short=True) == "0.90 [0.60, 0.99]"


def test_scores_stand_beside_untrained_and_first_model(tables, tmp_path, capsys):
    """Scores of an evaluation stand beside the untrained model and the first."""
    made = [Record("s", "", "linguistic.surface", 0.6, part="pos")]
    for model, score in {"dstg": 0.8, "ap": 0.7}.items():
        made += [Record("s", model, "linguistic.score", score, score - 0.01, score + 0.01, part="pos")]
        made += [Record("s", model, "linguistic.score", 0.5, part="pos", step=0)]
    made += [Record("s", "ap", "linguistic.difference", -0.1, -0.2, 0.01, part="pos")]
    made += [Record("s", "dstg", "linguistic.taught", 0.3, -0.1, 0.7, part="pos")]
    write_records(tmp_path / "r.parquet", made)
    tables.main(str(tmp_path / "r.parquet"))
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == "| task | `dstg` | `ap` | by the surface |"
    assert lines[4] == "| pos | 0.800 ± 0.010 (0.500 =) | 0.700 ± 0.010 = (0.500) | 0.600 |"


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*/*.yaml")), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_configurations_of_studies_are_accepted(path, monkeypatch):
    """The study of starts gave a variant the name of a preset, which no study accepts."""
    monkeypatch.chdir(path.parent)
    assert StudyConfig.load(path).models
