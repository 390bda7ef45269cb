"""An own scheme: trained, probed and reported beside a published one, opened again, kept with its run; broken ones
refused in one line."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from cli_runner import settings, whatwhere

from whatwhere.encoder import EncoderForMaskedLM, preset
from whatwhere.records.record import read_records, select
from whatwhere.training.scheme_settings import use_scheme

KERPLE = Path(__file__).parents[1] / "examples/kerple.py"
STUDY = (
    *("length=32", "vocab_size=300", "workers=1", "probe_windows=20", "held_out=0.2", "minutes=null", "steps=6"),
    *(
        "training.batch_size=8",
        "training.precision=fp32",
        "training.warmup_steps=2",
        "training.model.num_hidden_layers=2",
    ),
)


def one_line(done):
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    assert done.returncode == 2 and len(lines) == 1 and lines[0].startswith("whatwhere: "), (
        done.returncode,
        done.stderr,
    )
    return lines[0]


@pytest.fixture(scope="module")
def run(corpus_file, tmp_path_factory):
    """A study of the example beside `ap`, begun with a copy of the file that the tests may change."""
    folder = tmp_path_factory.mktemp("own")
    shutil.copy(KERPLE, folder / "mine.py")
    given = [part for value in STUDY for part in ("--set", value)]
    arguments = (
        "study",
        "--out",
        str(folder / "s"),
        "--scheme",
        str(folder / "mine.py"),
        "--models",
        "kerple,ap",
        "--match",
        "parameters",
    )
    done = whatwhere(*arguments, "--corpus", str(corpus_file), "--json", *given)
    assert done.returncode == 0, done.stderr[-2000:]
    return folder


def test_bias_of_the_example_is_its_equation():
    use_scheme(KERPLE)
    use_scheme(KERPLE)  # once is enough
    model = EncoderForMaskedLM(preset("kerple", "tiny", vocab_size=32)).eval()
    bias = model.encoder.layers[0].attention.relative.function
    values = bias(torch.tensor([[-3, 0], [0, 5]]))
    r1, r2 = bias.log_r.exp()
    assert (
        values.shape == (2, 2, 4)
        and torch.allclose(values[0, 0], -r1 * torch.log(1 + 3 * r2))
        and not values[0, 1].any()
    )
    assert torch.allclose(r1, torch.linspace(2.0, 0.125, 4)) and torch.allclose(r2, torch.ones(4))
    package = (
        EncoderForMaskedLM(preset("kerple-log", "tiny", vocab_size=32)).encoder.layers[0].attention.relative.function
    )
    package.load_state_dict(bias.state_dict())
    assert torch.allclose(package(torch.tensor([-3, 0, 5])), bias(torch.tensor([-3, 0, 5])))
    ids = torch.tensor([[2, 7, 8, 9, 3]])
    terms = model.attention_terms(input_ids=ids)
    assert torch.allclose(terms["relative"][0, 0, :, 0, 4], -r1 * torch.log(1 + 4 * r2))
    model(input_ids=ids, labels=ids).loss.backward()
    assert bias.log_r.grad.abs().min() > 0


@pytest.mark.long
def test_study_trains_probes_and_reports_an_own_scheme(run):
    records = read_records(run / "s/records.parquet")
    for metric in ("loss", "r2.token", "parameters", "operations"):
        assert {r.model for r in select(records, metric=metric) if r.model} == {"kerple", "ap"}, metric
    assert "kerple" in (run / "s/report.html").read_text(encoding="utf-8")
    facts = json.loads((run / "s/study.json").read_text(encoding="utf-8"))
    assert facts["match"] == "parameters" and facts["models"][0]["source"].startswith("KERPLE")
    ours, theirs = (select(records, metric="parameters", model=name)[0].value for name in ("kerple", "ap"))
    assert abs(theirs / ours - 1) < 0.001  # one column of the feed-forward is 0.05 %
    assert select(records, metric="operations")[0].unit == "operations/token"


@pytest.mark.long
def test_finished_study_needs_the_original_file_no_more(run):
    (run / "mine.py").rename(run / "elsewhere.py")
    (run / "s/report.html").unlink()
    try:
        line = one_line(whatwhere("study", "--out", str(run / "s")))
        assert line.endswith(f"Read {run / 's/scheme.py'}, then add --scheme {run / 's/scheme.py'}."), line
        done = whatwhere("study", "--out", str(run / "s"), "--scheme", str(run / "s/scheme.py"))
        assert done.returncode == 0 and (run / "s/report.html").is_file(), done.stderr[-2000:]
    finally:
        (run / "elsewhere.py").rename(run / "mine.py")


@pytest.mark.long
def test_the_same_scheme_in_another_place_is_the_runs(run, tmp_path):
    copy = tmp_path / "copy.py"
    model = run / "s/models/kerple/seed-0"
    shutil.copy(run / "mine.py", copy)
    before = (model / "model.safetensors").read_bytes()
    for words in (("study", "--config", str(run / "s/study.yaml"), "--out", str(run / "s")), ("pretrain",)):
        out = () if "--out" in words else ("--out", str(model))
        done = whatwhere(*words, *out, "--scheme", str(copy))
        assert done.returncode == 0, done.stderr[-2000:]
    assert (model / "model.safetensors").read_bytes() == before


@pytest.mark.long
def test_a_changed_scheme_is_refused_on_resume(run):
    changed = run / "changed.py"
    changed.write_text(KERPLE.read_text(encoding="utf-8").replace("0.125", "0.25"), encoding="utf-8")
    line = one_line(
        whatwhere("study", "--config", str(run / "s/study.yaml"), "--out", str(run / "s"), "--scheme", str(changed))
    )
    assert "changed.py is not the scheme that" in line and "scheme.py" in line
    model = run / "s/models/kerple/seed-0"
    line = one_line(whatwhere("pretrain", "--out", str(model), "--scheme", str(changed)))
    assert "changed.py is not the scheme that" in line
    # Verbs that read a model took an edited scheme without a word, and gave other numbers.
    for words in (["predict", str(model), "--text", "a [MASK] b"], ["explain", str(model)]):
        line = one_line(whatwhere(*words, "--scheme", str(changed)))
        assert "changed.py is not the scheme that" in line and "own_scheme.py" in line, words


@pytest.mark.long
def test_model_of_an_own_scheme_says_what_it_needs(run):
    model = run / "s/models/kerple/seed-0"
    corpus = run / "s/corpus"
    line = one_line(whatwhere("probe", str(model), "--corpus", str(corpus)))
    assert "got 'kerple'" in line and f"--scheme {model / 'own_scheme.py'}" in line
    assert "got 'kerple'" in one_line(whatwhere("explain", str(model)))
    carried = ("--scheme", str(model / "own_scheme.py"), "--json")  # the copy runs where whatwhere is installed, too
    done = whatwhere("probe", str(model), "--corpus", str(corpus), "--windows", "20", *carried)
    assert done.returncode == 0 and json.loads(done.stdout)["records"], done.stderr
    # Geometry had no --scheme, which its refusal of the model asked for.
    words = ("geometry", "--corpus", "synthetic:repeat", "--positions", "16", "--model", str(model), "--set", "width=8")
    line = one_line(whatwhere(*words, "--out", str(run / "g")))
    assert f"add --scheme {model / 'own_scheme.py'}" in line
    assert "has no position table" in one_line(whatwhere(*words, "--out", str(run / "g"), *carried[:2]))
    done = whatwhere("explain", str(model), *carried)
    assert done.returncode == 0 and "kerple(j - i)" in json.loads(done.stdout)["formula"], done.stderr
    assert not (run / "s/models/ap/seed-0/own_scheme.py").exists()


@pytest.mark.long
def test_verbs_name_the_line_of_a_failing_scheme(run):
    """`predict` ended in a traceback where the scheme that a person mends fails."""
    model = run / "without-code"  # a model that carries its scheme refuses another text
    shutil.copytree(run / "s/models/kerple/seed-0", model, ignore=shutil.ignore_patterns("*.py", "manifest.jsonl"))
    bad = run / "bad.py"
    bad.write_text(KERPLE.read_text("utf-8").replace("torch.log1p(r2", "self.nothing(r2"), encoding="utf-8")
    line = one_line(whatwhere("predict", str(model), "--text", "a text", "--scheme", str(bad)))
    number = next(n for n, text in enumerate(bad.read_text("utf-8").splitlines(), 1) if "self.nothing(r2" in text)
    assert f"The scheme fails at {bad}, line {number} (AttributeError: " in line


@pytest.mark.long
def test_a_given_scheme_in_yaml_runs(run, corpus_file):
    """A scheme in a YAML runs when it is given."""
    (run / "own.yaml").write_text(
        f"scheme: mine.py\npreset: tupe-kerple\ncorpus: {corpus_file}\nsteps: 2\n", encoding="utf-8"
    )
    out = run / "one"
    words = ("pretrain", "--config", str(run / "own.yaml"), "--out", str(out), *settings())
    assert f"add --scheme {run / 'mine.py'}." in one_line(whatwhere(*words)) and not out.exists()
    done = whatwhere(*words, "--scheme", str(run / "mine.py"))
    assert done.returncode == 0, done.stderr[-2000:]
    assert (out / "scheme.py").is_file() and "scheme: scheme.py\n" in (out / "pretrain.yaml").read_text(
        encoding="utf-8"
    )
    done = whatwhere("pretrain", "--out", str(out), "--scheme", str(out / "scheme.py"), "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["operations"] > 0
    rows = json.loads(whatwhere("presets", "--size", "tiny", "--scheme", str(KERPLE), "--json").stdout)["presets"]
    assert {row["name"]: row["terms"] for row in rows}["tupe-kerple"] == ["semantic", "absolute", "relative"]


REGISTER = "from whatwhere.encoder import register_bias, register_preset\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def (\n", "is not valid Python: line 1"),
        (
            "import a_module_that_is_missing\n",
            "does not run: ModuleNotFoundError: No module named 'a_module_that_is_missing'",
        ),
        ("import sys\nsys.exit(3)\n", "ends the program (exit status 3)"),
        (
            "import whatwhere.study.study\n",
            "Line 1, `import whatwhere.study.study`, imports what a saved model does not carry",
        ),
        (REGISTER + "register_bias('t5')\n", "A bias named 't5' is registered already"),
        (REGISTER + "register_preset('ap', None, 'me')\n", "A preset named 'ap' is registered already"),
        (REGISTER + "register_preset('mine', 'mine', 'me')\n", "'mine' is derived from itself"),
        (
            REGISTER + "register_preset('mine', 'dsgt', 'me')\n",
            "derived from 'dsgt', which is not registered (yet). Did you mean dstg?",
        ),
    ],
)
def test_broken_schemes_are_one_line_that_names_the_file(text, message, tmp_path):
    path = tmp_path / "broken.py"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError) as caught:
        use_scheme(path)
    assert message in str(caught.value) and "broken.py" in str(caught.value) and "\n" not in str(caught.value)


def test_broken_scheme_ends_with_status_2(tmp_path):
    (tmp_path / "typo.py").write_text(
        REGISTER + "register_preset('mine', 'ap', 'me', relativ='t5')\n", encoding="utf-8"
    )
    done = whatwhere(
        "study", "--scheme", str(tmp_path / "typo.py"), "--models", "mine,ap", "--out", str(tmp_path / "s")
    )
    assert "EncoderConfig has no field 'relativ'. Did you mean relative" in one_line(done)
    assert "is no Python file that exists" in one_line(whatwhere("presets", "--scheme", str(tmp_path / "none.py")))


def test_explain_tries_a_custom_scheme(tmp_path):
    """A root has an infinite slope at distance 0: the loss is finite, the gradient is not."""
    text = KERPLE.read_text(encoding="utf-8").replace("torch.log1p(r2 * distance.abs()[..., None])", "ROOT")
    assert "ROOT" in text
    (tmp_path / "root.py").write_text(
        text.replace("ROOT", "(r2 * distance.abs()[..., None]).sqrt()").replace('"kerple"', '"root"'), encoding="utf-8"
    )
    words = ("explain", "root", "--scheme", str(tmp_path / "root.py"))
    facts = json.loads(whatwhere(*words, "--json").stdout)["trial"]
    assert facts["loss"] > 0 and facts["tokens"] == 64
    assert facts["not_finite"].startswith("the gradient of encoder.layers.3.attention.relative.function.log_r, ")
    assert "NOT FINITE: the gradient of encoder." in whatwhere(*words).stdout
    refused = one_line(whatwhere(*words))
    assert "A training of root would stop at its first step: the gradient of encoder.layers.3" in refused
    assert f"Mend {tmp_path / 'root.py'}." in refused
    assert refused == one_line(whatwhere("study", "--models", "root", *words[2:], "--out", str(tmp_path / "s")))
    sound = whatwhere("explain", "kerple", "--scheme", str(KERPLE))
    assert "all gradients finite" in sound.stdout, sound.stderr
    assert "forward and backward" not in whatwhere("explain", "rope").stdout


@pytest.mark.whole
@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("distance.abs()[..., None])", "distance.abs())", "RuntimeError: The size of tensor a"),
        ("r1, r2 = self.log_r.exp()", "r1, r2, r3 = self.log_r.exp()", "ValueError: not enough values to unpack"),
        ("torch.log1p(r2", "self.nothing(r2", "AttributeError: 'KerpleBias' object has no attribute 'nothing'"),
        ("[..., None])", "[..., None, None])", "ValueError: The bias mine gives shape"),
    ],
)
def test_failing_schemes_are_reported_before_reading_text(right, wrong, said, tmp_path):
    """A scheme that fails in its step is told before any text is read."""
    # It was a traceback in a study, after its text was read, and "the meta device" in `explain`.
    text = KERPLE.read_text(encoding="utf-8").replace('"kerple"', '"mine"').replace('"tupe-kerple"', '"tupe-mine"')
    assert text.count(right) == 1
    path = tmp_path / "mine.py"
    path.write_text(text.replace(right, wrong), encoding="utf-8")
    before = torch.get_rng_state()
    told = one_line(whatwhere("explain", "mine", "--scheme", str(path)))
    assert torch.equal(before, torch.get_rng_state())
    assert said in told and f"A step of mine fails in the scheme {path}" in told and "(..., heads)" in told
    empty = tmp_path / "empty.txt"  # reading it would be refused
    empty.touch()
    for words in (("study", "--models", "mine,ap"), ("pretrain", "--preset", "mine")):
        out = tmp_path / words[0]
        assert one_line(whatwhere(*words, "--scheme", str(path), "--corpus", str(empty), "--out", str(out))) == told
        assert not out.exists()
