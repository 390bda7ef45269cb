"""What a newcomer reads is true: every command and every Python block of tutorial, how-to pages and of the pages on
longer texts, evaluation and long runs works as it stands, in order, in a fresh folder.

The blocks of method.md and extending.md are held to the source by test_docs.py, `python examples/theory` by
tests/theory, those of export.md by tests/models/test_export.py. Not run: what sets up the environment that the
tests have, what made the results (hours), and the SLURM script of scale.md: their verbs, options and files are checked.
"""

import lzma
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest
import yaml
from cli_runner import environment, sentences, whatwhere
from made_tasks import made_up, write, write_holmes, write_pairs, write_vectors
from made_trees import write_trees
from run_files import unexplained

from whatwhere.cli.verbs import program
from whatwhere.training.pretrain_settings import PretrainConfig

ROOT = Path(__file__).parents[1]
HOW_TO = ["verbs", "corpus", "scheme", "finetune", "page", "analysis", "elsewhere", "machine"]
LATER = ["extrapolation", "evaluation", "scale"]
EVALUATIONS = ["glue", "squad", "grammar", "holmes", "mteb"]
EVALUATED = [f"{name}.yaml" for name in ("glue", "squad", "linguistic", "holmes", "mteb", "length")]
PAGES = ["docs/tutorial.md", *(f"docs/how-to/{name}.md" for name in HOW_TO)]
PAGES += [f"docs/{name}.md" for name in LATER] + [f"docs/evaluation/{name}.md" for name in EVALUATIONS]
ALL = [str(path.relative_to(ROOT)) for path in [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]]
HELD = ["docs/method.md", "docs/extending.md", "docs/how-to/export.md"]  # by other tests
VERBS = "docs/how-to/verbs.md"
BLOCK = re.compile(
    r"^(?P<skip> *<!-- not run here: [^\n]+ -->\n)?(?P<indent> *)```(?P<kind>sh|python|yaml)(?P<about>[^\n]*)\n"
    r"(?P<body>.*?)^(?P=indent)```$",
    re.M | re.S,
)
# Fewer steps, layers, texts and words than a user has.
SHORT = [
    *("document=blank-line", "length=64", "training.model.num_hidden_layers=2", "training.batch_size=16"),
    *("probe_windows=10", "ablation_windows=8", "texts=1", "probe_splits=2"),
]
FEWER = {
    "--steps": "8",
    "--seeds": "1",
    "--documents": "10",
    "--windows": "10",
    "--ablate": "8",
    "--to": "160",
    "--pooling": "mean",
}
# mkdocs in a process that reaches nobody.
OFFLINE = """
import runpy, sys
def refuse(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo"):
        raise OSError(f"{event} {arguments}, where the site is built without a network")
sys.addaudithook(refuse)
runpy.run_module("mkdocs", run_name="__main__", alter_sys=True)
"""
TINY = {"size": "tiny", "steps": 2, "batch_size": 4, "length": 32, "workers": 1, "model": {"num_hidden_layers": 1}}


