"""The command line: wrong input is one line on stderr and status 2, never a traceback; results also as JSON."""

import json
import re
import shlex
import shutil
import tomllib
from collections import Counter
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from cli_runner import sentences, settings, whatwhere
from made_study import make_study
from run_files import missing, unexplained

from whatwhere import reference
from whatwhere.cli.measure import _probe_text
from whatwhere.encoder import EncoderForMaskedLM
from whatwhere.records.record import Record, write_records
from whatwhere.run.files import read_object
from whatwhere.run.folder import RunFolder
from whatwhere.study.heads_run import PAGE_FACTS, HeadsConfig, _options_of
from whatwhere.study.results import command_of


def refused(*arguments: str) -> str:
    """Run what must be refused; returns its one line."""
    done = whatwhere(*arguments)
    assert done.returncode == 2, (done.stdout, done.stderr)
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    assert len(lines) == 1 and lines[0].startswith("whatwhere: "), done.stderr
    return lines[0]


@pytest.fixture(scope="module")
def trained(corpus_file, tmp_path_factory):
    out = tmp_path_factory.mktemp("cli") / "dstg"
    done = whatwhere("pretrain", "--out", str(out), "--corpus", str(corpus_file), "--steps", "3", "--json", *settings())
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["steps"] == 3 and summary["tokens"] == 3 * 8 * 32 and summary["preset"] == "dstg"
    return out


# One process each costs seconds, so only what the command line itself decides is run here; the rest is tested where it
# is decided.
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("stduy",), "No such command 'stduy'. Did you mean 'study'? See whatwhere --help."),
        (("evaluate",), "Missing command. See whatwhere evaluate --help."),
        (("evaluate", "glue", "reference", "--zebra"), "No such option: --zebra. See whatwhere evaluate glue --help."),
        (("predict",), "Missing argument 'model'. A model folder: of pretrain,"),
        (("pretrain", "--out", "OUT", "--preset", "dsgt", "--steps", "1"), "Unknown preset 'dsgt'. Did you mean dstg"),
        (("pretrain", "--out", "OUT", "--corpus", "nowhere.txt", "--steps", "1"), "nowhere.txt"),
        (("study", "--out", "OUT", "--models", "dstg,tupe-z"), "Unknown preset 'tupe-z'"),
        (
            ("study", "--out", "OUT", "--steps", "3", "--minutes", "2"),
            "Give steps or minutes, one of them; got steps=3, minutes=2.0",
        ),
        (
            ("study", "--out", "OUT", "--match", "flops"),
            "--match must be 'parameters' or 'operations'; got 'flops'.",
        ),
        (("study", "--out", "OUT", "--set", "models=3"), "models must be a list; got 3."),
        (("study", "--out", "OUT", "--set", "variants=3"), "variants must be a dictionary; got 3."),
        (("evaluate", "glue", "reference", "--out", "OUT", "--seeds", "0"), "--seeds must be at least 1; got '0'. See"),
        (("pretrain", "--out", "OUT", "--steps", "many"), "--steps must be a whole number; got 'many'. See"),
        (("explain", "dsgt"), "Unknown preset 'dsgt'. Did you mean dstg"),
        (("explain", "r/tow"), "There is no folder r/tow. Give the folder of a trained model, or a preset."),
        (("explain", "."), "config.json is missing"),
        (
            ("explain", "ap", "--set", "model.absolute=mds", "--set", "model.table_file=none.npy"),
            "No position table at none.npy",
        ),
        (
            ("pretrain", "--out", "OUT", "--preset", "ap", "--set", "model.table_start=none.npy"),
            "No position table at none.npy",
        ),
        (("explain", "dstg", "--set", "model.preset=rope"), "model.preset cannot be set"),
        (("spectra", "none.npy"), "No position table at none.npy"),
        (("probe", "nowhere"), "nowhere is no folder here, and the Hub returns no such model"),
        (
            ("heads", "runs/nowhere", "--ablate", "3"),
            "runs/nowhere is no folder here, and the Hub returns no such model",
        ),
        (("probe", "nowhere", "--splits", "0"), "--splits must be at least 2; got '0'"),
        (
            ("geometry", "--corpus", "a=python-docs", "--corpus", "a=synthetic:repeat", "--out", "OUT"),
            "Two corpora are named 'a'. Give each a name of its own",
        ),
        (("attention", "reference", "--text", "A word.", "--out", "/proc/x.html"), "/proc/x.html is not there, or no"),
        (("pretrain", "--out", __file__), "test_cli.py is a file, where the folder of a run is needed"),
        (
            ("pretrain", "--out", f"{__file__}/run", "--steps", "1"),
            f"{__file__} is a file, so {__file__}/run cannot be",
        ),
    ],
)
def test_wrong_words_are_refused_in_one_line(arguments, message, tmp_path):
    assert message in refused(*(str(tmp_path / "out") if a == "OUT" else a for a in arguments))
    assert not [p for p in (tmp_path / "out").rglob("*") if p.is_file() and p.suffix == ".safetensors"]


