"""The strict base of every model: unknown keys refused, no silent conversion, frozen."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Strict(BaseModel):
    """What a person writes. An unknown key or a wrong type is an error."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Fact(BaseModel):
    """What we write and read back. Additive: an older or newer file with other keys still opens."""

    model_config = ConfigDict(extra="ignore", frozen=True)