def blocks(page: str) -> list[tuple[str, str, str, bool]]:
    """(language, what stands beside it, text, whether it runs here) of each block of a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [(m["kind"], m["about"].strip(), dedent(m["body"]), not m["skip"]) for m in BLOCK.finditer(text)]


def commands(body: str) -> list[list[str]]:
    """The words of each of our commands in a block, without what makes the environment."""
    lines = [re.sub(r"\s+#.*", "", line).strip().removesuffix(" &") for line in body.splitlines()]
    ours = (re.match(r"(?:\.venv/bin/|.*-m )?whatwhere (.*)", line) for line in lines)
    return [shlex.split(line[1]) for line in ours if line]


def shortened(words: list[str]) -> list[str]:
    """The same command on a small text for a few steps."""
    verb, *rest = words
    rest = [FEWER.get(before, word) for before, word in zip(["", *rest], rest, strict=False)]

    def also(option: str, *values: str) -> None:
        if option == "--set" or option not in rest:
            rest.extend(word for value in values for word in (option, value))

    if "--config" in rest or "SHARED" in rest:  # which has small settings here
        return [verb, *rest]
    if verb in ("study", "pretrain"):
        also("--corpus", "my-texts")
        also("--steps", "8")
    if verb == "study":
        also("--set", *SHORT, *(["all_analyses=false"] if "--scheme" in rest else []))
        also("--models", "dstg,ap")
    if verb == "pretrain":
        also("--set", "document=blank-line", "model.num_hidden_layers=2", "batch_size=16")
    if verb == "geometry":  # one file here, where a user has many
        also("--set", "document=blank-line", "groups=4", "min_support=50")
    if verb == "finetune":
        also("--steps", "4")
    if verb == "evaluate" and rest[0] == "length":
        also("--methods", "cyclic")
        also("--documents", "10")
    elif verb == "evaluate" and rest[0] == "mteb":
        also("--tasks", "STSBenchmark-local,MR-local")
        also("--steps", "2")
    elif verb == "evaluate" and rest[0] != "all":
        also("--seeds", "1")
    return [verb, *rest]


def shell(body: str, folder: Path) -> None:
    """Run a block that is more than our commands, on two processes where it says four, without GNU time."""
    body = body.replace("/usr/bin/time -v ", "").replace("--nproc-per-node 4", "--nproc-per-node 2")
    body = body.replace("torchrun ", "python -m torch.distributed.run ").replace("RUN", f"RUN-{len(body)}")
    body = body.replace("DATA/", f"{folder}/DATA/")
    path = {"PATH": f"{Path(sys.executable).parent}:{environment()['PATH']}"}
    done = subprocess.run(
        ["bash", "-ec", body], cwd=folder, env=environment() | path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (body, done.stderr[-6000:])  # torchrun's own report of a failure is long


def furnish(folder: Path) -> None:
    """What the pages take for granted: an own text, labelled tables, GLUE's files, the examples."""
    (folder / "my-texts").mkdir()
    (folder / "my-texts/a.txt").write_text(sentences(1500), encoding="utf-8")
    shutil.copytree(ROOT / "examples", folder / "examples")
    (folder / "BOOKS").mkdir()
    for i in range(20):
        (folder / f"BOOKS/{i}.txt").write_text(sentences(60, seed=i).replace("\n\n", "\n"), encoding="utf-8")
    for name, rows in (("reviews.tsv", 80), ("reviews-dev.tsv", 20)):
        rated = [f"{text.splitlines()[0]}\t{i % 2}" for i, text in enumerate(sentences(rows, seed=rows).split("\n\n"))]
        (folder / name).write_text("\n".join(["sentence\tlabel", *rated]) + "\n", encoding="utf-8")
    for split, n in (("train", 24), ("dev", 12)):
        for task, header in (("RTE", "index\tsentence1\tsentence2\tlabel\n"), ("CoLA", "")):
            row = "{0}\tone two\tthree\t{1}\n" if header else "x\t{1}\t\tone two\n"
            path = folder / "GLUE-FOLDER" / task / f"{split}.tsv"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(header + "".join(row.format(i, i % 2) for i in range(n)), encoding="utf-8")
    write(folder / "SQUAD-FOLDER", made_up(100, 0))
    write_vectors(write_pairs(write_trees(folder / "FOLDER"), 40))
    write_holmes(folder / "holmes-evaluation/data")
    write_trees(folder / "DATA-FOLDER")
    for name, documents in (("wikipedia-en/a.txt.xz", 200), ("books-pd/b.txt.xz", 100), ("text/c.txt.xz", 200)):
        path = folder / "DATA" / name
        path.parent.mkdir(parents=True)
        path.write_bytes(lzma.compress(sentences(documents, seed=documents).encode()))
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz."]
    vocabulary = folder / "DATA/vocab/bert-base-uncased-vocab.txt"
    vocabulary.parent.mkdir()
    vocabulary.write_text("\n".join([*words, *(f"##{letter}" for letter in words[5:-1])]) + "\n")
    small = {key: value for key, value in TINY.items() if key in ("batch_size", "model")}
    study = {"models": ["dstg", "rope"], "corpus": "my-texts", "document": "blank-line", "all_analyses": False}
    study |= {"steps": 2, "length": 32, "probe_windows": 10, "probe_splits": 2, "ablation_windows": 8, "texts": 1}
    (folder / "study.yaml").write_text(yaml.safe_dump(study | {"training": small}))
    (folder / "paper.yaml").write_text(yaml.safe_dump(paper() | TINY | {"held_out": 0.2}))


