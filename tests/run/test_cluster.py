"""Jobs on the workers of a Dask cluster: the same numbers, whatever dies."""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import psutil
import pytest
import yaml
from cli_runner import command, environment, sentences, whatwhere
from cluster_jobs import end_process, rest, take_memory, wait_in
from dask_cluster import FORKS, PRELOAD, DaskCluster, end, processes_of, start_dask, wait_for, wait_for_worker
from small_study import TRAINING, VALUES, records

from whatwhere.geometry.counts import Counts
from whatwhere.run import admission, remote
from whatwhere.run import cluster as cluster_module
from whatwhere.run.admission import workers_of
from whatwhere.run.cluster import connect
from whatwhere.run.cluster_jobs import SECONDS_BETWEEN_LOOKS
from whatwhere.run.executors import Job, submit_and_yield
from whatwhere.run.files import read_lines
from whatwhere.run.jobs import run_jobs
from whatwhere.run.lock import lock, writer_of
from whatwhere.run.signals import STOPPING
from whatwhere.study.study_settings import StudyConfig

pytestmark = pytest.mark.whole

# ---- with Dask, on workers that load nothing ----


@pytest.fixture(scope="module")
def starting(tmp_path_factory):
    """The workers of `cluster`, which import while the tests before theirs wait, and the file of what they print."""
    pytest.importorskip("distributed")
    with DaskCluster(tmp_path_factory.mktemp("cluster"), 0, **FORKS) as cluster:
        yield cluster, cluster.add_worker("--nworkers", "3", "--preload-nanny", "warm_forks")


@pytest.fixture(scope="module")
def light(starting, tmp_path_factory):
    """A scheduler that gives a job up when one worker dies of it, and two workers that start in two seconds."""
    variables = {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0", **FORKS}
    with DaskCluster(tmp_path_factory.mktemp("light"), 2, "--memory-limit", "700MB", **variables) as cluster:
        yield cluster


@pytest.fixture
def connected(light, tmp_path):
    """The connection of a command to these workers."""
    with connect(str(light.file), tmp_path / "out") as connected, lock(tmp_path / "out"):
        yield connected


@contextmanager
def beside(work: Callable[[], None]) -> Iterator[None]:
    """Do work in a thread beside the block."""
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(work)
        yield
        done.result()


def results(connected, jobs):
    """Results of jobs on the workers, with at most two jobs a worker under way."""
    with connected.session() as workers:
        for _, _, future in submit_and_yield(workers, enumerate(jobs), lambda: 2 * connected.admission.usable_count):
            yield future.result()


@pytest.mark.slow
def test_no_job_waits_beside_an_idle_worker(connected):
    """A training waited for a busy worker beside an idle one: Dask took it for a job of half a second."""
    together = connected.folder.parent / "together"
    together.mkdir()
    list(results(connected, [Job(name, wait_in, (str(together),)) for name in "ab"]))  # both have imported torch
    seconds = {"long": 4.5, "less": 3.0, "third": 5.0, "fourth": 5.0}
    jobs = [Job(name, rest, (time,)) for name, time in seconds.items()]
    spans = [span for _, span in run_jobs(jobs, None, False, cluster=connected)]
    assert len({pid for pid, *_ in spans}) == 2
    begun = sorted(begin for _, begin, _ in spans)
    ends = sorted(end for *_, end in spans)
    for free, begin in zip(ends, begun[2:], strict=False):  # a worker that is free begins the next job
        assert begin - free < 1.5, spans


OTHER_VERSION = """
from whatwhere.run import remote
program, *others = remote.code_versions()
remote.code_versions = lambda: ((program[0], "0.0.1"), *others)
"""


@pytest.mark.slow
def test_late_worker_that_is_refused_is_left_out(light, connected, tmp_path, capfd):
    """A worker of another version that joined in mid-work ended the whole command."""
    (tmp_path / "other.py").write_text(OTHER_VERSION)

    def seconds():
        yield from [(0.1,)] * 4
        wait_for_worker(light.add_worker("--no-nanny", "--preload", str(tmp_path / "other.py")))
        yield from [(0.1,)] * 30

    pids = {pid for pid, *_ in results(connected, (Job("rest", rest, args) for args in seconds()))}
    late = light.workers.pop()
    assert len(pids) == 2 and not pids & processes_of(late)
    end(late)
    said = capfd.readouterr().err
    assert said.count("has whatwhere 0.0.1,") == 1 and said.count("Until then it gets no work.") == 1, said


@pytest.mark.slow
def test_killed_worker_does_not_count_as_failure(light, connected, tmp_path, capfd):
    """A worker that went with its machine made its job a failed one, "perhaps for lack of memory"."""
    begun = tmp_path / "begun"
    begun.mkdir()

    def kill_first() -> None:
        wait_for(lambda: any(begun.iterdir()))
        (pid,) = [int(path.name) for path in begun.iterdir()]
        end(next(worker for worker in light.workers if pid in processes_of(worker)))

    with beside(kill_first):
        (pid,) = results(connected, [Job("wait", wait_in, (str(begun),))])
    light.workers = [worker for worker in light.workers if worker.poll() is None]
    assert {path.name for path in begun.iterdir()} > {str(pid)}
    assert capfd.readouterr().err.count("is gone; its job goes on where it can.") == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("work", "argument", "said"),
    [
        (take_memory, 10**10, r"\(1 passed its memory limit\), .* more memory \(dask worker --memory-limit\)"),
        (end_process, signal.SIGSEGV, r"\(1 was killed by signal 11\), .* Look at what it printed"),
        (end_process, signal.SIGKILL, r"\(1 was killed by signal 9\), .* its machine was short of memory"),
    ],
)
def test_worker_that_dies_of_a_job_is_named(connected, capfd, work, argument, said):
    """Memory, a crash and a kill were one line, "perhaps for lack of memory"."""
    with pytest.raises(OSError, match=f"^A worker died at job {said}, and run the same command") as refused:
        list(results(connected, [Job("job", work, (argument,))]))
    assert "\n" not in str(refused.value)
    assert ("passed its memory limit and starts again" in capfd.readouterr().err) == (work is take_memory)


