"""The loop's parts: learning rates, accumulation, optimizers, stops before a broken weight."""

import json
import math
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from cli_runner import sentences
from loop_runs import config_of, windows_of

import whatwhere as ww
from whatwhere.corpus import Windows
from whatwhere.corpus.tokenizer import segment_end_ids
from whatwhere.run.files import read_lines
from whatwhere.training import budget, checkpoints
from whatwhere.training.checkpointer import Checkpointer
from whatwhere.training.corpus_settings import prepare_windows
from whatwhere.training.logger import Logger
from whatwhere.training.loop import Trainer
from whatwhere.training.optimizers import learning_rate_factor, make_optimizers
from whatwhere.training.pretrain import pretrain
from whatwhere.training.pretrain_settings import PretrainConfig, make_batches
from whatwhere.training.recipes import TOKENS_TO_LEARN
from whatwhere.training.training_keys import LoopConfig


@pytest.fixture(scope="module")
def windows(corpus_file, tmp_path_factory) -> Windows:
    return windows_of(corpus_file, tmp_path_factory.mktemp("windows"))


def test_positions_shift_with_join_none_and_never_by_default(corpus_file, tmp_path):
    """DSTG 3.3 by settings alone: run-on windows fill the table, so offsets are 0; windows of single documents get
    every offset."""
    starts = {}
    for join in ("run-on", "none"):
        config = config_of(
            corpus_file, steps=1, join=join, model={"num_hidden_layers": 2, "max_position_embeddings": 32}
        )
        windows = prepare_windows(config, tmp_path / join, progress=False)
        model = config.encoder_config(windows)
        batches = make_batches(config, windows, "train", model)
        found = [batches.micro_batch(step, 16) for step in range(12)]
        full = [batch["attention_mask"].sum(1) == model.max_position_embeddings for batch in found]
        starts[join] = {
            int(at) for batch, whole in zip(found, full, strict=True) for at in batch["position_ids"][~whole, 0]
        }
        assert all((batch["position_ids"] < model.max_position_embeddings).all() for batch in found)
        held_out = next(make_batches(config, windows, "held_out", model).in_order(8))
        assert not held_out["position_ids"][:, 0].any()  # only training shifts
    assert len(starts["none"]) > 10
    assert starts["run-on"] == set()  # no window shorter than the table


def test_a_training_knows_where_segments_end(corpus_file, windows):
    """Ends of segments come from the tokenizer of the windows where the configuration names none."""
    for named, ends in (({}, segment_end_ids(windows.tokenizer())), ({"segment_end_ids": [7]}, [7])):
        config = config_of(corpus_file, steps=1, preset="bipe", model={"num_hidden_layers": 2, **named})
        assert config.encoder_config(windows).segment_end_ids == ends


def test_a_table_of_places_may_be_shorter_than_windows(corpus_file, windows, tmp_path):
    """BiPE's table has rows for places in a segment; windows longer than it were refused after they had been made."""
    model = {"num_hidden_layers": 2, "max_position_embeddings": 16}
    config = config_of(corpus_file, steps=1, preset="bipe", model=model)
    summary = pretrain(config, tmp_path / "run", windows=windows, progress=False)
    assert summary["steps"] == 1 and config.length > 16


def test_schemes_draw_positions_in_training_alone(corpus_file, windows):
    """CAPE's positions are real numbers in training batches, which its encoder trains on, and counted in others."""
    config = config_of(corpus_file, steps=1, preset="cape")
    model = config.encoder_config(windows)
    train, held_out = (next(make_batches(config, windows, split, model).in_order(4)) for split in ("train", "held_out"))
    assert not held_out["position_ids"].is_floating_point() and not held_out["position_ids"][:, 0].any()
    assert train["position_ids"].dtype == torch.float32 and bool(train["position_ids"][:, 0].any())
    loss = ww.EncoderForMaskedLM(model).train()(**train).loss
    loss.backward()
    assert loss.isfinite()


def test_cosine_warms_up_and_ends_at_minimum():
    """Cosine warms up to the peak and ends at the minimum."""
    config = LoopConfig(warmup_steps=10, minimum_learning_rate_ratio=0.1)
    factors = [learning_rate_factor(step, config, 100) for step in range(100)]
    assert factors[:10] == pytest.approx([(i + 1) / 10 for i in range(10)])
    assert factors[10] == 1.0 and factors == [*factors[:10], *sorted(factors[10:], reverse=True)]
    assert factors[55] == pytest.approx(0.55) and factors[99] == pytest.approx(0.1, abs=1e-3)


