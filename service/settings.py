"""Every setting: typed, bounded, described; from the environment (`SAN_*`) or `san serve --…`."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, IPvAnyNetwork, SecretStr, field_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

MEGA = 1_000_000
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s]+", re.IGNORECASE)
ImageFormat = Literal["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "AVIF", "HEIF"]


class Settings(BaseSettings):
    """What a service is started with; passed in, never imported as a global."""

    model_config = SettingsConfigDict(
        env_prefix="SAN_", extra="forbid", frozen=True, use_attribute_docstrings=True
    )

    # the bundle, and where it is served
    bundle: Path | None = None
    """bundle file to serve; the embedded one by default"""
    host: str = "127.0.0.1"
    """address to listen on"""
    port: int = Field(8000, ge=0, le=65535)
    """port to listen on; 0 picks a free one"""
    grpc_port: int | None = Field(None, ge=0, le=65535)
    """port for the Open Inference Protocol over gRPC (needs the extra `grpc`); none leaves it
    off"""
    cache_dir: Path | None = None
    """where compiled networks and what was measured on this host are kept; the user's cache
    directory by default"""
    machine: str | None = Field(None, max_length=253)
    """name of the machine whose measurements are kept, for a cache directory that several machines
    share; its CPU and quota tell it by default"""

    # what runs it
    engine: Literal["auto", "openvino", "torch"] = "auto"
    """what runs the networks; auto takes OpenVINO where it works"""
    device: str = Field("auto", pattern=r"^(auto|cpu|cuda(:\d+)?)$")
    """auto, cpu, cuda or cuda:N"""
    engine_threads: int = Field(0, ge=0, le=512)
    """threads of the engine; 0 shares out the cores"""
    decode_threads: int = Field(0, ge=0, le=128)
    """threads that decode images; 0 shares out the cores"""
    workers: int = Field(1, ge=1, le=256)
    """processes that serve the port together and share out the cores"""
    precision: Literal["auto", "float", "int8"] = "auto"
    """precisions the policy considers; auto: all that bundle and engine have"""
    bf16: bool = False
    """let float points run in bfloat16 on CPUs that are faster at it; accuracies were measured in
    float32"""

    # budgets
    promise: float = Field(0.99, ge=0.5, le=0.999)
    """share of answers that must be in time where the service says they will be"""
    patience_ms: float = Field(2000.0, gt=0, le=600_000)
    """how long a request that names no budget may wait for others"""

    # batching and admission
    max_batch: int = Field(8, ge=1, le=256)
    """largest batch the engine runs"""
    max_inflight: int = Field(256, ge=1, le=100_000)
    """requests inside at once; more are refused"""
    max_inflight_megabytes: int = Field(512, ge=1, le=1_000_000)
    """megabytes of request bodies inside at once"""

    client_share: float = Field(0.5, gt=0, le=1)
    """share of the requests and bytes inside that one client may have"""
    max_connections: int = Field(4096, ge=8, le=1_000_000)
    """connections open at once; one address gets a quarter of them"""

    # weight cache
    cache_megabytes: int = Field(1536, ge=1, le=1_000_000)
    """megabytes that main networks kept ready may occupy"""
    max_networks: int = Field(48, ge=1, le=10_000)
    """main networks kept ready, whatever their size (distinct shapes)"""

    # limits on what a client may send
    max_body_megabytes: float = Field(20.0, gt=0, le=1000)
    """largest request body"""
    max_megapixels: float = Field(50.0, gt=0, le=1000)
    """largest image, checked before decoding"""
    formats: Annotated[tuple[ImageFormat, ...], NoDecode] = Field(
        ("JPEG", "PNG", "WEBP"), min_length=1
    )
    """image formats taken, comma separated; can be JPEG, PNG, WEBP, GIF, BMP, TIFF, PPM, AVIF, HEIF
    (with the extra `heif`)"""
    max_decode_ms: float = Field(250.0, gt=0, le=60_000)
    """most CPU time that decoding one image may take, by its header and in fact"""
    max_decode_megabytes: int = Field(128, ge=1, le=100_000)
    """most memory that decoding one image may take"""
    decode_helpers: int = Field(0, ge=0, le=128)
    """processes that decode every image but plain JPEGs; 0: half as many as cores, at least 2"""
    receive_timeout_s: float = Field(10.0, gt=0, le=3600)
    """time a request's headers, and its body, may take to arrive"""
    max_resolution: int = Field(512, ge=32, le=1024)
    """largest resolution a client may pin"""

    # who may call
    api_keys: Annotated[tuple[SecretStr, ...], NoDecode] = ()
    """API keys, comma separated; none leaves the API open"""
    api_keys_file: Path | None = None
    """file with one API key per line"""
    metrics_keys: Annotated[tuple[SecretStr, ...], NoDecode] = ()
    """keys for /metrics, comma separated; none leaves it open"""
    metrics_keys_file: Path | None = None
    """file with one key for /metrics per line"""
    admin_keys: Annotated[tuple[SecretStr, ...], NoDecode] = ()
    """keys for /admin, comma separated; none leaves it to clients on this machine"""
    admin_keys_file: Path | None = None
    """file with one key for /admin per line"""

    trusted_proxies: Annotated[tuple[IPvAnyNetwork, ...], NoDecode] = ()
    """addresses or networks of proxies whose X-Forwarded-For is believed, comma separated; none:
    from no proxy"""
    cors_origins: Annotated[tuple[str, ...], NoDecode] = ()
    """origins of web pages elsewhere that may call the API, comma separated, as
    https://app.example.org; * is any; none allows none"""

    # a new bundle
    candidate: Path | None = None
    """bundle to try beside the one that serves, from the start"""
    canary: float = Field(0.0, ge=0, le=0.5)
    """share of the clients that the candidate serves"""
    candidate_fraction: float = Field(0.2, ge=0, le=1)
    """share of images that the candidate answers too, while the service is idle"""
    candidate_agreement: float = Field(0.8, ge=0, le=1)
    """share of images on which a candidate must agree with the bundle that serves"""
    rollback_s: float = Field(300.0, ge=0, le=86_400)
    """seconds after its promotion in which a bundle is rolled back if it is worse"""

    # pictures seen again
    answer_cache_megabytes: int = Field(0, ge=0, le=100_000)
    """megabytes of answers kept for images that are sent again; 0 keeps none"""
    answer_cache_ttl_s: float = Field(600.0, gt=0, le=86_400)
    """how long an answer is kept"""

    # observability
    record: Path | None = None
    """file to append arrivals to (time, bytes, image size, budget, outcome; never pixels), for `san
    replay`"""
    agreement_fraction: float = Field(0.01, ge=0, le=1)
    """share of requests that are run again at the best point while idle, to compare"""
    feedback_entries: int = Field(20_000, ge=1, le=10_000_000)
    """answered requests remembered for feedback"""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """what the log shows"""
    log_format: Literal["auto", "json", "text"] = "auto"
    """one JSON object or one line of text per event; auto: lines for people on a terminal, JSON
    elsewhere"""
    access_log: bool = True
    """log each classified request"""

    # life
    drain_grace_s: float = Field(0.0, ge=0, le=300)
    """seconds to go on serving after SIGTERM, while /readyz already says no"""
    drain_timeout_s: float = Field(30.0, ge=0, le=3600)
    """longest wait for requests in flight at shutdown"""
    keep_alive_s: float = Field(75.0, gt=0, le=3600)
    """how long an idle connection stays open"""

    @field_validator(
        "api_keys",
        "metrics_keys",
        "admin_keys",
        "trusted_proxies",
        "cors_origins",
        mode="before",
    )
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(key for key in (part.strip() for part in value.split(",")) if key)
        return value

    @field_validator("cors_origins")
    @classmethod
    def _origins(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        for origin in origins:
            if origin != "*" and not _ORIGIN.fullmatch(origin):
                raise PydanticCustomError(
                    "no_origin", "an origin is like https://app.example.org, without a path"
                )
        return origins

    @field_validator("formats", mode="before")
    @classmethod
    def _named(cls, value: object) -> object:
        """Take HEIC for HEIF, and small letters for capitals."""
        names = cls._split(value)
        if not isinstance(names, tuple):
            return names
        return tuple("HEIF" if name.upper() == "HEIC" else name.upper() for name in names)

    @field_validator("formats")
    @classmethod
    def _decodable(cls, formats: tuple[ImageFormat, ...]) -> tuple[ImageFormat, ...]:
        if "HEIF" in formats and find_spec("pi_heif") is None:
            raise PydanticCustomError(
                "no_codec", "HEIF needs pi-heif, pip install 'san-serve[heif]'"
            )
        return formats

    @property
    def max_body_bytes(self) -> int:
        """The largest body, in bytes."""
        return int(self.max_body_megabytes * MEGA)

    @property
    def max_pixels(self) -> int:
        """The largest image, in pixels."""
        return int(self.max_megapixels * MEGA)


for _field in Settings.model_fields.values():
    _field.description = " ".join(str(_field.description).split())  # whatever lines it stands on