@pytest.mark.slow
def test_workers_with_a_gpu_take_turns(light, tmp_path):
    """Where workers declare GPU=1 they alone get jobs, one at a time each; no GPU is needed to see that."""
    wait_for_worker(light.add_worker("--no-nanny", "--resources", "GPU=1"))
    with connect(str(light.file), tmp_path / "out") as connected, lock(tmp_path / "out"):
        assert connected.admit_workers() == 1 < len(workers_of(connected.client))
        found = list(results(connected, [Job("rest", rest, (0.2,))] * 4))
    assert {pid for pid, *_ in found} <= processes_of(light.workers[-1])
    times = sorted(found, key=lambda result: result[1])
    assert all(before[2] <= after[1] for before, after in pairwise(times))
    end(light.workers.pop())


@pytest.mark.slow
def test_refused_worker_with_a_gpu_stops_nobody(light, connected, tmp_path, capfd):
    """Every job asked for a GPU where one worker had declared it, though that worker was refused: nothing began."""
    (tmp_path / "other.py").write_text(OTHER_VERSION)
    wait_for_worker(light.add_worker("--no-nanny", "--resources", "GPU=1", "--preload", str(tmp_path / "other.py")))
    refused = light.workers.pop()
    assert connected.admit_workers() == len(workers_of(connected.client)) - 1
    ((pid, *_),) = results(connected, [Job("rest", rest, (0.1,))])
    assert pid not in processes_of(refused)
    end(refused)
    assert capfd.readouterr().err.count("has whatwhere 0.0.1,") == 1


@pytest.mark.slow
def test_wait_for_paused_workers_is_told(connected):
    """Dask gives nothing to workers that hold 80 % of their memory, and the command said nothing for ever."""

    def pause(dask_worker) -> None:
        dask_worker.status = type(dask_worker.status).paused

    def resume(dask_worker) -> None:
        dask_worker.status = type(dask_worker.status).running

    with connected.session() as session:

        def reason() -> str:
            return session.reason_for_waiting(session.admission.admit_new_workers(may_raise=False))

        assert reason() == ""
        # Dask looks at their memory, and lets them go on.
        wait_for(lambda: connected.client.run(pause) and "Dask gives it no job. Give workers" in reason())
        connected.client.run(resume)
        wait_for(lambda: reason() == "")