@pytest.mark.parametrize(
    ("error", "processes", "message"),
    [
        (
            MemoryError("Unable to allocate 72.8 TiB"),
            1,
            "There is not enough memory (Unable to allocate 72.8 TiB). Ask",
        ),
        (
            RuntimeError("[gloo] Connection closed by peer"),
            2,
            "Another process of the launcher has ended; its own line",
        ),
    ],
)
def test_what_the_machine_lacks_is_one_line(error, processes, message, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", str(processes))
    monkeypatch.setattr("whatwhere.run.verify.verify", mock.Mock(side_effect=error))
    assert message in refused("verify", "runs")


def test_other_errors_of_a_program_are_not_hidden(monkeypatch):
    monkeypatch.setattr("whatwhere.run.verify.verify", mock.Mock(side_effect=RuntimeError("closed by peer")))
    assert "RuntimeError: closed by peer" in whatwhere("verify", "runs").stderr


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    assert "is not empty and holds no study run" in refused("study", "--out", str(tmp_path))
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]


def test_windows_are_not_added_to_a_model(tmp_path):
    """A corpus folder was made inside the model."""
    shutil.copytree(reference(), tmp_path / "model")
    done = whatwhere("windows", "--corpus", "python-docs", "--out", str(tmp_path / "model"))
    assert done.returncode == 2 and "holds a model run, and windows are made before a run begins" in done.stderr
    assert not (tmp_path / "model/corpus").exists()


def test_windows_are_not_put_beside_foreign_files(tmp_path):
    """They were made there, and no training could begin in the folder."""
    (tmp_path / "important.txt").write_text("mine")
    done = whatwhere("windows", "--corpus", "python-docs", "--out", str(tmp_path))
    assert done.returncode == 2 and "is not empty and holds no study run" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["important.txt"]


def test_a_training_takes_windows_made_before(tmp_path):
    """Windows are made first and a training takes them."""
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat and the dog lay by the door\n" * 300)
    words = ["--out", str(tmp_path / "run"), "--corpus", str(text), "--length", "16", "--tokenizer", "words"]
    made = whatwhere("windows", *words)
    assert "windows to train on" in made.stdout, made.stderr
    first = (tmp_path / "run/corpus/windows.json").stat().st_mtime_ns
    small = ["--steps", "1", "--set", "batch_size=4", "--set", "model.num_hidden_layers=1"]
    pretrained = whatwhere("pretrain", *words, *small)
    hidden = "'This is the first [MASK] of the list.'"
    assert pretrained.returncode == 0, pretrained.stderr
    assert pretrained.stdout.endswith(f"\nNext: whatwhere predict {tmp_path / 'run'} --text {hidden}\n")
    assert (tmp_path / "run/corpus/windows.json").stat().st_mtime_ns == first
    longer = refused("pretrain", "--out", str(tmp_path / "run"), "--steps", "2")  # without its other settings
    assert f"{tmp_path / 'run'} was started with steps=1, this command has steps=2. Run it with only `--out" in longer


def test_a_truncated_model_is_refused(trained, tmp_path):
    broken = shutil.copytree(trained, tmp_path / "broken", ignore=shutil.ignore_patterns("checkpoints"))
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    assert "model.safetensors is not as it was written" in refused("probe", str(broken))
    (broken / "manifest.jsonl").unlink()
    assert "model.safetensors does not open" in refused("probe", str(broken), "--corpus", str(broken / "corpus"))


@pytest.mark.parametrize("words", [["--help"], ["evaluate", "--help"]])
def test_list_of_verbs_cuts_no_sentence(words):
    """What a verb does was cut after 45 characters: "Tokenise a text into windows, as `pretrain` and `study` do..."."""
    done = whatwhere(*words)
    assert done.returncode == 0 and "..." not in done.stdout.partition("Commands:")[2], done.stdout


