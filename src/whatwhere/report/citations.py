"""The papers behind a page, as BibTeX: authors, titles and identifiers as the papers themselves print them, nothing added."""

# Key -> entry. No year and no venue where the text at hand names none.
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
