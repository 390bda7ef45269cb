"""The command line: wrong input is one line on stderr and status 2, never a traceback; results also as JSON."""

import json
import shutil

import pytest
from cli_runner import settings, whatwhere

from whatwhere.encoder import EncoderForMaskedLM


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
        (("stduy",), "No such command 'stduy'. Did you mean 'study'?"),
        (("pretrain", "--out", "OUT", "--preset", "dsgt", "--steps", "1"), "Unknown preset 'dsgt'. Did you mean dstg"),
        (("pretrain", "--out", "OUT", "--corpus", "nowhere.txt", "--steps", "1"), "nowhere.txt"),
        (("study", "--out", "OUT", "--models", "dstg,tupe-z"), "Unknown preset 'tupe-z'"),
        (
            ("study", "--out", "OUT", "--steps", "3", "--minutes", "2"),
            "Give steps or minutes, one of them; got steps=3, minutes=2.0",
        ),
        (
            ("study", "--out", "OUT", "--match", "flops"),
            "match: Input should be 'parameters' or 'operations'; got 'flops'",
        ),
        (("explain", "dsgt"), "Unknown preset 'dsgt'. Did you mean dstg"),
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
    ],
)
def test_wrong_words_are_refused_in_one_line(arguments, message, tmp_path):
    assert message in refused(*(str(tmp_path / "out") if a == "OUT" else a for a in arguments))
    assert not [p for p in (tmp_path / "out").rglob("*") if p.is_file() and p.suffix == ".safetensors"]


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    assert "is not empty and holds no run" in refused("study", "--out", str(tmp_path))
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_truncated_model_is_refused(trained, tmp_path):
    broken = shutil.copytree(trained, tmp_path / "broken", ignore=shutil.ignore_patterns("checkpoints"))
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    assert "does not load" in refused("probe", str(broken), "--corpus", str(broken / "corpus"))


def test_help_of_every_verb_names_its_options():
    from typer.testing import CliRunner

    from whatwhere.cli.verbs import app

    runner = CliRunner()
    for command in app.registered_commands:
        name = command.name or command.callback.__name__
        result = runner.invoke(app, [name, "--help"])
        assert result.exit_code == 0 and "--json" in result.output, name


def test_without_a_verb_the_help_is_printed_as_it_is():
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
    assert set(facts["extras"]) == {"sentence-transformers", "tensorboard"}
    assert facts["disk_free_bytes"] > 0 and facts["versions"]["torch"].startswith("2.")
    rows = {row["name"]: row for row in json.loads(whatwhere("presets", "--json").stdout)["presets"]}
    assert rows["dstg"]["streams"] == [48, 720] and rows["dstg"]["terms"] == ["semantic", "absolute", "relative"]
    assert rows["dstg"]["longest"] == 512 and rows["rope"]["longest"] is None
    # 6 % more parameters and about a tenth more operations than `ap` of the same semantic width is DSTG's own
    # limitation.
    assert (
        rows["dstg"]["parameters"] > rows["ap"]["parameters"] and rows["dstg"]["operations"] > rows["ap"]["operations"]
    )


def test_explain_a_preset_a_file_and_a_model(trained):
    facts = [
        json.loads(whatwhere("explain", str(what), "--json").stdout) for what in (trained, trained / "pretrain.yaml")
    ]
    assert facts[0]["config"]["num_hidden_layers"] == facts[1]["config"]["num_hidden_layers"] == 2
    weights = EncoderForMaskedLM.from_pretrained(trained)
    assert facts[0]["parameters"]["total"] == sum(p.numel() for p in weights.parameters())
    assert json.loads((trained / "training.json").read_text())["operations"] == pytest.approx(
        facts[1]["operations"]["total"], rel=0.02
    )
    done = whatwhere("explain", "tupe-r", "--size", "small", "--set", "model.block=neobert")
    assert "reset[t5(j - i)]" in done.stdout and "hidden_size              240" in done.stdout, done.stdout


def test_spectra_and_probe_read_a_trained_model(trained):
    done = whatwhere("spectra", str(trained), "--json")
    shares = [r["value"] for r in json.loads(done.stdout)["records"] if r["metric"] == "pca.share"]
    assert 0.99 < sum(shares) <= 1.0 + 1e-9  # 8 dimensions, all listed
    out = trained.parent / "spectra"
    done = whatwhere("spectra", str(trained), "--words", "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("positions") and "\nwords" in done.stdout and (out / "report.html").is_file()
    done = whatwhere("probe", str(trained), "--corpus", str(trained / "corpus"), "--documents", "20", "--json")
    assert done.returncode == 0, done.stderr
    found = {(r["metric"], r["part"], r["layer"]) for r in json.loads(done.stdout)["records"]}
    assert {("r2.token", part, 2) for part in ("all", "position", "semantic")} <= found


def test_explain_refuses_what_is_no_configuration_of_one_encoder(tmp_path):
    (tmp_path / "notes.txt").write_text("preset: dstg")
    (tmp_path / "study.yaml").write_text("models: [ap, rope]\nminutes: 1\n")
    assert "its name does not end in .yaml" in refused("explain", str(tmp_path / "notes.txt"))
    assert "is the configuration of a study of ap, rope. Name one: whatwhere explain ap." in refused(
        "explain", str(tmp_path / "study.yaml")
    )