def test_help_of_every_verb_names_its_options():
    from typer.testing import CliRunner

    from whatwhere.cli.verbs import app

    runner = CliRunner()
    for command in app.registered_commands:
        name = command.name or command.callback.__name__
        result = runner.invoke(app, [name, "--help"])
        assert result.exit_code == 0 and "--json" in result.output, name
        shown = " ".join(result.output.split())
        for option in {"finetune": ("--data", "--dev", "--out"), "pretrain": ("--out",), "geometry": ("--out",)}.get(
            name, ()
        ):
            assert "[required" in shown.split(f" {option} ", 1)[1].split(" --", 1)[0], (name, option)
        if name in ("study", "pretrain", "heads", "probe", "geometry"):
            assert all(f" {option} " in shown for option in ("--corpus", "--field")), name
        if name in ("study", "pretrain", "finetune"):
            assert " --length " in shown, name


def test_every_option_has_a_help_text():
    """Every option has its help in the docstring of its verb or beside its type."""
    from whatwhere.cli.verbs import program

    verbs = program().commands
    verbs = {**verbs, **verbs["evaluate"].commands}
    assert not [(name, p.name) for name, verb in verbs.items() for p in verb.params if not p.help]


def test_without_a_verb_help_is_printed():
    """Without a verb the help is printed as it is."""
    done = whatwhere()
    assert done.returncode == 0 and done.stderr == ""
    verbs = [line.split()[0] for line in done.stdout.splitlines() if line.startswith("  ") and line.strip()]
    assert {"study", "pretrain", "finetune", "probe", "heads", "report", "doctor"} <= set(verbs)


def test_doctor_and_presets_print_one_object(trained):
    facts = json.loads(whatwhere("doctor", "--json").stdout)
    assert facts["backends"]["eager"] == facts["backends"]["sdpa"] == "works"
    flex = facts["backends"]["flex_attention"]
    assert (
        flex.startswith("works without training; in training: flex_attention has no backward pass on a CPU")
        or flex == "works"
    )
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = {re.split("[><=]", each)[0] for name in ("trackers", "onnx", "sentence", "mteb") for each in extras[name]}
    assert set(facts["extras"]) == wanted
    assert facts["threads"] >= 1 and facts["wait_policy"]
    assert facts["disk_free_bytes"] > 0 and facts["versions"]["torch"].startswith("2.")
    rows = {row["name"]: row for row in json.loads(whatwhere("presets", "--json").stdout)["presets"]}
    assert rows["dstg"]["streams"] == [48, 720] and rows["dstg"]["terms"] == ["semantic", "absolute", "relative"]
    assert rows["dstg"]["longest"] == 512 and rows["rope"]["longest"] is None
    # 6 % more parameters and about a tenth more operations than `ap` of the same semantic width is DSTG's own
    # limitation.
    assert (
        rows["dstg"]["parameters"] > rows["ap"]["parameters"] and rows["dstg"]["operations"] > rows["ap"]["operations"]
    )


def test_explain_takes_presets_files_and_models(trained):
    facts = [
        json.loads(whatwhere("explain", str(what), "--json").stdout) for what in (trained, trained / "pretrain.yaml")
    ]
    assert facts[0]["config"]["num_hidden_layers"] == facts[1]["config"]["num_hidden_layers"] == 2
    weights = EncoderForMaskedLM.from_pretrained(trained)
    assert facts[0]["parameters"]["total"] == sum(p.numel() for p in weights.parameters())
    assert json.loads((trained / "training.json").read_text())["operations"] == pytest.approx(
        facts[1]["operations"]["total"], rel=0.02
    )
    assert facts[0]["labelled"] == facts[1]["labelled"] == 0.2
    done = whatwhere("explain", "tupe-r", "--size", "small", "--set", "model.block=neobert")
    assert "reset[t5(j - i)]" in done.stdout and "hidden_size              240" in done.stdout, done.stdout
    done = whatwhere("explain", "rope", str(trained), "--json")
    assert [one["preset"] for one in json.loads(done.stdout)["encoders"]] == ["rope", facts[0]["preset"]]