def paper() -> dict[str, object]:
    """The configuration that the page on long runs prints."""
    (found,) = [body for kind, _, body, _ in blocks("docs/scale.md") if kind == "yaml" and "# paper.yaml" in body]
    return dict(yaml.safe_load(found))


def eight_machines(code: str) -> str:
    """The block that counts by parts as each of the machines that the page on long runs has would run it."""
    first, last = code.split("counts = ")
    of_each = [first.replace("(2, 8)", f"({k}, 8)").replace("counts-3", f"counts-{k + 1}") for k in range(8)]
    return "".join([*of_each, "counts = ", last])


@pytest.mark.parametrize("page", ALL)
def test_every_code_block_is_run_or_checked(page):
    """Every block is run or held to what it is about."""
    text = (ROOT / page).read_text("utf-8")
    found = blocks(page)
    kinds = [kind for kind in re.findall(r"^ *```(\w*)", text, flags=re.M) if kind]
    assert sorted(kind for kind in kinds if kind != "text") == sorted(kind for kind, *_ in found)
    if page in (*PAGES, *HELD):
        return
    for kind, _, body, runs in found:
        assert kind == "sh" or not runs
        others = [line.split("#")[0].split() for line in body.splitlines() if not commands(line)]
        for other, what, *rest in others if runs else []:
            if other == "make":
                assert f"\n{what}:" in (ROOT / "Makefile").read_text("utf-8"), what
            else:
                run = f"{rest[0]}/__main__.py" if what == "-m" else what
                places = (ROOT, (ROOT / page).parent)
                assert other == "python" and any((place / run).exists() for place in places), (other, run)


def test_the_long_runs_configuration_is_valid():
    """The configuration of the page on long runs is one."""
    config = PretrainConfig.parse(paper())
    assert (config.preset, config.size, config.length, config.held_out) == ("dstg", "paper", 512, 0.001)


def python(code: str, folder: Path) -> str:
    """What a new process prints that runs a block."""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (code, done.stderr[-1500:])
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Where the pages are followed, one after the other."""
    found = tmp_path_factory.mktemp("site")
    furnish(found)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_run_in_order(page, folder, monkeypatch):
    """Commands of a page end without an error, and its Python prints something."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr("whatwhere.study.evaluation_run.parallel_jobs", lambda: 1)  # no process for each of eight
    run = 0
    for kind, about, body, runs in blocks(page):
        if title := re.search(r'title="([\w.]+)"', about):
            Path(title[1]).write_text(body, encoding="utf-8")
        elif kind == "python" and runs:
            if "part=(2, 8)" in body:
                assert whatwhere("windows", "--config", "paper.yaml", "--out", "RUN").returncode == 0
                body = eight_machines(body)
            printed = python(body, folder)
            assert printed and "Empty DataFrame" not in printed and "Series([]" not in printed, (body, printed)
            run += 1
        elif kind == "sh" and runs and re.search(r"^(torchrun|.*python -c)", body, re.M):
            shell(body, folder)
            run += 1
            continue
        for words in commands(body) if kind == "sh" and runs else []:
            done = whatwhere(*shortened(words))
            assert done.returncode == 0, (words, done.stderr[-1500:])
            run += 1
    assert run
    for name in EVALUATED if page.startswith("docs/evaluation") else ():  # the page on files of a run tells all of them
        for settings in folder.rglob(name):
            assert not unexplained(settings.parent, "An evaluation")
    if page == VERBS:
        opened = (
            "from transformers import AutoModel; import whatwhere; print(type(AutoModel.from_pretrained('verbs/dstg')))"
        )
        assert "whatwhere.encoder.model.Encoder'" in python(opened, folder)


