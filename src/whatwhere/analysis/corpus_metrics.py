"""Metrics of a corpus's geometry, which `corpus_geometry` and `study.geometry_run` record; methods.md says how."""

from ..records.metric import (
    CORRECTED,
    CORRELATION,
    GROUPS,
    NOT_NEGATIVE,
    ROWS,
    SCALES,
    SHARE,
    TABLE,
    Metric,
    stress_of,
    with_endings,
)
from ..records.metrics import add_metrics

add_metrics(
    {
        **with_endings(
            "distance.mean",
            CORRECTED,
            Metric(name="root mean square distance", counts="positions", over=GROUPS, method="geometry"),
        ),
        "floor.mean": Metric(
            name="noise floor", counts="positions", over="random halves", method="geometry", range=NOT_NEGATIVE
        ),
        "between": Metric(
            name="distance",
            part="two corpora",
            index="position",
            over="random halves",
            method="geometry",
            range=NOT_NEGATIVE,
        ),
        "stress.raw": stress_of("raw stress"),
        "stress.optimal": stress_of("stress at the best scale"),
        "stress.held_out": stress_of("stress on other documents"),
        **with_endings("stress.ratio.", SCALES, stress_of("stress of one table over another table's")),
        **with_endings("stress.", [f"{scale}.corrected" for scale in ("raw", "optimal")], stress_of("stress")),
        **with_endings(
            "violations",
            CORRECTED,
            Metric(
                name="triples out of order",
                unit=SHARE,
                part=TABLE,
                index="rank",
                counts="positions",
                over=GROUPS,
                method="geometry",
            ),
        ),
        **with_endings(
            "correlation",
            CORRECTED,
            Metric(
                name="correlation with the corpus",
                part=TABLE,
                counts="positions",
                over=GROUPS,
                method="geometry",
                range=CORRELATION,
            ),
        ),
        "separation": Metric(
            name="smallest distance of two positions",
            part=ROWS,
            counts="positions",
            method="geometry",
            range=NOT_NEGATIVE,
        ),
        **with_endings(
            "lag.correlation",
            CORRECTED,
            Metric(
                name="correlation with the lag", counts="positions", over=GROUPS, method="geometry", range=CORRELATION
            ),
        ),
        **with_endings(
            "rank",
            CORRECTED,
            Metric(name="rank", counts="positions", over=GROUPS, method="geometry", range=NOT_NEGATIVE),
        ),
        "support": Metric(name="tokens of the rarest position", unit="tokens", counts="positions", method="geometry"),
        "positions.kept": Metric(name="positions kept", unit="positions", method="geometry"),
        **with_endings(
            "lag.share",
            CORRECTED,
            Metric(name="share of the lag alone", unit=SHARE, counts="positions", over=GROUPS, method="geometry"),
        ),
        **with_endings(
            "toeplitz",
            CORRECTED,
            Metric(name="share of Toeplitz matrices", unit=SHARE, counts="positions", over=GROUPS, method="geometry"),
        ),
        **with_endings(
            "circulant",
            CORRECTED,
            Metric(name="share of circulant matrices", unit=SHARE, counts="positions", over=GROUPS, method="geometry"),
        ),
        **with_endings(
            "mds.share",
            CORRECTED,
            Metric(
                name="share of variance",
                unit=SHARE,
                index="component",
                counts="positions",
                over=GROUPS,
                method="geometry",
            ),
        ),
    }
)
