"""How long requests take, and whether that was in time."""

from dashboard import Dashboard
from kinds import Heatmap, Lines, Shares, Stacked, Stat
from panel import Query

JOB = '{job="$job"}'
ANSWERS = '{job="$job", outcome=~"answered|late"}'
RATE = "[$__rate_interval]"
RED_BELOW_SLO = ((None, "red"), (0.97, "orange"), (0.99, "green"))


def quantile(q: float, metric: str, by: str, selector: str = JOB) -> str:
    """A quantile of a histogram, without a value where nothing was observed."""
    keep = f"{by}, " if by else ""
    group = f"sum by ({by}) " if by else "sum "
    return (
        f"histogram_quantile({q}, sum by ({keep}le) (rate({metric}_bucket{selector}{RATE})))"
        f" and {group}(rate({metric}_count{selector}{RATE})) > 0"
    )


def three(metric: str, selector: str = JOB) -> tuple[Query, ...]:
    """p50, p95 and p99."""
    return tuple(
        Query(quantile(q, metric, "", selector), f"p{q * 100:g}") for q in (0.5, 0.95, 0.99)
    )


DURATION = "san_request_duration_seconds"
STAGE = "san_stage_duration_seconds"

SUMMARY = (
    Stat(
        "Requests",
        "Requests per second, whatever became of them.",
        "reqps",
        (Query(f"sum(rate(san_requests_total{JOB}{RATE}))"),),
    ),
    Stat(
        "Budgets met",
        "Of the budgets that can be met on this host: those met, over five minutes. The objective "
        "is 99 %.",
        "percentunit",
        (Query(f"job:san_budget_attainment:ratio_rate5m{JOB}"),),
        empty="no budgets yet",
        decimals=2,
        steps=RED_BELOW_SLO,
    ),
    Stat(
        "p99 latency",
        "First byte received to first byte sent, of answers, over five minutes.",
        "s",
        (Query(f"job:san_answer_duration_seconds:p99_5m{JOB}"),),
    ),
    Stat(
        "Refused",
        "Share of requests turned away for load, or because the service was not ready, over five "
        "minutes.",
        "percentunit",
        (Query(f"job:san_refusals:ratio_rate5m{JOB}"),),
        decimals=2,
        steps=((None, "green"), (0.001, "orange"), (0.01, "red")),
    ),
    Stat(
        "Ready",
        "Replicas that are ready: bundle loaded, host measured, not draining.",
        "none",
        (Query(f"sum(san_ready{JOB})"),),
        empty="nothing scraped",
        steps=((None, "red"), (1, "green")),
    ),
    Stat(
        "Alerts",
        "Alerts that fire. Prometheus lists them under /alerts; docs/operations.md says what each "
        "one means.",
        "none",
        (Query('count(ALERTS{alertstate="firing", alertname=~"San.*"}) or vector(0)'),),
        empty="0",
        steps=((None, "green"), (1, "red")),
    ),
)

LATENCY = (
    Lines(
        "Latency of answers",
        "First byte received to first byte sent, over all resolutions.",
        "s",
        three(DURATION, ANSWERS),
        low=0,
    ),
    Heatmap(
        "Distribution of latency",
        "Answers per bucket of latency: two clouds are two operating points.",
        "s",
        (
            Query(
                f"sum by (le) (increase({DURATION}_bucket{ANSWERS}{RATE}))", "{{le}}", heatmap=True
            ),
        ),
        width=16,
    ),
    *(
        Lines(
            f"p{q * 100:g} by resolution",
            f"{share} of the answers at this resolution took no longer.",
            "s",
            (Query(quantile(q, DURATION, "resolution", ANSWERS), "{{resolution}}"),),
            low=0,
        )
        for q, share in ((0.5, "Half"), (0.95, "95 %"), (0.99, "99 %"))
    ),
    *(
        Lines(
            f"p{q * 100:g} by stage",
            "receive: the body arrives. decode: to pixels of the chosen size. queue: waiting for a "
            "decoder or a batch. weights: waiting for cold weights. forward: the engine. overhead: "
            "the rest.",
            "s",
            (Query(quantile(q, STAGE, "stage"), "{{stage}}"),),
            low=0,
        )
        for q in (0.5, 0.95, 0.99)
    ),
    Stacked(
        "Where the time goes",
        "Mean time of an answer, split by stage.",
        "s",
        (
            Query(
                f"sum by (stage) (rate({STAGE}_sum{JOB}{RATE}))"
                f" / (sum by (stage) (rate({STAGE}_count{JOB}{RATE})) > 0)",
                "{{stage}}",
            ),
        ),
        low=0,
        width=12,
    ),
    Lines(
        "Spent over predicted",
        "1: the prediction was exact. Above 1 it was too hopeful. Predictions are made for a high "
        "quantile, so most requests should stay below 1.",
        "none",
        three("san_prediction_ratio"),
        low=0,
        decimals=2,
        width=12,
    ),
)

