"""The part of a configuration that says on which processors and machines a run computes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from pettingllms_trainers.config.section import Section


class DeepSpeedConfig(Section):
    """A policy's update spread over the GPUs of several processes, by DeepSpeed.

    Without it, every process that a launcher starts holds all of it, and gradients are added up.
    """

    stage: Literal[0, 1, 2, 3] = 0
    """What is sharded over the processes instead of held in full by each (ZeRO): 1: optimizer
    state; 2: gradients too; 3: weights too; 0: nothing, DeepSpeed is not used. Needs the extra
    pettingllms-trainers[deepspeed]. Experimental on GPUs: tested on CPUs only."""
    offload: Literal["none", "optimizer", "all"] = "none"
    """What is kept in the memory of the CPU, at the price of time: optimizer state, or with stage
    3 weights too."""

    @model_validator(mode="after")
    def _check_offload(self) -> DeepSpeedConfig:
        needed = {"none": 0, "optimizer": 1, "all": 3}[self.offload]
        if self.stage < needed:
            raise ValueError(
                f'deepspeed.offload = "{self.offload}" needs deepspeed.stage = {needed}'
                f"{' or more' if needed < 3 else ''}; it is {self.stage}"
            )
        return self


class FsdpConfig(Section):
    """A policy's update spread over the GPUs of several processes, by FSDP2 of torch."""

    enabled: bool = False
    """Whether weights, gradients and optimizer state are sharded over the processes instead of held
    in full by each, as with deepspeed.stage = 3, but with nothing to install. Experimental on GPUs:
    tested on CPUs only."""


class RayConfig(Section):
    """Policies and environments in worker processes, on one machine or many, by Ray."""

    enabled: bool = False
    """Whether Ray is used; needs the extra pettingllms-trainers[ray]. Experimental: tested on CPUs
    of one machine only."""
    address: str = Field(default="", pattern=r"^(|auto|[^/]+:\d{1,5})$")
    """Ray cluster to join: HOST:PORT of its head, or auto on a machine of it; empty: one is started
    on this machine for the time of the run."""
    workers_per_policy: int = Field(default=1, ge=1)
    """Worker processes of every policy: its requests and updates are split over them; see
    deepspeed.stage."""
    gpus_per_worker: float = Field(default=1.0, ge=0)
    """GPUs of one policy worker; a fraction lets workers of several policies share one, 0 is for
    CPUs; more than 1 are for engine.vllm.tensor_parallel_size."""
    cpus_per_worker: float = Field(default=1.0, gt=0)
    """CPU cores of one policy worker."""
    num_env_workers: int = Field(default=0, ge=0)
    """Worker processes that step environments; 0: they are stepped by the main process."""
    cpus_per_env_worker: float = Field(default=1.0, gt=0)
    """CPU cores of one environment worker."""
    timeout_s: float = Field(default=300.0, gt=0)
    """How long the run waits for the cluster to give it these processors."""

    @model_validator(mode="after")
    def _check_gpus(self) -> RayConfig:
        if self.gpus_per_worker > 1 and not self.gpus_per_worker.is_integer():
            raise ValueError(
                f"ray.gpus_per_worker is {self.gpus_per_worker:g}: above 1 only full GPUs are given"
            )
        if self.workers_per_policy > 1 and 0 < self.gpus_per_worker < 1:
            raise ValueError(
                f"ray.gpus_per_worker is {self.gpus_per_worker:g}: several workers of one policy "
                "cannot share a GPU; set it to 1, or ray.workers_per_policy to 1"
            )
        return self
