"""Every setting: typed, bounded, described; from the environment (`SAN_*`) or `san serve --…`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, IPvAnyNetwork, SecretStr, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

MEGA = 1_000_000


class Settings(BaseSettings):
    """What a service is started with; passed in, never imported as a global."""

    model_config = SettingsConfigDict(env_prefix="SAN_", extra="forbid", frozen=True)

    # what is served, and where
    bundle: Path | None = Field(
        None, description="bundle file to serve; the embedded one by default"
    )
    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(8000, ge=0, le=65535, description="port to listen on; 0 picks a free one")
    cache_dir: Path | None = Field(
        None,
        description="where what was measured on this host is kept; beside the bundle if it can "
        "be written there, else the user's cache directory",
    )

    # what runs it
    engine: Literal["auto", "openvino", "torch"] = Field(
        "auto", description="what runs the networks; auto takes OpenVINO where it works"
    )
    device: str = Field(
        "auto", pattern=r"^(auto|cpu|cuda(:\d+)?)$", description="auto, cpu, cuda or cuda:N"
    )
    engine_threads: int = Field(
        0, ge=0, le=512, description="threads of the engine; 0 shares out the cores"
    )
    decode_threads: int = Field(
        0, ge=0, le=128, description="threads that decode images; 0 shares out the cores"
    )
    workers: int = Field(
        1,
        ge=1,
        le=256,
        description="processes that serve the port together and share out the cores",
    )
    precision: Literal["auto", "float", "int8"] = Field(
        "auto",
        description="precisions the policy considers; auto: all that bundle and engine have",
    )
    bf16: bool = Field(
        False,
        description="let float points run in bfloat16 on CPUs that are faster at it; accuracies "
        "were measured in float32",
    )

    # budgets
    quantile: float = Field(
        0.99, ge=0.5, le=0.999, description="latency quantile a prediction must fit the budget with"
    )
    patience_ms: float = Field(
        2000.0,
        gt=0,
        le=600_000,
        description="how long a request that names no budget may wait for others",
    )
    queue_safety: float = Field(
        1.25,
        ge=1,
        le=10,
        description="factor on predicted waiting; what queues is less certain than what runs",
    )

    load_reserve: float = Field(
        3.0,
        ge=0,
        le=100,
        description="how many times the predicted wait the most accurate point must leave free; "
        "lowers the resolution early under load",
    )

    # batching and admission
    max_batch: int = Field(8, ge=1, le=256, description="largest batch the engine runs")
    batch_window_ms: float = Field(
        2.0, ge=0, le=1000, description="longest that a batch stays open for requests being decoded"
    )
    max_inflight: int = Field(
        256, ge=1, le=100_000, description="requests inside at once; more are refused"
    )
    max_inflight_megabytes: int = Field(
        512, ge=1, le=1_000_000, description="megabytes of request bodies inside at once"
    )

    # weight cache
    cache_megabytes: int = Field(
        1536, ge=1, le=1_000_000, description="megabytes that main networks kept ready may occupy"
    )
    max_networks: int = Field(
        48,
        ge=1,
        le=10_000,
        description="main networks kept ready, whatever their size (distinct shapes)",
    )

    # limits on what a client may send
    max_body_megabytes: float = Field(20.0, gt=0, le=1000, description="largest request body")
    max_megapixels: float = Field(
        50.0, gt=0, le=1000, description="largest image, checked before decoding"
    )
    max_frames: int = Field(
        512, ge=1, le=100_000, description="most frames of an image; the first is classified"
    )
    receive_timeout_s: float = Field(
        10.0,
        gt=0,
        le=3600,
        description="time a request's headers, and its body, may take to arrive",
    )
    max_resolution: int = Field(
        512, ge=32, le=1024, description="largest resolution a client may pin"
    )

    # who may call
    api_keys: Annotated[tuple[SecretStr, ...], NoDecode] = Field(
        (), description="API keys, comma separated; none leaves the API open"
    )
    api_keys_file: Path | None = Field(None, description="file with one API key per line")
    metrics_keys: Annotated[tuple[SecretStr, ...], NoDecode] = Field(
        (), description="keys for /metrics, comma separated; none leaves it open"
    )
    metrics_keys_file: Path | None = Field(
        None, description="file with one key for /metrics per line"
    )
    admin_keys: Annotated[tuple[SecretStr, ...], NoDecode] = Field(
        (),
        description="keys for /admin, comma separated; none leaves it to clients on this machine",
    )
    admin_keys_file: Path | None = Field(None, description="file with one key for /admin per line")

    trusted_proxies: Annotated[tuple[IPvAnyNetwork, ...], NoDecode] = Field(
        (),
        description="addresses or networks of proxies whose X-Forwarded-For is believed, comma "
        "separated; none believes nobody",
    )

    # what is observed
    agreement_fraction: float = Field(
        0.01,
        ge=0,
        le=1,
        description="share of requests run again at the best point when idle, to compare",
    )
    feedback_entries: int = Field(
        20_000, ge=1, le=10_000_000, description="answered requests remembered for feedback"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="what the log shows"
    )
    log_format: Literal["json", "text"] = Field(
        "json", description="one JSON object or one line of text per event"
    )
    access_log: bool = Field(True, description="log each classified request")

    # life
    drain_grace_s: float = Field(
        0.0,
        ge=0,
        le=300,
        description="after SIGTERM, go on serving for so long while /readyz already says no",
    )
    drain_timeout_s: float = Field(
        30.0, ge=0, le=3600, description="longest wait for requests in flight at shutdown"
    )
    keep_alive_s: float = Field(
        75.0, gt=0, le=3600, description="how long an idle connection stays open"
    )

    @field_validator("api_keys", "metrics_keys", "admin_keys", "trusted_proxies", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(key for key in (part.strip() for part in value.split(",")) if key)
        return value

    @property
    def max_body_bytes(self) -> int:
        """The largest body, in bytes."""
        return int(self.max_body_megabytes * MEGA)

    @property
    def max_pixels(self) -> int:
        """The largest image, in pixels."""
        return int(self.max_megapixels * MEGA)