def test_linear_falls_by_equal_amounts():
    config = LoopConfig(warmup_steps=0, schedule="linear", minimum_learning_rate_ratio=0.0)
    assert [learning_rate_factor(step, config, 4) for step in range(4)] == [1.0, 0.75, 0.5, 0.25]


def test_a_trapezoid_falls_after_seventy_per_cent():
    """A trapezoid is constant to seventy per cent then falls to its end."""
    config = LoopConfig(warmup_steps=0, schedule="trapezoid", minimum_learning_rate_ratio=0.1)
    found = [learning_rate_factor(step, config, 100) for step in (0, 69, 70, 85, 100)]
    assert found == pytest.approx([1.0, 1.0, 1.0, 0.55, 0.1])


def test_one_learning_rate_for_all_is_the_default():
    model = ww.EncoderForMaskedLM(ww.preset("dstg", "tiny", vocab_size=50))
    for kind in ("adamw", "muon"):
        rates = {
            g["peak"]
            for o in make_optimizers(model, LoopConfig(optimizer=kind, learning_rate=3e-3), 10)
            for g in o.param_groups
        }
        assert rates == {3e-3}


def test_matrices_of_long_trainings_learn_slower():
    """Matrices of longer trainings learn slower by the root and nothing else does."""
    model = ww.EncoderForMaskedLM(ww.preset("dstg", "tiny", vocab_size=50))
    config = LoopConfig(optimizer="muon", learning_rate=1e-3, matrix_learning_rate_scale=3.0, matrix_steps=100)
    for steps, scale in ((50, 3.0), (100, 3.0), (400, 1.5), (900, 1.0)):
        adamw, muon = make_optimizers(model, config, steps)
        assert [g["peak"] for g in muon.param_groups] == pytest.approx([scale * 1e-3])
        assert {g["peak"] for g in adamw.param_groups} == {1e-3}


def test_warm_up_takes_at_most_half():
    """Warm up never takes more than half of the steps."""
    assert learning_rate_factor(10, LoopConfig(warmup_steps=100), 20) == 1.0


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_every_parameter_has_one_optimizer_and_its_own_rate(kind):
    model = ww.EncoderForMaskedLM(ww.preset("dstg", "tiny", vocab_size=50))
    config = LoopConfig(
        optimizer=kind,
        learning_rate=0.01,
        matrix_learning_rate_scale=10.0,
        bias_learning_rate_scale=3.0,
        embedding_learning_rate_scale=2.0,
        table_learning_rate_scale=5.0,
        embedding_weight_decay=0.2,
        table_weight_decay=0.3,
        bias_weight_decay=0.4,
    )
    optimizers = make_optimizers(model, config, 10)
    found = {id(p): group for o in optimizers for group in o.param_groups for p in group["params"]}
    assert (
        len(found) == sum(len(g["params"]) for o in optimizers for g in o.param_groups) == len(list(model.parameters()))
    )
    expected = {
        "encoder.layers.2.attention.qkv.0.weight": (0.1, config.weight_decay),
        "encoder.layers.2.attention.qkv.1.weight": (0.1, config.weight_decay),
        "encoder.layers.2.feed_forward.down.0.weight": (0.1, config.weight_decay),
        "encoder.layers.2.feed_forward.up.0.weight": (0.1, config.weight_decay),
        "encoder.layers.2.attention.relative.function.table": (0.03, 0.4),
        "encoder.layers.2.attention_norm.norms.0.weight": (0.01, 0.0),
        "encoder.position_embeddings.table.weight": (0.05, 0.3),
        "encoder.word_embeddings.weight": (0.02, 0.2),
    }
    for name, (rate, decay) in expected.items():
        group = found[id(model.get_parameter(name))]
        assert (group["lr"], group["peak"], group["weight_decay"]) == pytest.approx((rate, rate, decay)), name
    if kind == "muon":
        assert {id(p) for g in optimizers[1].param_groups for p in g["params"]} == {
            id(p) for n, p in model.named_parameters() if ".layers." in n and p.ndim == 2 and "relative" not in n
        }


