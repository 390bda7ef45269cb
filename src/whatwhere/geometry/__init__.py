"""Shapes of positions: numpy and scipy only, arrays in, arrays out, float64. Public names of the folder."""

from whatwhere.geometry.spectra import Spectrum, spectrum

__all__ = ["Spectrum", "spectrum"]
