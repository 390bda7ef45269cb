"""Shapes of positions: numpy and scipy only, arrays in, arrays out, float64. Public names of the folder."""

from whatwhere.geometry.rotations import Rotation, Waves, fitted_waves, rotations
from whatwhere.geometry.spectra import (
    Spectrum,
    approximation,
    component_shares,
    dominant_turns,
    equivariance,
    equivariance_null,
    half_of_variance,
    inner_products,
    isolation,
    outliers,
    spectrum,
)

__all__ = [
    "Rotation",
    "Spectrum",
    "Waves",
    "approximation",
    "component_shares",
    "dominant_turns",
    "equivariance",
    "equivariance_null",
    "fitted_waves",
    "half_of_variance",
    "inner_products",
    "isolation",
    "outliers",
    "rotations",
    "spectrum",
]