@pytest.mark.parametrize("page", ALL)
def test_every_option_that_a_page_writes_exists(page):
    for kind, _, body, _ in blocks(page):
        for words in commands(body.replace("\\\n", " ")) if kind != "python" else []:
            assert exists(words), words


def exists(words: list[str]) -> bool:
    """Whether the program has the verb and each option of a command."""
    command = program()
    rest = list(words)
    while rest and rest[0] in getattr(command, "commands", {}):
        command = command.commands[rest.pop(0)]
    if hasattr(command, "commands"):
        return set(rest) <= {"--version", "--help"}
    known = {option for p in command.params for option in (*p.opts, *p.secondary_opts)} | {"--help"}
    return {word.split("=")[0] for word in rest if word.startswith("--")} <= known


def test_verbs_of_the_table_of_the_readme_exist():
    table = re.findall(r"^\| [^|]+ \| (`[^|]+) \|", (ROOT / "README.md").read_text("utf-8"), flags=re.M)
    named = [shlex.split(command) for row in table for command in re.findall(r"`([^`]+)`", row)]
    assert len(named) > 15
    for words in named:
        assert exists(words) or exists(["evaluate", *words]), words  # `evaluate glue`, `squad`, ...


def test_the_page_of_every_verb_has_every_verb():
    tried = {words[0] for kind, _, body, _ in blocks(VERBS) if kind == "sh" for words in commands(body)}
    assert tried == set(program().commands)
    drawn = (ROOT / "docs/figures/verbs.svg").read_text("utf-8")
    assert sorted(re.findall(r'monospace">(\w+)<', drawn)) == sorted(tried)


def test_readme_names_the_set_up_commands():
    """README names the two commands that do all set up."""
    lines = [line.split("#")[0].strip() for kind, _, body, _ in blocks("README.md") for line in body.splitlines()]
    assert [line for line in lines if line.startswith("make ")] == ["make demo", "make test"]
    makefile = (ROOT / "Makefile").read_text()
    assert "\ndemo:" in makefile and "\ntest:" in makefile and "whatwhere study --minutes 9 --out runs/demo" in makefile


def test_python_of_the_page_of_every_verb_runs(capsys):
    (example,) = [body for kind, _, body, _ in blocks(VERBS) if kind == "python"]
    exec(compile(example, VERBS, "exec"), {})
    assert 0 < float(capsys.readouterr().out) <= 1


@pytest.mark.long
@pytest.mark.slow  # `make docs` does it, too
def test_the_site_builds_and_no_link_is_dead(tmp_path):
    pytest.importorskip("mkdocs", reason="the site needs the extra docs")
    done = subprocess.run(
        [sys.executable, "-c", OFFLINE, "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        env=environment() | {"NO_MKDOCS_2_WARNING": "1", "PYTHONWARNINGS": "ignore", "PYTHONDONTWRITEBYTECODE": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    pages = {path: path.read_text("utf-8") for path in (tmp_path / "site").rglob("*.html")}
    assert len(pages) > 25 and not list((tmp_path / "site").rglob("__pycache__"))
    for path, text in pages.items():  # a page opens from a folder and asks nobody
        assert not re.findall(r'(?:src|href)="(https?://[^"]*\.(?:js|css|woff2?))"', text), path
