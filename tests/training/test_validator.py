"""When a training is validated."""

from types import SimpleNamespace

import pytest

from whatwhere.training.validator import Validator


@pytest.mark.parametrize(
    ("steps", "every", "due"),
    [(40, 100, [36, 40]), (40, 36, [36, 40]), (40, 37, [36, 37, 40]), (40, 10, [10, 20, 30, 40]), (1, 100, [1])],
)
def test_short_trainings_are_validated_near_their_end(steps, every, due):
    """With the untrained model and the last step alone a page called the whole fall that of the last tenth."""
    setup = SimpleNamespace(config=SimpleNamespace(validate_every=every), steps=steps)
    validator = Validator(setup, list)
    assert [step for step in range(1, steps + 1) if validator.is_due(step)] == due