@pytest.mark.parametrize("name", ["shaw", "deberta", "cope"])
def test_vectors_of_distances_learn_as_position_tables(name):
    """Vectors of distances are looked up, as a table of positions is: Muon would make their rows orthogonal."""
    model = ww.EncoderForMaskedLM(ww.preset(name, "tiny", vocab_size=50))
    config = LoopConfig(optimizer="muon", learning_rate=0.01, table_learning_rate_scale=5.0)
    adamw, muon = make_optimizers(model, config, 10)
    fast = {id(p) for group in adamw.param_groups if group["peak"] == pytest.approx(0.05) for p in group["params"]}
    positional = {n: p for n, p in model.named_parameters() if "content." in n or "distance_vectors." in n}
    matrices = {id(p) for group in muon.param_groups for p in group["params"]}
    for parameter, p in positional.items():
        assert (id(p) in matrices) == parameter.endswith(".weight") == (id(p) not in fast), parameter
    assert fast


def test_accumulation_gives_the_gradient_of_the_whole_batch(windows, corpus_file):
    found = []
    for accumulate in (1, 4):
        config = config_of(corpus_file, steps=1, accumulate=accumulate, clip=1e9, optimizer="adamw")
        model_config = config.encoder_config(windows)
        torch.manual_seed(0)
        model = ww.EncoderForMaskedLM(model_config)
        trainer = Trainer(model, config, 1)
        batches = trainer.make_micro_batches(make_batches(config, windows, "train", model_config).micro_batch, 0)
        assert len(batches) == accumulate
        trainer.optimizers = []  # the step leaves the gradients as they are
        loss, norm = trainer.take_step(0, batches)
        found.append((loss, norm, {name: p.grad.clone() for name, p in model.named_parameters()}))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-6)
    assert found[0][1] == pytest.approx(found[1][1], rel=1e-4)
    for name, gradient in found[0][2].items():
        torch.testing.assert_close(gradient, found[1][2][name], rtol=1e-4, atol=1e-6, msg=name)


@pytest.mark.whole
def test_loss_falls_below_the_unigram_entropy_of_repetitive_text(tmp_path):
    path = tmp_path / "pattern.txt"
    path.write_text(
        "\n\n".join("one two three four five six seven eight nine ten." for _ in range(2000)), encoding="utf-8"
    )
    config = config_of(
        path, preset="rope", steps=150, join="none", document="blank-line", vocab_size=64, learning_rate=1e-2
    )
    pretrain(config, tmp_path / "run", progress=False)
    windows = Windows(tmp_path / "run/corpus")
    logged = [json.loads(line) for line in (tmp_path / "run/log.jsonl").read_text().splitlines()]
    assert [line["loss"] for line in logged if "loss" in line][-1] < 0.5 * windows.unigram_entropy()


def test_the_log_has_the_rate_that_the_settings_name(windows, corpus_file, tmp_path):
    """With AdamW the log gave the rate of the hidden matrices under the name of the setting."""
    own = {"optimizer": "adamw", "matrix_learning_rate_scale": 3.0, "learning_rate": 1e-3, "log_every": 1}
    config = config_of(corpus_file, steps=4, **own)
    pretrain(config, tmp_path / "run", windows=windows, progress=False)
    lines = [line for line in read_lines(tmp_path / "run/log.jsonl") if "learning_rate" in line]
    rates = [1e-3 * learning_rate_factor(step, config, 4) for step in range(4)]
    assert [line["learning_rate"] for line in lines] == pytest.approx(rates)


@pytest.mark.parametrize(("precision", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16)])
def test_muon_computes_as_the_passes_do(precision, dtype, windows, corpus_file, tmp_path):
    """It computed in bfloat16 whatever the precision: on a CPU without, a step took more than twice as long."""
    config = config_of(corpus_file, steps=1, precision=precision, optimizer="muon")
    training = Trainer(ww.EncoderForMaskedLM(config.encoder_config(windows)), config, 1, tmp_path)
    assert training.optimizers[1].dtype == dtype


def test_ending_trackers_keeps_the_process_group(windows, corpus_file, tmp_path, monkeypatch):
    """Several processes lost their group with their trackers, before the model was gathered and saved."""
    model = ww.EncoderForMaskedLM(config_of(corpus_file, steps=1).encoder_config(windows))
    training = Trainer(model, config_of(corpus_file, steps=1), 1, tmp_path)
    ended = []
    training.accelerator.trackers = [SimpleNamespace(finish=lambda: ended.append("tracker"))]
    monkeypatch.setattr(training.accelerator.state, "destroy_process_group", lambda group=None: ended.append("group"))
    Logger(tmp_path, training, 1).close()
    assert ended == ["tracker"]


