"""The cache of generated weights, and what generating costs."""

from dashboard import Dashboard
from kinds import Lines, Stacked, Stat, Table
from latency_and_budgets import JOB, RATE, quantile, three
from panel import Query

EMPTY = "no bundle is served"
BUILD = "san_weight_build_duration_seconds"

SUMMARY = (
    Stat(
        "Hit ratio",
        "Requests that found their weights ready, over five minutes.",
        "percentunit",
        (Query(f"job:san_weight_cache_hits:ratio_rate5m{JOB}"),),
        decimals=2,
        steps=((None, "red"), (0.9, "orange"), (0.99, "green")),
        width=6,
    ),
    Stat(
        "Networks ready",
        "Main networks in the cache.",
        "none",
        (Query(f"sum(san_weight_cache_networks{JOB})"),),
        empty=EMPTY,
        width=6,
    ),
    Stat(
        "Cache used",
        "Bytes of cached weights over the bytes the cache may hold.",
        "percentunit",
        (Query(f"sum(san_weight_cache_bytes{JOB}) / sum(san_weight_cache_capacity_bytes{JOB})"),),
        empty=EMPTY,
        decimals=1,
        steps=((None, "green"), (0.9, "orange")),
        width=6,
    ),
    Stat(
        "Evictions",
        "Networks evicted in the last hour.",
        "none",
        (Query(f"round(sum(increase(san_weight_cache_evictions_total{JOB}[1h])))"),),
        empty=EMPTY,
        steps=((None, "green"), (1, "orange")),
        width=6,
    ),
)

CACHE = (
    Stacked(
        "Hits and misses",
        "Requests per second that found their weights ready, or had to have them generated.",
        "reqps",
        (
            Query(f"sum(rate(san_weight_cache_hits_total{JOB}{RATE}))", "hits"),
            Query(f"sum(rate(san_weight_cache_misses_total{JOB}{RATE}))", "misses"),
        ),
        empty=EMPTY,
        low=0,
    ),
    Lines(
        "Bytes",
        "Bytes of cached weights, and the bytes the cache may hold.",
        "decbytes",
        (
            Query(f"sum(san_weight_cache_bytes{JOB})", "used"),
            Query(f"sum(san_weight_cache_capacity_bytes{JOB})", "capacity"),
        ),
        empty=EMPTY,
        low=0,
    ),
    Lines(
        "Networks",
        "Main networks in the cache; each has an operating point of its own.",
        "none",
        (Query(f"sum by (instance) (san_weight_cache_networks{JOB})", "{{instance}}"),),
        empty=EMPTY,
        low=0,
        decimals=0,
    ),
    Lines(
        "Evictions and failures",
        "Per second: networks evicted to make room, networks that could not be built.",
        "ops",
        (
            Query(f"sum(rate(san_weight_cache_evictions_total{JOB}{RATE}))", "evictions"),
            Query(f"sum(rate(san_weight_cache_failures_total{JOB}{RATE}))", "failures"),
        ),
        empty=EMPTY,
        low=0,
    ),
    Lines(
        "Time to make a network ready",
        "Generating its weights from the meta network, folding and compiling.",
        "s",
        three(BUILD),
        empty="nothing generated in this time",
        low=0,
    ),
    Lines(
        "Networks made ready",
        "Per second.",
        "ops",
        (Query(f"sum(rate({BUILD}_count{JOB}{RATE}))", "generated"),),
        empty=EMPTY,
        low=0,
    ),
    Lines(
        "Waiting for weights",
        "What cold weights add to an answer: 0 where they were cached.",
        "s",
        (
            Query(
                quantile(0.99, "san_stage_duration_seconds", "", '{job="$job", stage="weights"}'),
                "p99",
            ),
        ),
        low=0,
        width=12,
    ),
    Stacked(
        "Bundle reloads",
        "Swaps of the bundle in the last hour, by result.",
        "none",
        (Query(f"round(sum by (result) (increase(san_reloads_total{JOB}[1h])))", "{{result}}"),),
        empty="nothing scraped",
        low=0,
        decimals=0,
        width=12,
    ),
)

MODEL = (
    Table(
        "Bundles served",
        "Which bundle serves, on what; during an upgrade there are two.",
        "none",
        (Query(f"san_model_info{JOB}", instant=True),),
        empty=EMPTY,
        width=24,
        height=5,
        columns={
            "instance": ("instance", "none"),
            "name": ("bundle", "none"),
            "version": ("version", "none"),
            "engine": ("engine", "none"),
            "device": ("device", "none"),
            "sha256": ("SHA-256", "none"),
        },
    ),
)

DASHBOARD = Dashboard(
    "san-weights",
    "Weights",
    "The cache of generated weights, and what generating costs.",
    (("Now", SUMMARY), ("Cache", CACHE), ("Bundles", MODEL)),
)