@pytest.mark.slow
def test_scheduler_lost_between_two_uses_is_one_line(tmp_path):
    """Where nothing ran as the scheduler went, the next use of it was a traceback of Dask's."""
    pytest.importorskip("distributed")
    (tmp_path / "out").mkdir()
    with DaskCluster(tmp_path, 1, "--no-nanny") as cluster:
        with connect(str(cluster.file), tmp_path / "out") as connected, lock(tmp_path / "out"):
            assert connected.admit_workers() == 1
            end(cluster.scheduler)
            wait_for(lambda: connected.client.status != "running")
            with pytest.raises(OSError, match="^The scheduler at .* is gone. Finished work and checkpoints stay"):
                connected.admit_workers()
            with pytest.raises(OSError, match="^The scheduler at .* is gone"):
                list(results(connected, [Job("rest", rest, (0.1,))]))


# ---- with Dask, on workers that have their modules ----


def test_address_without_a_scheduler_is_one_line(tmp_path, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setenv("WHATWHERE_ON", "tcp://127.0.0.1:1")
    assert 2 * cluster_module.SECONDS_TO_CONNECT <= 10
    monkeypatch.setattr(cluster_module, "SECONDS_TO_CONNECT", 1)
    begun = time.monotonic()
    done = whatwhere("study", "--out", str(tmp_path / "out"))
    assert time.monotonic() - begun < 5
    assert done.returncode == 2 and done.stderr.startswith("whatwhere: No scheduler answers at tcp://127.0.0.1:1 (")
    assert done.stderr.count("\n") == 1 and not (tmp_path / "out").exists()
    (tmp_path / "broken.json").write_text("{")
    monkeypatch.setenv("WHATWHERE_ON", str(tmp_path / "broken.json"))
    done = whatwhere("study", "--out", str(tmp_path / "out"))  # it was a traceback of Dask's
    assert (
        done.returncode == 2
        and "broken.json is not complete JSON (" in done.stderr
        and "Give the file that dask" in done.stderr
    )
    assert done.stderr.count("\n") == 1 and not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def studied(tmp_path_factory):
    """Arguments of a small study, and its folder where this process did it alone."""
    folder = tmp_path_factory.mktemp("studied")
    (folder / "corpus.txt").write_text(sentences(300), encoding="utf-8")
    values = {**VALUES, "corpus": str(folder / "corpus.txt"), "steps": 60, "models": ["dstg", "rope"]}
    training = {**TRAINING, "optimizer": "adamw"}  # Muon takes seven times as long; tests/training resume it
    config = StudyConfig.parse({**values, "all_analyses": False, "training": training})
    (folder / "study.yaml").write_text(yaml.safe_dump(config.model_dump(mode="json")), encoding="utf-8")
    arguments = ("study", "--config", str(folder / "study.yaml"))
    done = whatwhere(*arguments, "--out", str(folder / "alone"))
    assert done.returncode == 0, done.stderr
    return arguments, folder / "alone"


@pytest.fixture(scope="module")
def cluster(starting, studied):
    """A scheduler and three workers, forked from a process that has imported their modules."""
    cluster, log = starting
    wait_for_worker(log, 3)
    return cluster


def started(*arguments: str) -> "subprocess.Popen[str]":
    """The command line in a process of its own."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    # Tests in the background ignore SIGINT; a study that inherits that rightly goes on to its end.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return subprocess.Popen(command(*arguments), env=environment(), **pipes)
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.long
def test_command_without_a_usable_worker_is_refused(cluster, monkeypatch, tmp_path):
    """The one line of the first worker says how many others are refused."""
    program, *others = remote.code_versions()
    monkeypatch.setattr(admission, "code_versions", lambda: ((program[0], "9.9"), *others))
    with connect(str(cluster.file), tmp_path) as connected, lock(tmp_path):
        with pytest.raises(ValueError, match=r"this command has whatwhere 9\.9: .* \(2 more\)\.$") as refused:
            connected.admit_workers()
    assert "\n" not in str(refused.value)


@pytest.mark.long
def test_study_is_the_same_whatever_worker_dies(cluster, studied, tmp_path):
    """SIGKILL of a worker in mid-training: another one goes on from the checkpoint, and every record is equal."""
    arguments, alone = studied
    out = tmp_path / "spread"
    model = out / "models/dstg/seed-0"

    def kill_worker() -> None:
        wait_for((model / "checkpoints/step-20").is_dir)
        cluster.writer_of(model).kill()

    with beside(kill_worker):
        done = whatwhere(*arguments, "--out", str(out), "--on", str(cluster.file))
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("What each worker does: http://")
    assert "cluster: workers 3" in done.stderr and "all 2 models" in done.stderr
    assert records(out) == records(alone)
    steps = [line["step"] for line in read_lines(model / "log.jsonl") if "gradient_norm" in line]
    assert steps == sorted(set(steps)) and not list(out.rglob(".token*"))


@pytest.mark.slow
def test_windows_are_the_same_whatever_worker_tokenises(cluster, tmp_path):
    """Every file of the windows is equal to the last byte, also where a worker dies."""
    (tmp_path / "text.txt").write_text(sentences(60_000), encoding="utf-8")
    words = ("windows", "--corpus", str(tmp_path / "text.txt"), "--set", "vocab_size=300", "--length", "32")
    assert whatwhere(*words, "--out", str(tmp_path / "here")).returncode == 0
    done = started(*words, "--out", str(tmp_path / "there"), "--on", str(cluster.file))
    shards = tmp_path / "there/corpus/shards"
    wait_for(lambda: any(shards.glob("*.json")))
    psutil.Process(cluster.pids()[0]).kill()
    _, said = done.communicate(timeout=300)
    assert done.returncode == 0, said
    here, there = (
        {path.name: path.read_bytes() for path in (tmp_path / name / "corpus/shards").iterdir()}
        for name in ("here", "there")
    )
    assert len(here) > 20 and here == there


@pytest.mark.slow
def test_counts_are_the_same_whatever_worker_counts(cluster, tmp_path):
    """Counts of positions are equal, also where a worker dies, and their command leaves nothing in the folder."""
    (tmp_path / "text.txt").write_text(sentences(60_000), encoding="utf-8")
    words = ("geometry", "--corpus", f"a={tmp_path / 'text.txt'}", "--tokenizer", "words", "--positions", "12")
    here = tmp_path / "here"
    there = tmp_path / "there"
    done = whatwhere(*words, "--out", str(here))
    assert done.returncode == 0, done.stderr
    spread = started(*words, "--out", str(there), "--on", str(cluster.file))
    wait_for(lambda: any((there / "counts/a.shards").glob("*.npz")))
    psutil.Process(cluster.pids()[0]).kill()
    _, said = spread.communicate(timeout=300)
    assert spread.returncode == 0, said
    mine, theirs = (Counts.load(out / "counts/a.npz") for out in (here, there))
    assert (mine.matrix != theirs.matrix).nnz == 0 and list(mine.documents) == list(theirs.documents)
    assert mine.tokens > 100_000
    names = [sorted(path.name for path in out.rglob("*") if path.name != ".writer") for out in (here, there)]
    assert names[0] == names[1]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_ended_command_can_be_given_again_at_once(cluster, studied, tmp_path, number):
    """Ctrl-C waits for a checkpoint of each training; those of a killed command stop by themselves."""
    arguments, alone = studied
    out = tmp_path / "out"
    words = (*arguments, "--out", str(out), "--on", str(cluster.file))
    study = started(*words)
    models = [out / f"models/{name}/seed-0" for name in ("dstg", "rope")]
    wait_for(lambda: all((model / "checkpoints/step-10").is_dir() for model in models))
    study.send_signal(number)
    _, said = study.communicate(timeout=300)
    if number == signal.SIGINT:
        assert study.returncode == 130 and STOPPING in said, said
        assert said.endswith("Give the same command again: it keeps what its folder has finished.\n")
        newest = [max(int(path.name[5:]) for path in model.glob("checkpoints/step-*")) for model in models]
        logged = [read_lines(model / "log.jsonl")[-1]["step"] for model in models]
        assert all(step >= last for step, last in zip(newest, logged, strict=True))
        assert any(step % 10 for step in newest)  # not all are those of every tenth step
        assert writer_of(out) is None and all(writer_of(model) is None for model in models)
    done = whatwhere(*words)
    assert done.returncode == 0, done.stderr
    assert records(out) == records(alone)


@pytest.mark.slow
def test_retired_worker_hands_its_training_on(studied, tmp_path):
    """A worker that retires, as at the end of its lifetime, writes a checkpoint, and another one goes on."""
    distributed = pytest.importorskip("distributed")
    arguments, alone = studied
    out = tmp_path / "out"
    model = out / "models/dstg/seed-0"
    with DaskCluster(tmp_path, 2, *PRELOAD) as cluster:
        study = started(*arguments, "--out", str(out), "--on", str(cluster.file))
        wait_for((model / "checkpoints/step-10").is_dir)
        with distributed.Client(scheduler_file=str(cluster.file), set_as_default=False) as client:
            numbers = client.run(os.getpid)
            writer = cluster.writer_of(model).pid
            client.retire_workers([address for address, number in numbers.items() if number == writer])
        _, said = study.communicate(timeout=300)
        assert study.returncode == 0, said
    assert records(out) == records(alone)
    steps = [line["step"] for line in read_lines(model / "log.jsonl") if "gradient_norm" in line]
    assert steps == sorted(set(steps))


@pytest.mark.slow
def test_worker_may_die_in_measuring(cluster, studied, tmp_path):
    """The training of a model is finished; another worker looks inside it."""
    arguments, _ = studied
    words = (*arguments, "--models", "dstg", "--steps", "20", "--set", "all_analyses=true")
    here = tmp_path / "here"
    there = tmp_path / "there"
    assert whatwhere(*words, "--out", str(here)).returncode == 0
    study = started(*words, "--out", str(there), "--on", str(cluster.file))
    model = there / "models/dstg/seed-0"
    worker = cluster.writer_of(model)
    wait_for((model / "training.json").is_file)
    worker.kill()
    _, said = study.communicate(timeout=300)
    assert study.returncode == 0, said
    assert len(records(here)) > 500 and records(here) == records(there)


@pytest.mark.slow
def test_heads_are_the_same_whatever_worker_measures(cluster, studied, tmp_path):
    """Every record and array of `heads` is equal, in the same order, also where a worker dies."""
    _, alone = studied
    words = ("heads", str(alone / "models/dstg/seed-0"), "--windows", "20", "--ablate", "8", "--json", "--out")
    here = tmp_path / "here"
    there = tmp_path / "there"
    done = whatwhere(*words, str(here))
    assert done.returncode == 0, done.stderr
    spread = started(*words, str(there), "--on", str(cluster.file))
    wait_for(lambda: writer_of(there) is not None)
    psutil.Process(cluster.pids()[0]).kill()
    printed, said = spread.communicate(timeout=300)
    assert spread.returncode == 0 and "all 9 analyses" in said, said
    mine = json.loads(done.stdout)
    theirs = json.loads(printed)
    assert len(mine["records"]) > 300
    assert [{**r, "study": ""} for r in mine["records"]] == [{**r, "study": ""} for r in theirs["records"]]
    assert records(here) == records(there) and mine["left_out"] == theirs["left_out"]
    arrays = [{path.name: path.read_bytes() for path in (out / "arrays").iterdir()} for out in (here, there)]
    assert len(arrays[0]) > 2 and arrays[0] == arrays[1]


def test_heads_on_workers_need_a_folder(studied):
    _, alone = studied
    done = whatwhere("heads", str(alone / "models/dstg/seed-0"), "--on", "tcp://127.0.0.1:1")
    assert done.returncode == 2 and done.stderr.endswith("Give one by --out, or leave --on and WHATWHERE_ON out.\n"), (
        done.stderr
    )
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_command_without_workers_says_that_it_waits(studied, tmp_path):
    """The last worker had gone with its machine, and nothing was said."""
    pytest.importorskip("distributed")
    arguments, alone = studied
    out = tmp_path / "out"
    with DaskCluster(tmp_path, 1, *PRELOAD) as cluster:
        study = started(*arguments, "--out", str(out), "--on", str(cluster.file))
        wait_for((out / "models/dstg/seed-0/checkpoints/step-10").is_dir)
        end(cluster.workers[0])
        time.sleep(3 * SECONDS_BETWEEN_LOOKS)
        cluster.add_worker(*PRELOAD)
        _, said = study.communicate(timeout=300)
        assert study.returncode == 0 and f"No worker of {cluster.file} is left: waiting for one" in said, said
    assert records(out) == records(alone)


@pytest.mark.slow
def test_lost_scheduler_is_one_line(studied, tmp_path):
    pytest.importorskip("distributed")
    arguments, alone = studied
    out = tmp_path / "lost"
    for number in range(2):
        (tmp_path / str(number)).mkdir()
        with DaskCluster(tmp_path / str(number), 3, *PRELOAD) as cluster:
            study = started(*arguments, "--out", str(out), "--on", str(cluster.file))
            if number == 0:
                wait_for((out / "models/dstg/seed-0/checkpoints/step-10").is_dir)
                cluster.scheduler.kill()
            _, said = study.communicate(timeout=300)
            last = said.splitlines()[-1]
            assert study.returncode == (2, 0)[number], said
            assert number or ("is gone. Finished work and checkpoints stay" in last and "Traceback" not in said)
    assert records(out) == records(alone)


@pytest.mark.slow
def test_trials_are_the_same_on_workers(cluster, studied, tmp_path):
    _, alone = studied
    (tmp_path / "data/SST-2").mkdir(parents=True)
    for split in ("train", "dev"):
        rows = [f"{sentences(1, seed=i).strip()}\t{i % 2}" for i in range(24)]
        (tmp_path / f"data/SST-2/{split}.tsv").write_text("\n".join(["sentence\tlabel", *rows]) + "\n")
    tasks = ("--tasks", "sst-2", "--data", str(tmp_path / "data"), "--seeds", "2", "--rates", "1e-4")
    words = ("evaluate", "glue", str(alone / "models/dstg/seed-0"), *tasks)
    here = whatwhere(*words, "--out", str(tmp_path / "here"))
    there = whatwhere(*words, "--out", str(tmp_path / "there"), "--on", str(cluster.file))
    assert here.returncode == there.returncode == 0, here.stderr + there.stderr
    assert len(records(tmp_path / "here")) > 2 and records(tmp_path / "here") == records(tmp_path / "there")


@pytest.mark.slow
def test_worker_takes_the_scheme_of_each_command(cluster, studied, tmp_path):
    """A worker that had run one text of a scheme refused every other of that name; `heads` loaded none."""
    scheme = tmp_path / "kerple.py"
    for number in range(2):
        scheme.write_text(Path("examples/kerple.py").read_text(encoding="utf-8") + f"\n# text {number}\n")
        out = ("--out", str(tmp_path / f"out-{number}"), "--on", str(cluster.file))
        done = whatwhere(*studied[0], "--scheme", str(scheme), "--models", "kerple", "--steps", "3", *out)
        assert done.returncode == 0, done.stderr
    look = ("--scheme", str(scheme), "--windows", "12", "--out", f"{tmp_path}/heads", "--on", str(cluster.file))
    assert whatwhere("heads", f"{tmp_path}/out-1/models/kerple/seed-0", *look).returncode == 0


@pytest.mark.slow
def test_the_page_on_clusters_runs_as_printed(studied, tmp_path):
    """The commands of docs/how-to/cluster.md, but for pip, with the texts of a small study."""
    pytest.importorskip("distributed")
    arguments, alone = studied
    page = Path(__file__).parents[2] / "docs/how-to/cluster.md"
    (block,) = re.findall(r"```sh\n(.*?)```", page.read_text("utf-8"), flags=re.S)
    lines = [line.split("#")[0].replace("SHARED", str(tmp_path)).split() for line in block.splitlines()]
    servers = []
    try:
        for program, *words in lines:
            if program == "dask":
                words = ["2" if word == "8" else word for word in words]
                servers.append(start_dask(*words, log=tmp_path / f"{words[0]}.log"))
                wait_for((tmp_path / "scheduler.json").is_file)
            elif program == "whatwhere":
                done = whatwhere(*words, *arguments[1:])
                assert done.returncode == 0 and "cluster: workers" in done.stderr, done.stderr
    finally:
        for server in servers:
            end(server)
    assert len(servers) == 2 and records(tmp_path / "study") == records(alone)
