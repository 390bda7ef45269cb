"""What a worker of a cluster checks before it gets work; no cluster is needed for it."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from whatwhere.run import remote
from whatwhere.run.lock import InUse, lock
from whatwhere.run.progress import ignore_progress
from whatwhere.study.study_settings import prefix_training_keys_in_errors


@pytest.fixture
def requirements(tmp_path):
    """Terms that this process meets: the same programs, a token that it sees, a folder whose lock it sees held."""
    proof = tmp_path / "held/.token"
    with lock(proof.parent):
        proof.write_text("run")
        yield remote.Requirements("run", remote.code_versions(), os.getcwd(), str(proof))
        proof.unlink(missing_ok=True)


def refusal(requirements, threads=1):
    """The line of a worker that refuses requirements."""
    with pytest.raises(ValueError) as refused:
        remote.check_worker(requirements, "tcp://w:1", threads)
    assert "tcp://w:1" in str(refused.value) and "\n" not in str(refused.value)
    return str(refused.value)


def test_worker_like_the_command_is_accepted(requirements):
    remote.check_worker(requirements, "tcp://w:1", 1)
    assert sorted(os.listdir(Path(requirements.proof_file).parent)) == [".lock", ".token", ".writer"]


def test_worker_with_another_program_is_named(requirements):
    """Both versions stand in the line, of this package and of those that decide numbers."""
    for place, (program, version) in enumerate(requirements.versions):
        versions = [*requirements.versions[:place], (program, "0.0.1"), *requirements.versions[place + 1 :]]
        assert f"has {program} {version}, this command has {program} 0.0.1" in refusal(
            replace(requirements, versions=tuple(versions))
        )


def test_worker_of_several_threads_is_refused(requirements):
    assert "2 jobs at once" in refusal(requirements, threads=2)


def test_worker_of_a_launcher_is_refused(requirements, monkeypatch):
    """Independent trainings would have joined one process group."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert "started by a launcher" in refusal(requirements)


def test_folder_in_use_keeps_its_class_in_a_study():
    """A training that moved to another worker did not wait for its last writer: the error had become a plain one."""
    with pytest.raises(InUse), prefix_training_keys_in_errors():
        raise InUse(Path("m"), "7 on a")
    waits = iter([InUse(Path("m"), "7 on a"), None])

    def work(progress):
        with prefix_training_keys_in_errors():
            if (error := next(waits)) is not None:
                raise error
        return "done"

    assert remote._do_when_run_is_free(work, (), ignore_progress) == "done"


def test_worker_without_the_shared_folder_is_named(requirements, tmp_path):
    assert f"may not write {tmp_path / 'held'}" in refusal(replace(requirements, resource="another run's token"))
    assert "/gone" in refusal(replace(requirements, directory="/gone"))
    Path(requirements.proof_file).unlink()
    assert f"does not see or may not write {tmp_path / 'held'}" in refusal(requirements)


def test_worker_that_sees_no_locks_is_named(requirements, tmp_path):
    (tmp_path / ".token").write_text("run")
    assert "passes no locks on" in refusal(replace(requirements, proof_file=str(tmp_path / ".token")))