def test_weights_that_begin_broken_are_named(windows, corpus_file, tmp_path, monkeypatch):
    """Step 0, which nobody took, and the learning rate were blamed."""
    model = ww.EncoderForMaskedLM(config_of(corpus_file, steps=1).encoder_config(windows))
    next(model.parameters()).data.fill_(float("nan"))
    training = Trainer(model, config_of(corpus_file, steps=1), 1, tmp_path)
    with pytest.raises(ValueError, match="The start weights of x are not finite: .* Use a complete copy"):
        Checkpointer(tmp_path, training, Logger(tmp_path, training, 1), "x").save(0)


def test_timing_steps_reports_to_no_tracker(windows, corpus_file, monkeypatch):
    """A budget in minutes ended in an error of TensorBoard, which needs a folder."""
    asked = []

    def trainer(model, config, steps):
        asked.append(config.trackers)
        return Trainer(model, config, steps)

    monkeypatch.setattr(budget, "Trainer", trainer)
    config = config_of(corpus_file, steps=None, minutes=1).model_copy(update={"trackers": ["tensorboard"]})
    assert budget.time_step(config, windows) > 0 and asked == [[]]


def test_an_infinite_loss_stops_the_run(windows, corpus_file, tmp_path):
    """A loss that is no number stops the run and keeps the checkpoints."""
    config = config_of(corpus_file, steps=20)
    model_config = config.encoder_config(windows)
    batches = make_batches(config, windows, "train", model_config)
    model = ww.EncoderForMaskedLM(model_config)

    def batch_of_micro_step(step, rows, rank, world):
        if step == 12:
            with torch.no_grad():
                model.head.decoder.bias[7] = math.nan
        return batches.micro_batch(step, rows, rank, world)

    wanted = r"at step 1\d of training, in head.decoder.bias. Lower --set learning_rate=.*; the last checkpoint is "
    wanted += re.escape(f"{tmp_path}/checkpoints/step-10, and the step's batch in {tmp_path}/not-finite-0.npz.")
    with pytest.raises(ValueError, match=wanted) as caught:
        Trainer(model, config, 20).fit(batch_of_micro_step, tmp_path, tokens_per_step=256, progress=False)
    step = int(str(caught.value).split("at step ")[1].split()[0])
    batch = batches.micro_batch(step - 1, 8, 0, 1)
    with np.load(tmp_path / "not-finite-0.npz", allow_pickle=False) as kept:
        assert {name: kept[name].tolist() for name in kept} == {f"0.{k}": v.tolist() for k, v in batch.items()}
    logged = [line for line in read_lines(tmp_path / "log.jsonl") if "loss" in line]
    assert logged and all(line["peak_memory_bytes"] > 10**8 and 0 <= line["waiting"] <= 1 for line in logged)
    newest, broken = checkpoints.newest_checkpoint(tmp_path / "checkpoints")
    assert newest.step == 10 and not broken
    assert all(torch.isfinite(p).all() for p in ww.EncoderForMaskedLM.from_pretrained(newest.folder).parameters())


def test_an_infinite_gradient_never_reaches_weights(windows, corpus_file, tmp_path):
    """A gradient that is no number is named before it reaches the weights."""
    config = config_of(corpus_file, steps=3)
    model_config = config.encoder_config(windows)
    model = ww.EncoderForMaskedLM(model_config)
    norm = model.encoder.layers[1].feed_forward.down[0].weight
    norm.register_hook(lambda gradient: gradient * math.inf)
    before = [p.detach().clone() for p in model.parameters()]
    wanted = "at step 1 of mine, in the gradient of encoder.layers.1.feed_forward.down.0.weight. The first step failed"
    with pytest.raises(ValueError, match=wanted):
        batches = make_batches(config, windows, "train", model_config)
        Trainer(model, config, 3).fit(batches.micro_batch, tmp_path, tokens_per_step=256, label="mine", progress=False)
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))


def test_weights_that_the_last_step_broke_are_not_saved(windows, corpus_file, tmp_path, monkeypatch):
    take = Trainer.take_step

    def step(trainer, *given):
        result = take(trainer, *given)
        with torch.no_grad():
            trainer.model.head.decoder.bias[3] = math.inf
        return result

    monkeypatch.setattr(Trainer, "take_step", step)
    with pytest.raises(
        ValueError, match="Step 1 of dstg .* left head.decoder.bias not finite. Lower --set learning_rate="
    ):
        pretrain(config_of(corpus_file, steps=1), tmp_path / "run", windows=windows, progress=False)
    assert [path.name for path in checkpoints.checkpoint_folders(tmp_path / "run/checkpoints")] == ["step-0"]
    assert not (tmp_path / "run/model.safetensors").exists()


