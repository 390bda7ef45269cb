"""Shapes of positions: functions from arrays to arrays in float64, on numpy and scipy alone; public names of the
folder."""

from .counts import Counts, positional_counts
from .distances import MIN_SUPPORT, Distributions, hellinger, positional_distributions
from .encodings import ENCODINGS, alibi, random_table, rope, sinusoidal
from .extrapolation import extrapolate
from .mds import MDS, centred_gram, classical_mds, hellinger_mds, mds_of_squares, mds_table, smacof
from .monotonicity import (
    circulant_share,
    monotonicity_interval,
    monotonicity_violations,
    toeplitz_share,
    violations_of_distances,
)
from .resampling import Corrected, Interval, corrected_hellinger, corrected_squares, jackknife
from .spectra import (
    Rotation,
    Spectrum,
    Waves,
    approximation,
    component_shares,
    dominant_turns,
    equivariance,
    equivariance_null,
    equivariance_of_first,
    half_of_variance,
    inner_products,
    isolation,
    outliers,
    rotations,
    spectrum,
    white_floor,
)
from .stress import distance_correlation, lag_correlation, stress, stress_of_distances

__all__ = [
    "Corrected", "Counts", "Distributions", "ENCODINGS", "Interval", "MDS", "MIN_SUPPORT", "Rotation", "Spectrum",
    "Waves", "alibi", "approximation", "centred_gram", "circulant_share", "classical_mds", "component_shares",
    "corrected_hellinger", "corrected_squares", "distance_correlation", "dominant_turns", "equivariance",
    "equivariance_null", "equivariance_of_first", "extrapolate", "half_of_variance", "hellinger", "hellinger_mds",
    "inner_products", "isolation", "jackknife", "lag_correlation", "mds_of_squares", "mds_table",
    "monotonicity_interval",
    "monotonicity_violations", "outliers", "positional_counts", "positional_distributions", "random_table", "rope",
    "rotations", "sinusoidal", "smacof", "spectrum", "stress", "stress_of_distances", "toeplitz_share",
    "violations_of_distances", "white_floor",
]  # fmt: skip
