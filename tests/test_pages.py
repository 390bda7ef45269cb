"""Every command and the Python example of the README run, in order, in a fresh folder."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from cli_runner import environment, sentences, whatwhere

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
FEW = "--set probe_documents=10 --set ablation_documents=8 --set texts=1 --set probe_splits=2"
SHORT = "--set document=blank-line --set length=64 --set training.model.num_hidden_layers=2"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.S)


def test_readme_commands_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("whatwhere.study.evaluate.at_once", lambda: 1)  # no process for each of eight
    # The demo and the tests are run by .ci/run and make. Fewer steps, layers, texts and words than a user has.
    (tmp_path / "my-texts").mkdir()
    (tmp_path / "my-texts/a.txt").write_text(sentences(1500), encoding="utf-8")
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    for name, rows in (("reviews.tsv", 80), ("reviews-dev.tsv", 20)):
        rated = [f"{text.splitlines()[0]}\t{i % 2}" for i, text in enumerate(sentences(rows, seed=rows).split("\n\n"))]
        (tmp_path / name).write_text("\n".join(["sentence\tlabel", *rated]) + "\n", encoding="utf-8")
    for split, n in (("train", 24), ("dev", 12)):
        for task, header in (("RTE", "index\tsentence1\tsentence2\tlabel\n"), ("CoLA", "")):
            row = "{0}\tone two\tthree\t{1}\n" if header else "x\t{1}\t\tone two\n"
            path = tmp_path / "GLUE-FOLDER" / task / f"{split}.tsv"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(header + "".join(row.format(i, i % 2) for i in range(n)), encoding="utf-8")
    lines = [line.split("#")[0].strip() for block in blocks("sh") for line in block.splitlines()]
    commands = [line for line in lines if line and not line.startswith("make ")]
    assert len(commands) >= 6 and [line for line in lines if line.startswith("make ")] == ["make demo", "make test"]
    makefile = (ROOT / "Makefile").read_text()
    assert "\ndemo:" in makefile and "\ntest:" in makefile and "whatwhere study --out runs/demo" in makefile
    for line in commands:
        words = shlex.split(
            line.replace(" study ", f" study --steps 8 --models dstg,ap {SHORT} {FEW} ")
            .replace("--steps 50", "--steps 5")
            .replace("--documents 100 --ablate 32", "--documents 10 --ablate 8")
            .replace("--models kerple,alibi", "--models kerple,alibi --set inside=false")
        )
        assert words[0] == ".venv/bin/whatwhere"
        if words[1] == "pretrain":
            words += ["--corpus", "my-texts", "--set", "document=blank-line", "--set", "model.num_hidden_layers=2"]
        if words[1] == "geometry":  # one file here, where a user has many
            words += ["--set", "document=blank-line", "--set", "groups=4", "--set", "min_support=50"]
        if words[1] == "finetune":
            words += ["--steps", "4"]
        if words[1] == "evaluate":
            words += ["--seeds", "1"]
        done = whatwhere(*words[1:])
        assert done.returncode == 0, (line, done.stderr[-1500:])
    assert (tmp_path / "runs/mine/report.html").is_file()
    opened = (
        "from transformers import AutoModel; import whatwhere; "
        "print(type(AutoModel.from_pretrained('runs/dstg')).__name__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", opened], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "Encoder"


def test_readme_python_example_runs(capsys):
    (example,) = blocks("python")
    exec(compile(example, "README.md", "exec"), {})
    assert 0 < float(capsys.readouterr().out) <= 1