@pytest.mark.whole
def test_minutes_become_steps(windows, corpus_file, tmp_path, capsys, monkeypatch):
    summary = pretrain(config_of(corpus_file, minutes=0.03), tmp_path / "run", windows=windows, progress=False)
    assert 2 <= summary["steps"] <= 6000
    said = capsys.readouterr().err
    assert (
        f"0.03 minutes buy {summary['steps']:,} steps; models of size tiny need about 9,766 to learn" in said
    )  # 2.5M tokens of 8 x 32
    assert PretrainConfig.load(tmp_path / "run/pretrain.yaml").steps == summary["steps"]
    (tmp_path / "run/model.safetensors").unlink()
    again = config_of(corpus_file, minutes=9)
    assert pretrain(again, tmp_path / "run", windows=windows)["steps"] == summary["steps"]
    assert f"ends at the {summary['steps']:,} steps that it began with" in capsys.readouterr().err
    monkeypatch.setitem(TOKENS_TO_LEARN, "tiny", 1)  # enough: what they buy is said all the same
    summary = pretrain(config_of(corpus_file, minutes=0.03), tmp_path / "more", windows=windows, progress=False)
    assert f"0.03 minutes buy {summary['steps']:,} steps of " in capsys.readouterr().err


def test_vocabulary_smaller_than_the_tokenizer_is_refused(windows, corpus_file, tmp_path):
    config = config_of(corpus_file, steps=1, model={"vocab_size": 100})
    with pytest.raises(ValueError, match="model.vocab_size=100, but the tokenizer has"):
        pretrain(config, tmp_path / "run", windows=windows, progress=False)


def test_corpus_smaller_than_a_batch_is_refused(tmp_path):
    path = tmp_path / "short.txt"
    path.write_text(sentences(5), encoding="utf-8")
    with pytest.raises(ValueError, match="less than one batch of 512"):
        pretrain(config_of(path, steps=1, batch_size=512), tmp_path / "run", progress=False)


@pytest.mark.parametrize("masking", ["all", "80-10-10"])
def test_same_tokens_and_masks_for_every_preset(masking, windows, corpus_file):
    # Once, under 80-10-10 the shift of `dstg` moved the draws that replace tokens.
    configs = [config_of(corpus_file, steps=1, preset=name, masking=masking) for name in ("dstg", "rope")]
    one, two = (make_batches(c, windows, "train", c.encoder_config(windows)).micro_batch(3, 8) for c in configs)
    assert torch.equal(one["input_ids"], two["input_ids"]) and torch.equal(one["labels"], two["labels"])


def test_positions_are_shifted_in_training_only(windows, corpus_file):
    """Positions are shifted in training only and only where a table needs it."""
    config = config_of(corpus_file, steps=1)  # windows of 32 in a table of 128 rows (DSTG 3.3)
    model_config = config.encoder_config(windows)
    starts = {
        split: make_batches(config, windows, split, model_config).micro_batch(0, 8)["position_ids"][:, 0]
        for split in ("train", "held_out")
    }
    assert starts["train"].unique().numel() > 4 and starts["train"].max() <= 128 - 32
    assert (starts["held_out"] == 0).all()
    rope = config_of(corpus_file, steps=1, preset="rope")
    assert (
        make_batches(rope, windows, "train", rope.encoder_config(windows)).micro_batch(0, 8)["position_ids"][:, 0] == 0
    ).all()


def test_one_process_trains_in_one_precision_after_the_other(windows, corpus_file, tmp_path):
    # Once, accelerate refused the second.
    for precision in ("bf16", "fp32"):
        config = config_of(corpus_file, steps=1, precision=precision)
        assert pretrain(config, tmp_path / precision, windows=windows, progress=False)["steps"] == 1


def test_seeds_give_other_weights_and_other_masks(windows, corpus_file, tmp_path):
    tables = []
    for seed in (0, 1):
        pretrain(config_of(corpus_file, steps=1, seed=seed), tmp_path / str(seed), windows=windows, progress=False)
        tables.append(
            ww.EncoderForMaskedLM.from_pretrained(tmp_path / str(seed) / "checkpoints/step-0").position_table()
        )
    assert not torch.equal(*tables)
    one, two = (
        make_batches(c := config_of(corpus_file, steps=1, seed=s), windows, "held_out", c.encoder_config(windows))
        for s in (0, 1)
    )
    assert not torch.equal(one.micro_batch(0, 8)["labels"], two.micro_batch(0, 8)["labels"])
