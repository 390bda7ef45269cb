"""The papers: their titles, their citations, and the values that they print, as plain data in our names.

Of DSTG, Tables 2-4 (probes) and section 4 (1) (position tables). The paper's column c is the output of block c + 1, our
hidden[c + 1]; hidden[0] has no paper value, nor has the position stream (and the whole of `dstg`) after the last block,
printed "-".
"""

# One row of a table: columns 0 to 5. None where the paper prints "-".
_Row = tuple[float | None, ...]

_PROBES: dict[str, dict[tuple[str, str], _Row]] = {
    # Table 2. The text of 5.1 has 0.34 where the table has 0.24 (ap, column 5); the table is taken.
    "r2.token": {
        ("rope", "all"): (0.10, 0.12, 0.32, 0.20, 0.18, 0.06),
        ("rp", "all"): (0.17, 0.50, 0.46, 0.42, 0.42, 0.22),
        ("ap", "all"): (0.99, 0.99, 0.97, 0.89, 0.82, 0.24),
        ("dstg", "all"): (0.99, 0.98, 0.96, 0.95, 0.92, None),
        ("dstg", "position"): (0.99, 0.98, 0.95, 0.94, 0.89, None),
        ("dstg", "semantic"): (0.44, 0.34, 0.35, 0.32, 0.26, 0.18),
    },
    # Table 3
    "r2.segment": {
        ("rope", "all"): (0.09, 0.11, 0.30, 0.19, 0.17, 0.06),
        ("rp", "all"): (0.17, 0.47, 0.40, 0.37, 0.37, 0.23),
        ("ap", "all"): (0.94, 0.95, 0.93, 0.85, 0.79, 0.23),
        ("dstg", "all"): (0.94, 0.94, 0.92, 0.91, 0.88, None),
        ("dstg", "position"): (0.94, 0.93, 0.91, 0.90, 0.85, None),
        ("dstg", "semantic"): (0.42, 0.33, 0.35, 0.31, 0.27, 0.18),
    },
    # Table 4
    "r2.intra": {
        ("rope", "all"): (0.29, 0.70, 0.73, 0.69, 0.68, 0.50),
        ("rp", "all"): (0.50, 0.68, 0.67, 0.68, 0.63, 0.50),
        ("ap", "all"): (0.20, 0.76, 0.80, 0.76, 0.66, 0.46),
        ("dstg", "all"): (0.43, 0.73, 0.76, 0.76, 0.73, None),
        ("dstg", "position"): (0.04, 0.06, 0.06, 0.06, 0.06, None),
        ("dstg", "semantic"): (0.42, 0.73, 0.76, 0.75, 0.73, 0.58),
    },
}

DSTG_LAYERS = 6

# (metric, model, component from 0, None for a summary) -> share of variance or power, section 4 (1).
DSTG_TABLES: dict[tuple[str, str, int | None], float] = {
    ("pca.top2", "dstg", None): 0.941,
    ("pca.share", "dstg", 2): 0.023,
    ("dct.low4", "dstg", 0): 0.984,
    ("dct.low4", "dstg", 1): 0.990,
    ("pca.top2", "ap", None): 0.234,
    # "under 0.2 %" of the power of ap's top components: upper bounds
    ("dct.low4", "ap", 0): 0.002,
    ("dct.low4", "ap", 1): 0.002,
}


# (metric, model, part, layer) -> R² printed in Tables 2-4; layer is ours, 1 to 6, of the paper's six-layer models.
DSTG_R2: dict[tuple[str, str, str, int], float] = {
    (metric, model, part, column + 1): value
    for metric, rows in _PROBES.items()
    for (model, part), row in rows.items()
    for column, value in enumerate(row)
    if value is not None
}

TITLES = {
    "DSTG": "Give it Space! Explicit Disentangling of Positional and Semantic Representations in Encoders",
    "TUPE": "Rethinking Positional Encoding in Language Pre-training",
    "GEOM": "On the Geometry of Positional Encodings in Transformers",
    "LOWDIM": "Learned Transformer Position Embeddings Have a Low-Dimensional Structure",
    "SPLIT": "notes on separating semantics and position in transformers (French)",
}

# Authors, titles and identifiers as the papers themselves print them; no year and no venue where the text names none.
BIBTEX = {
    "dstg": """\
@misc{lequeu-give-it-space,
  title  = {Give it Space! Explicit Disentangling of Positional and Semantic
            Representations in Encoders},
  author = {Lequeu, Pierre-Antoine and Barboule, Camille and
            Piwowarski, Benjamin},
  note   = {Code: https://github.com/LequeuISIR/DSTG-encoder}
}""",
    "tupe": """\
@misc{ke-rethinking-positional-encoding,
  title         = {Rethinking Positional Encoding in Language
                   Pre-training},
  author        = {Ke, Guolin and He, Di and Liu, Tie-Yan},
  eprint        = {2006.15595},
  archivePrefix = {arXiv},
  note          = {Code: https://github.com/guolinke/TUPE}
}""",
    "geometry": """\
@misc{cirrincione-geometry-of-positional-encodings,
  title         = {On the Geometry of Positional Encodings
                   in Transformers},
  author        = {Cirrincione, Giansalvo},
  year          = {2026},
  eprint        = {2604.05217},
  archivePrefix = {arXiv}
}""",
    "lowdim": """\
@misc{wennberg-henter-low-dimensional,
  title  = {Learned Transformer Position Embeddings
            Have a Low-Dimensional Structure},
  author = {Wennberg, Ulme and Henter, Gustav Eje}
}""",
    "split": """\
@misc{separer-semantique-position,
  title = {S{\\'e}parer la s{\\'e}mantique de la position
           dans les transformers: Approche},
  note  = {Unpublished notes, in French}
}""",
}
