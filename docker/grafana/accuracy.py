"""How accurate the answers are, as far as can be known."""

from dashboard import Dashboard
from kinds import Lines, Shares, Stat, Table
from latency_and_budgets import ANSWERS, JOB, RATE
from panel import Query

EXPECTED = f"sum(rate(san_expected_accuracy_count_total{JOB}{RATE}))"

SUMMARY = (
    Stat(
        "Expected accuracy",
        "Mean measured accuracy of the operating points that answered, over five minutes.",
        "percentunit",
        (Query(f"job:san_expected_accuracy:mean_5m{JOB}"),),
        decimals=1,
        width=5,
    ),
    Stat(
        "Given up to load",
        "Accuracy per answer that an idle service would have added within the same budgets, over "
        "five minutes.",
        "percentunit",
        (Query(f"job:san_accuracy_given_up:mean_5m{JOB}"),),
        decimals=2,
        steps=((None, "green"), (0.005, "orange"), (0.02, "red")),
        width=5,
    ),
    Stat(
        "Accuracy by feedback",
        "Share of right answers among those that feedback came for, over an hour.",
        "percentunit",
        (Query(f"job:san_feedback_accuracy:ratio_1h{JOB}"),),
        empty="no feedback yet",
        decimals=1,
        width=5,
    ),
    Stat(
        "Feedback received",
        "Answers that feedback came for in the last hour: how far the accuracy beside can be "
        "trusted.",
        "none",
        (Query(f"round(job:san_feedback:increase1h{JOB})"),),
        empty="no feedback yet",
        width=4,
    ),
    Stat(
        "Agreement",
        "Of the requests run again at the best operating point: those with the same first class, "
        "over an hour.",
        "percentunit",
        (Query(f"job:san_agreement:ratio_1h{JOB}"),),
        empty="nothing compared yet",
        decimals=1,
        width=5,
    ),
)

SERVED = (
    Lines(
        "Expected accuracy served",
        "Mean measured accuracy of the points that answered, and the best that the bundle has: "
        "the distance is what budgets and load cost.",
        "percentunit",
        (
            Query(
                f"sum(rate(san_expected_accuracy_sum_total{JOB}{RATE})) / ({EXPECTED} > 0)",
                "served",
            ),
            Query(f"max(san_point_accuracy{JOB})", "best point"),
        ),
        decimals=1,
        width=12,
    ),
    Shares(
        "Resolution mix",
        "Share of answers by resolution: under load, or with shorter budgets, it moves down.",
        "reqps",
        (
            Query(
                f"sum by (resolution) (rate(san_requests_total{ANSWERS}{RATE}))", "{{resolution}}"
            ),
        ),
        low=0,
        width=12,
    ),
    Lines(
        "Accuracy given up to load",
        "Per answer, and at the right the share of answers that load lowered.",
        "percentunit",
        (
            Query(
                f"sum(rate(san_accuracy_given_up_sum_total{JOB}{RATE})) / ({EXPECTED} > 0)",
                "accuracy per answer",
            ),
            Query(
                f"sum(rate(san_accuracy_given_up_count_total{JOB}{RATE})) / ({EXPECTED} > 0)",
                "answers lowered",
                right_axis_unit="percentunit",
            ),
        ),
        low=0,
        decimals=2,
        width=12,
    ),
    Shares(
        "Mode mix",
        "Share of answers by mode: proxy, ideal (calibrated) or data_free.",
        "reqps",
        (Query(f"sum by (mode) (rate(san_requests_total{ANSWERS}{RATE}))", "{{mode}}"),),
        low=0,
        width=12,
    ),
)

TRUTH = (
    Lines(
        "Feedback against expectation",
        "Right answers among those that feedback came for, what was expected of the same answers, "
        "and their number at the right; over an hour.",
        "percentunit",
        (
            Query(f"job:san_feedback_accuracy:ratio_1h{JOB}", "by feedback"),
            Query(f"job:san_feedback_expected_accuracy:mean_1h{JOB}", "expected"),
            Query(f"job:san_feedback:increase1h{JOB}", "n", right_axis_unit="short"),
        ),
        empty="no feedback yet",
        decimals=1,
        width=12,
    ),
    Lines(
        "Feedback by resolution",
        "Right answers among those that feedback came for, over an hour.",
        "percentunit",
        (Query(f"job_resolution:san_feedback_accuracy:ratio_1h{JOB}", "{{resolution}}"),),
        empty="no feedback yet",
        decimals=1,
        width=12,
    ),
    Lines(
        "Agreement with the best point",
        "A sample of requests is run again at the best point while the service is idle: how often "
        "the first class is the same, and how many were compared. Needs no labels.",
        "percentunit",
        (
            Query(f"job:san_agreement:ratio_1h{JOB}", "agreement"),
            Query(f"job:san_agreement:increase1h{JOB}", "n", right_axis_unit="short"),
        ),
        empty="nothing compared yet",
        decimals=1,
        width=12,
    ),
    Lines(
        "Agreement by resolution",
        "Over an hour.",
        "percentunit",
        (
            Query(
                f"sum by (resolution) (increase(san_agreement_top1_total{JOB}[1h]))"
                f" / (sum by (resolution) (increase(san_agreement_known_total{JOB}[1h])) > 0)",
                "{{resolution}}",
            ),
        ),
        empty="nothing compared yet",
        decimals=1,
        width=12,
    ),
)

POINTS = (
    Table(
        "Frontier of this host",
        "The operating points the policy chooses among: measured accuracy, and latency as "
        "predicted now (engine alone, batch 1).",
        "none",
        (
            Query(f"max by (resolution, mode, precision) (san_point_accuracy{JOB})", instant=True),
            *(
                Query(
                    "max by (resolution, mode, precision) "
                    f'(san_point_latency_seconds{{job="$job", quantile="{q}"}})',
                    instant=True,
                )
                for q in ("0.5", "0.99")
            ),
        ),
        empty="nothing measured yet",
        width=24,
        columns={
            "resolution": ("resolution", "none"),
            "mode": ("mode", "none"),
            "precision": ("precision", "none"),
            "Value #A": ("accuracy", "percentunit"),
            "Value #B": ("p50", "s"),
            "Value #C": ("p99", "s"),
        },
        sort_by="p99",
    ),
)

DASHBOARD = Dashboard(
    "san-accuracy",
    "Accuracy",
    "How accurate the answers are: expected, by feedback, and by agreement.",
    (
        ("Now", SUMMARY),
        ("Served", SERVED),
        ("Against the truth", TRUTH),
        ("Operating points", POINTS),
    ),
)