def test_explain_counts_with_the_mask_rate_of_training(trained, tmp_path):
    """The share of predicted tokens is that of pretrain.yaml, else the recipe's; a damaged one is refused."""
    folder = tmp_path / "model"
    folder.mkdir()
    shutil.copy(trained / "config.json", folder)
    for text, share in (("mask_rate: 0.37", 0.37), (None, 0.2)):
        (folder / "pretrain.yaml").unlink(missing_ok=True)
        if text is not None:
            (folder / "pretrain.yaml").write_text(text, encoding="utf-8")
        assert json.loads(whatwhere("explain", str(folder), "--json").stdout)["labelled"] == share
    (folder / "pretrain.yaml").write_text("mask_rate: most", encoding="utf-8")
    assert "mask_rate must lie between 0 and 1; got 'most'" in refused("explain", str(folder))
    assert json.loads(whatwhere("explain", "reference", "--json").stdout)["operations"]["total"] == 2594816


def test_explain_counts_the_texts_of_training(trained, tmp_path):
    """It counted the longest text that the position table allows, whatever the model was trained on."""
    folder = tmp_path / "model"
    folder.mkdir()
    shutil.copy(trained / "config.json", folder)
    (folder / "pretrain.yaml").write_text("length: 24", encoding="utf-8")
    assert json.loads(whatwhere("explain", str(folder), "--json").stdout)["length"] == 24


def test_language_is_asked_for_in_words():
    """The message held a regular expression."""
    words = "language must be two or three small letters, such as en (ISO 639); got 'english'"
    assert words in refused("pretrain", "--set", "language=english", "--out", "none")


