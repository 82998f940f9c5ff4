"""
The words of the product, each an enumeration; docs/glossary.md explains them.

A value is what stands in files and JSON. No other module spells one of these strings.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cached_property


class Objective(StrEnum):
    """What the campaign is for; the same measurements can end in different verdicts."""

    POC = "poc"
    AGENT = "agent"
    PLATFORM = "platform"
    PRODUCTION = "production"


class StageName(StrEnum):
    """A step of the calendar; the value is the notebook's file name without its ending."""

    SCENE = "10_scene"
    COMPATIBILITY = "20_compatibility"
    MINIMAL_START = "30_minimal_start"
    SINGLE_REQUEST = "40_single_request"
    PREFIX_CACHE = "50_prefix_cache"
    LONG_CONTEXT = "60_long_context"
    CONCURRENCY = "70_concurrency"
    MULTI_NODE = "80_multi_node"
    DECISION = "90_decision"


class EngineKind(StrEnum):
    """How an engine is reached."""

    REHEARSAL = "rehearsal"
    LOCAL = "local"
    DOCKER = "docker"
    SLURM = "slurm"
    ATTACH = "attach"
    LOGS = "logs"


class Phase(StrEnum):
    """How far a start got, by the last milestone reached; the order is the order of a start."""

    CONTAINER = "container"
    CONFIG = "config"
    INIT = "init"
    WEIGHTS = "weights"
    MEMORY = "memory"
    SERVING = "serving"

    @cached_property
    def order(self) -> int:
        """Position in a start, 0 for container."""
        return list(Phase).index(self)


class Milestone(StrEnum):
    """A line of an engine's log that proves that a step of the start is done."""

    CONTAINER_STARTED = "container-started"
    PROGRAM_STARTED = "program-started"
    API_SERVER_STARTED = "api-server-started"
    ARGUMENTS_PARSED = "arguments-parsed"
    ARCHITECTURE_RESOLVED = "architecture-resolved"
    MAX_MODEL_LEN = "max-model-len"
    CACHE_MODE = "cache-mode"
    HEADLESS_STARTED = "headless-started"
    ENGINE_INITIALIZING = "engine-initializing"
    WORLD_JOINED = "world-joined"
    COMMUNICATOR_READY = "communicator-ready"
    WEIGHTS_LOADING = "weights-loading"
    WEIGHTS_PROGRESS = "weights-progress"
    WEIGHTS_READ = "weights-read"
    WEIGHTS_LOADED = "weights-loaded"
    BLOCK_SIZE = "block-size"
    PROFILING_STARTED = "profiling-started"
    KV_MEMORY_KNOWN = "kv-memory-known"
    KV_CACHE_ALLOCATED = "kv-cache-allocated"
    GRAPHS_CAPTURING = "graphs-capturing"
    GRAPHS_CAPTURED = "graphs-captured"
    ENGINE_READY = "engine-ready"
    HTTP_STARTING = "http-starting"
    HTTP_READY = "http-ready"
    FIRST_ANSWER = "first-answer"
    CACHE_SIGNAL = "cache-signal"
    LOAD_SEEN = "load-seen"
    SHUTDOWN = "shutdown"

    @cached_property
    def order(self) -> int:
        """Position in a start, 0 for container-started."""
        return list(Milestone).index(self)


class Oom(StrEnum):
    """What an out-of-memory message is."""

    NONE = "none"
    ROOT = "root"
    SECONDARY = "secondary"
    HOST_RAM = "host-ram"
    KV_CACHE = "kv-cache"


class Route(StrEnum):
    """What a failure asks for next; certain is any but the last two."""

    FIX_COMMAND = "fix-command"
    FIX_ENVIRONMENT = "fix-environment"
    TUNE = "tune"
    MIGRATE = "migrate"
    EXTEND = "extend"
    REPORT_UPSTREAM = "report-upstream"
    FIX_CLIENT = "fix-client"
    NONE = "none"
    INCONCLUSIVE = "inconclusive"


class Domain(StrEnum):
    """The specialist a failure goes to (R-68)."""

    CUDA = "cuda"
    MEMORY = "memory"
    CACHE = "cache"
    NETWORK = "network"
    WEIGHTS = "weights"
    ENGINE = "engine"
    APPLICATION = "application"
    HOST = "host"


class Outcome(StrEnum):
    """What a rule found. SKIP names the missing evidence; ERROR means our rule broke."""

    PASS = "PASS"
    WARN = "WARN"
    FAIL = "FAIL"
    SKIP = "SKIP"
    ERROR = "ERROR"
    NOT_APPLICABLE = "NOT_APPLICABLE"


class Decision(StrEnum):
    """The verdict of a campaign."""

    KEEP = "KEEP"
    TUNE = "TUNE"
    MIGRATE = "MIGRATE"
    EXTEND = "EXTEND"
    REPRODUCE = "REPRODUCE"
    INCONCLUSIVE = "INCONCLUSIVE"


class SessionState(StrEnum):
    """How a session ended. RUNNING on disk with no process behind it reads as KILLED."""

    RUNNING = "running"
    CLOSED = "closed"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    TIMED_OUT = "timed-out"
    KILLED = "killed"


class Ending(StrEnum):
    """How a trial's engine ended."""

    STOPPED = "stopped"
    DIED = "died"
    TIMED_OUT = "timed-out"
    INTERRUPTED = "interrupted"
    NOT_STARTED = "not-started"


class Provenance(StrEnum):
    """Where the evidence of a session comes from."""

    ENGINE = "engine"
    REHEARSAL = "rehearsal"
    LOGS = "logs"


class Probe(StrEnum):
    """Why a request was sent."""

    WARM_UP = "warm-up"
    FROZEN = "frozen"
    API = "api-compatibility"
    RENDERING = "rendering"
    TOOL_CALL = "tool-call"
    COHERENCE = "coherence"


class Part(StrEnum):
    """How a field of a fingerprint takes part in a comparison."""

    IDENTITY = "identity"
    FACTOR = "factor"
    NOISE = "noise"


class Severity(StrEnum):
    """How much a difference or a condition of a machine weighs."""

    NOTE = "note"
    WARN = "warn"
    BREAK = "break"

    @cached_property
    def order(self) -> int:
        """Position, 0 for note."""
        return list(Severity).index(self)


class Voids(StrEnum):
    """
    What a difference between two fingerprints, or a condition of one, takes away.

    Metrics: numbers are not compared, stage and verdict may be. Series: two series, unless it is the one declared
    change. Trials: what ran in that state does not count.
    """

    NOTHING = "nothing"
    METRICS = "metrics"
    SERIES = "series"
    TRIALS = "trials"


class HostLink(StrEnum):
    """What carries tokens between the hosts of one engine."""

    NVLINK = "nvlink"
    RDMA = "rdma"
    ETHERNET = "ethernet"
