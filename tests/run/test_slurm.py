"""A study on workers that SLURM starts as jobs, by the program of docs/how-to/cluster.md."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import slurm
import yaml
from cli_runner import environment, sentences, whatwhere
from dask_cluster import wait_for
from small_study import TRAINING, VALUES, records

from whatwhere.run.files import read_lines
from whatwhere.study.study_settings import StudyConfig

PAGE = Path(__file__).parents[2] / "docs/how-to/cluster.md"


@pytest.mark.slow
def test_study_moves_from_job_to_job(tmp_path):
    """Workers that retire before their jobs end hand their trainings on, and every record is that of one process."""
    pytest.importorskip("dask_jobqueue")
    if lacking := slurm.lacks():
        pytest.skip(lacking)
    (tmp_path / "corpus.txt").write_text(sentences(600), encoding="utf-8")
    values = {**VALUES, "corpus": str(tmp_path / "corpus.txt"), "steps": 800, "models": ["dstg", "rope"]}
    config = StudyConfig.parse({**values, "all_analyses": False, "training": TRAINING})
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(config.model_dump(mode="json")), encoding="utf-8")
    words = ("study", "--config", str(tmp_path / "study.yaml"))
    assert whatwhere(*words, "--out", str(tmp_path / "alone")).returncode == 0
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), flags=re.S)
    for printed, here in (
        ("cores=8, processes=8", "cores=1, processes=1"),
        ('memory="32GB", walltime="01:00:00"', 'memory="2GB", walltime="00:05:00"'),
        ('"50m"', '"40s"'),
        ('"5m"', '"5s"'),
        ("minimum_jobs=4, maximum_jobs=4", "minimum_jobs=2, maximum_jobs=2"),
    ):
        assert printed in program
        program = program.replace(printed, here)
    out = tmp_path / "spread"
    with slurm.slurm(tmp_path / "slurm") as of_slurm, (tmp_path / "printed").open("wb") as printed:
        places = {"env": environment() | of_slurm, "cwd": tmp_path, "stdin": subprocess.PIPE}
        jobs = subprocess.Popen([sys.executable, "-c", program], stdout=printed, stderr=subprocess.STDOUT, **places)
        try:
            wait_for(lambda: re.search(rb"tcp://\S+\n", (tmp_path / "printed").read_bytes()))
            # Dask may print a warning before, as where another dashboard has its port.
            address = re.findall(r"tcp://\S+", (tmp_path / "printed").read_text())[0]
            done = whatwhere(*words, "--out", str(out), "--on", address)
            assert done.returncode == 0, done.stderr
            begun = subprocess.run(["scontrol", "show", "job", "-o"], env=of_slurm, capture_output=True, check=True)
        finally:
            jobs.communicate(b"\n", timeout=60)
    assert records(out) == records(tmp_path / "alone")
    log = read_lines(out / "models/dstg/seed-0/log.jsonl")
    steps = [line["step"] for line in log if "gradient_norm" in line]
    assert steps == sorted(set(steps)) and begun.stdout.count(b"JobId=") > 2
