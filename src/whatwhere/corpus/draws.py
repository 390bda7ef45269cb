"""Random draws that belong to a key: equal in every process and after every resume.

Zeros at the end of a key do not count (`numpy.random.SeedSequence`): the keys (5, 1) and (5, 1, 0) draw the same.
"""

import numpy as np


def generator_of(*key: int) -> np.random.Generator:
    """Make the random generator that belongs to a key of integers, such as (seed, epoch, row)."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(key)))