@pytest.mark.whole
def test_spectra_and_probe_read_a_trained_model(trained):
    done = whatwhere("spectra", str(trained), "--json")
    shares = [r["value"] for r in json.loads(done.stdout)["records"] if r["metric"] == "pca.share"]
    assert 0.99 < sum(shares) <= 1.0 + 1e-9  # 8 dimensions, all listed
    out = trained.parent / "spectra"
    done = whatwhere("spectra", str(trained), "--words", "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("positions") and "\nwords" in done.stdout and (out / "report.html").is_file()
    done = whatwhere("probe", str(trained), "--corpus", str(trained / "corpus"), "--windows", "20", "--json")
    assert done.returncode == 0, done.stderr
    found = {(r["metric"], r["part"], r["layer"]) for r in json.loads(done.stdout)["records"]}
    assert {("r2.token", part, 2) for part in ("all", "position", "semantic")} <= found
    done = whatwhere("probe", str(trained), "--windows", "20", "--splits", "2")  # finds its windows by itself
    learned, _, sentence, empty, heading, *rows, untrained, few, read = done.stdout.splitlines()
    assert untrained == "No gradient reaches the position stream after layer 2: the first line leaves it out."
    assert few == "Under 20 documents an interval tells how random splits of them differ, no more."
    assert "has not learned more than how often each token occurs" in learned
    assert re.match(r"A token's position can be read (best )?from the .*R² -?\d\.\d\d", sentence)
    assert empty == "" and heading.split() == ["layer", "part", "token", "segment", "intra"]
    assert [row.split()[:2] for row in rows] == [[str(i), p] for i in range(3) for p in ("all", "position", "semantic")]
    assert re.fullmatch(r"read: 20 windows of 32 tokens, of \d+ documents? of corpus.txt", read)


@pytest.mark.whole
def test_options_that_resume_can_be_typed(tmp_path):
    """`spectra` and `geometry` named keys, such as `corpora=['a']`; --set takes what is no option."""
    tables = [str(tmp_path / name) for name in ("a.npy", "b.npy")]
    for number, path in enumerate(tables):
        np.save(path, np.random.default_rng(number).normal(size=(16, 8)))
    out = ("--out", str(tmp_path / "out"))
    assert whatwhere("spectra", tables[0], *out).returncode == 0
    assert "Leave `--words` out to resume, or choose another `--out`." in refused("spectra", tables[0], "--words", *out)
    assert f"Give `{tables[0]}` to resume" in refused("spectra", tables[1], *out)
    texts = [str(tmp_path / name) for name in ("a.txt", "b.txt")]
    for number, path in enumerate(texts):
        Path(path).write_text(sentences(120, number), encoding="utf-8")
    few = ("--set", "min_support=5", "--positions", "8", "--no-intervals", "--no-smacof", "--tokenizer", "words")
    out = ("--out", str(tmp_path / "measured"), *few)
    done = whatwhere("geometry", "--corpus", texts[0], "--set", "document=line", *out)
    assert done.returncode == 0, done.stderr
    line = refused("geometry", "--corpus", texts[1], "--set", "document=line", *out)
    assert f"Give `--corpus {texts[0]}` to resume" in line
    assert "Give `--set 'document=\"line\"'` to resume" in refused("geometry", "--corpus", texts[0], *out)


def test_position_below_chance_is_read_nowhere():
    """An untrained model's R² of -0.03 was called the best of what can be read."""
    values = {"r2.token": -0.03, "r2.token.chance": 0.01}
    records = [Record("s", "m", name, value, layer=0, part="all") for name, value in values.items()]
    records += [Record("s", "m", f"probe.{name}", 5.0) for name in ("documents", "windows", "length")]
    for value, said in ((-0.03, "is read nowhere: R² is -0.03 at best"), (0.4, "can be read best from the state")):
        records[0] = replace(records[0], value=value)
        assert f"A token's position {said}" in _probe_text(records, "a text", 0)


def test_the_sentence_of_probes_leaves_out_untrained_outputs():
    """The first line quoted the last position stream of dstg, on which no verdict rests."""
    values = {("position", 0): 0.5, ("semantic", 0): 0.2, ("position", 1): 0.9, ("semantic", 1): 0.3, ("all", 1): 0.9}
    records = [Record("s", "m", "r2.token", value, layer=layer, part=part) for (part, layer), value in values.items()]
    records.append(Record("s", "m", "r2.token.chance", 0.01, layer=0, part="all"))
    records += [Record("s", "m", f"probe.{name}", 5.0) for name in ("documents", "windows", "length")]
    said = _probe_text(records, "a text", 0)
    assert "from the position stream best in layer 0 (R² 0.50), from the semantic stream after the last, 1" in said
    assert "No gradient reaches the position stream after layer 1" in said and "0.90" in said
    assert "R² 0.90" in _probe_text(records, "a text", 1).splitlines()[0]


@pytest.mark.whole
def test_claims_are_counts_by_origin_and_rows_by_verdict(tmp_path):
    study = str(make_study(tmp_path / "study"))
    ledger = json.loads(whatwhere("claims", study, "--json").stdout)
    assert {claim["kind"] for claim in ledger} == {"empirical", "corpus"}
    facts = json.loads(whatwhere("claims", study, "--arithmetic", "--json").stdout)
    assert {claim["kind"] for claim in facts} == {"analytic"} and all(claim["always"] for claim in facts)
    told = whatwhere("claims", study).stdout
    first, *lines = told.partition("\n\n")[0].splitlines()
    origins = ("printed number", "printed sentence", "rule of our own")
    assert first.startswith(f"{len(ledger)} claims ") and first.endswith("  ".join(("all", *origins)))
    counts = Counter(claim["verdict"] for claim in ledger)
    assert len(lines) == len(counts)
    for line in lines:
        verdict, numbers = re.fullmatch(r"([a-z ]+?) +([\d ]+)", line).groups()
        of = Counter(claim["origin"] for claim in ledger if claim["verdict"] == verdict)
        assert [int(n) for n in numbers.split()] == [counts[verdict], *(of[origin] for origin in origins)]
    lines = told.partition("\n\n")[2].splitlines()
    headings = [line for line in lines if line and not line.startswith(" ")]
    assert len(set(headings)) == len(headings)
    assert set(headings) <= {*counts, "not measured", "reference study"} and headings[-1] == "reference study"
    rows = [line.split()[0] for line in lines if re.match("  [a-z]", line)]
    assert sorted(rows) == sorted(claim["id"] for claim in ledger if claim["value"] is not None)
    # Below each: what the reference study of this size and the paper have.
    kept = next(claim for claim in ledger if claim["id"] == "semantic-stream-little-position")
    reference = kept["reference"]
    assert reference.keys() == {"study", "tokens", "seeds", "value", "low", "high", "verdict", "so_far"}
    below = lines[1 + next(i for i, line in enumerate(lines) if line.startswith("  semantic-stream-little-position "))]
    interval = f"[{reference['low']:.3f}, {reference['high']:.3f}]"
    assert below.strip().startswith(f"reference study: {reference['value']:.3f} {interval} (")
    assert below.endswith("; paper: 0.44")
    lacking = sum(int(line.split()[0]) for line in lines if line.startswith("  ") and line.split()[0].isdigit())
    assert lacking == sum(claim["value"] is None for claim in ledger)


def test_claims_of_an_unfinished_study_say_so(tmp_path):
    """A study extended to three seeds and stopped gave verdicts on one seed without a word."""
    with RunFolder.open(tmp_path, "study") as run:
        run.write("study.yaml", {"models": ["dstg"], "seeds": 3})
        write_records(tmp_path / "records.parquet", [Record("s", "dstg", "accuracy", 0.5, seed=0)])
        run.mark_done("results", inputs={"models": ["dstg/0"]})
    done = whatwhere("claims", str(tmp_path))
    said = "The study is not finished (0 of 3 models are trained): the verdicts are about models that were measured"
    assert done.returncode == 0 and done.stdout.startswith(said), done.stderr
    with RunFolder.open(tmp_path, "study") as run:
        run.write("study.yaml", {"models": ["dstg"], "seeds": 1})
    assert "not finished" not in whatwhere("claims", str(tmp_path)).stdout


def test_missing_metrics_are_named_in_words(tmp_path):
    """The reasons of claims that are not measured named metrics by their keys alone: "no ablation.remove of dstg"."""
    records = [Record("s", "dstg", "accuracy", 0.5, seed=0)]
    write_records(tmp_path / "records.parquet", records)
    done = whatwhere("claims", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "no rise of loss (ablation.remove) of dstg, seed 0, part semantic" in done.stdout
    assert not re.search(r"^ +\d+  no [a-z0-9_]+\.[a-z]", done.stdout, re.MULTILINE)


def test_undertrained_models_are_announced_first(trained, tmp_path):
    """Heads and attention say first that a model has not learned."""
    wanted = "dstg has not learned more than how often each token occurs: its validation loss is "
    out = tmp_path / "heads"
    done = whatwhere("heads", str(trained), "--windows", "10", "--out", str(out))
    assert done.stdout.startswith(wanted), (done.stdout, done.stderr)
    found = re.match(
        r".* is ([\d.]+) nats, a guess by these frequencies has ([\d.]+)\. What follows is how it began", done.stdout
    )
    assert float(found[1]) > float(found[2]) - 0.1
    # It named the model without its path, and forgot every option.
    command = read_object(out / PAGE_FACTS)["command"]
    assert shlex.split(command)[1:] == ["heads", str(trained), "--windows", "10", "--out", "NEW-FOLDER"]
    given = HeadsConfig(model="m", corpus="my text.txt", length=64, ablate=3)
    assert command_of("heads", "my model", *_options_of(given), scheme="a scheme.py") == (
        "whatwhere heads 'my model' --corpus 'my text.txt' --length 64 --ablate 3 --scheme 'a scheme.py' "
        "--out NEW-FOLDER"
    )
    assert "too little learned" in (out / "report.html").read_text(encoding="utf-8")
    assert not unexplained(out, "heads MODEL")
    assert missing(out, "heads MODEL") == {"arrays/correlations-*.npz"}  # which a stream of its own has not
    for model in (trained, trained / "checkpoints/step-0"):
        done = whatwhere("attention", str(model), "--text", "A word.", "--out", str(tmp_path / "page.html"))
        assert "has not learned more than how often each token occurs" in done.stdout.splitlines()[0], done.stderr
    # As if it had: what is known of a training decides, not the model.
    log = trained / "log.jsonl"
    before = log.read_text()
    lines = [json.loads(line) for line in before.splitlines()]
    log.write_text("".join(json.dumps({**x, **({"validation_loss": 0.5} if x["step"] else {})}) + "\n" for x in lines))
    done = whatwhere("attention", str(trained), "--text", "A word.", "--out", str(tmp_path / "page.html"))
    log.write_text(before)
    assert done.stdout.startswith("The page is"), done.stdout


def test_explain_refuses_what_is_no_configuration_of_one_encoder(tmp_path):
    (tmp_path / "notes.txt").write_text("preset: dstg")
    (tmp_path / "study.yaml").write_text("models: [ap, rope]\nminutes: 1\n")
    assert "its name does not end in .yaml" in refused("explain", str(tmp_path / "notes.txt"))
    assert "explain takes one encoder, or two to compare; got 3: ap, rp, rope" in refused("explain", "ap", "rp", "rope")
    assert "is the configuration of a study of ap, rope. Name one: whatwhere explain ap." in refused(
        "explain", str(tmp_path / "study.yaml")
    )


def test_an_empty_argument_is_refused(tmp_path):
    """An unset variable of the shell was the current folder: its runs were read as text, or written to."""
    for words in (("predict", "", "--text", "x"), ("pretrain", "--out", str(tmp_path / "o"), "--corpus", " ")):
        done = whatwhere(*words)
        assert done.returncode == 2 and "is empty, as of an unset variable. Give a value." in done.stderr
    assert whatwhere("predict", "reference", "--text", "", "--what", "vectors").returncode == 0