BUDGETS = (
    Stacked(
        "Budgets",
        "Answers per second by what became of their budget. infeasible: this host cannot be that "
        "fast for anybody, the client asked for an answer all the same. none: no budget was given.",
        "reqps",
        (
            Query(
                f"sum by (result) (rate(san_budgets_total{JOB}{RATE}))",
                "{{result}}",
            ),
        ),
        empty="no budgets yet",
        low=0,
    ),
    Lines(
        "Budget attainment",
        "Share of the budgets that can be met which are met. The objective is 99 %.",
        "percentunit",
        (
            Query(f"job:san_budget_attainment:ratio_rate5m{JOB}", "5 minutes"),
            Query(f"job:san_budget_attainment:ratio_rate1h{JOB}", "1 hour"),
            Query("vector(0.99)", "objective"),
        ),
        empty="no budgets yet",
        high=1,
        decimals=2,
    ),
    Lines(
        "Burn rate",
        "How many times faster than allowed budgets are missed: at 1 the 1 % of thirty days lasts "
        "thirty days. The alerts look at 14.4 (fast) and 6 (slow).",
        "none",
        (
            Query(f"(1 - job:san_budget_attainment:ratio_rate5m{JOB}) / 0.01", "5 minutes"),
            Query(f"(1 - job:san_budget_attainment:ratio_rate1h{JOB}) / 0.01", "1 hour"),
            Query(f"(1 - job:san_budget_attainment:ratio_rate6h{JOB}) / 0.01", "6 hours"),
        ),
        empty="no budgets yet",
        low=0,
        decimals=1,
    ),
    Stacked(
        "Refusals",
        "Requests turned away per second. overloaded: the load leaves no room for the budget. "
        "impossible: no resolution is that fast here, and the client said refuse. expired: its "
        "time ran out while it waited. unavailable: not ready, or draining.",
        "reqps",
        (
            Query(
                'sum by (outcome) (rate(san_requests_total{job="$job", '
                f'outcome=~"overloaded|impossible|expired|unavailable"}}{RATE}))',
                "{{outcome}}",
            ),
        ),
        empty="nothing was refused",
        low=0,
        width=12,
    ),
    Shares(
        "Outcomes",
        "Shares of all requests.",
        "reqps",
        (Query(f"sum by (outcome) (rate(san_requests_total{JOB}{RATE}))", "{{outcome}}"),),
        low=0,
        width=12,
    ),
)

LOAD = (
    Lines(
        "Queue",
        "Requests inside, and those of them that are decoded and wait for the engine.",
        "none",
        (
            Query(f"sum(san_inflight_requests{JOB})", "inside"),
            Query(f"sum(san_queue_depth{JOB})", "waiting for the engine"),
        ),
        empty="nothing scraped",
        low=0,
    ),
    Lines(
        "Backlog",
        "How long the work that is inside will take: the most a new request would wait behind.",
        "s",
        (Query(f"max(san_backlog_seconds{JOB})", "largest"),),
        empty="nothing scraped",
        low=0,
    ),
    Lines(
        "Batch size",
        "Requests per run of the engine.",
        "none",
        (
            Query(
                f"sum(rate(san_batch_size_sum{JOB}{RATE}))"
                f" / (sum(rate(san_batch_size_count{JOB}{RATE})) > 0)",
                "mean",
            ),
            Query(quantile(0.95, "san_batch_size", ""), "p95"),
        ),
        low=0,
        decimals=1,
    ),
    Lines(
        "Drift against the profile",
        "Recent latencies over those measured at start. 1: nothing changed. Predictions follow; "
        "the alert asks why.",
        "none",
        (Query(f"san_latency_drift_ratio{JOB}", "{{instance}}"),),
        empty="nothing scraped",
        low=0,
        decimals=2,
    ),
    Lines(
        "Event loop lag",
        "How late the event loop was when last looked at; a loop that lags eats into every budget.",
        "s",
        (Query(f"max(san_loop_lag_seconds{JOB})", "largest"),),
        empty="nothing scraped",
        low=0,
    ),
    Lines(
        "Cores and memory",
        "Cores in use, and resident memory at the right.",
        "none",
        (
            Query(f"sum(rate(process_cpu_seconds_total{JOB}{RATE}))", "cores"),
            Query(f"sum(process_resident_memory_bytes{JOB})", "memory", right_axis_unit="decbytes"),
        ),
        empty="nothing scraped",
        low=0,
        decimals=2,
    ),
    Stacked(
        "Problems by type",
        "Requests per second that ended in a problem, by the type the client was told.",
        "reqps",
        (Query(f"sum by (type) (rate(san_errors_total{JOB}{RATE}))", "{{type}}"),),
        empty="no problems",
        low=0,
        width=24,
        height=7,
    ),
)

DASHBOARD = Dashboard(
    "san-latency",
    "Latency and budgets",
    "How long requests take, and whether that was in time.",
    (
        ("Now", SUMMARY),
        ("Budgets", BUDGETS),
        ("Latency", LATENCY),
        ("Load", LOAD),
    ),
)
