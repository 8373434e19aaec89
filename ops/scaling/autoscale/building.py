"""Build an autoscaler from its options and the settings."""

import os
from typing import Final

import msgspec

from ops.operate.leader import Leadership
from ops.scaling.autoscale.autoscaler import Autoscaler, Measure
from ops.scaling.autoscale.basis import Basis
from ops.scaling.autoscale.capacity import Capacity, costs_of, promise_of, simulate
from ops.scaling.autoscale.deletion_costs import DeletionCosts
from ops.scaling.autoscale.evidence import Evidence, Pool
from ops.scaling.autoscale.expectation import Expectation
from ops.scaling.autoscale.hands import Elsewhere, Hands
from ops.scaling.autoscale.local_workers import LocalWorkers, start_worker
from ops.scaling.autoscale.options import RunOptions
from ops.scaling.autoscale.policy import Sizing
from ops.scaling.autoscale.variants import Variants
from ops.scaling.forecast.calendar import Calendar
from ops.scaling.forecast.demand_forecast import DemandForecast
from ops.traces.costs import CPU, read_costs
from shared.kafka import PartitionReader, Producer
from shared.settings import Settings
from shared.wire.topics import BROADCAST_PARTITION, BUCKETS

_CLIENT: Final = "replyline-autoscale"


def build(settings: Settings, options: RunOptions) -> Autoscaler:
    """Return the autoscaler of one pool. Raises `SettingsError` for a calendar or costs that cannot be used."""
    kafka, topics = settings.kafka, settings.kafka.topics
    buckets = tuple(bucket for bucket in BUCKETS if bucket in options.buckets.split(","))
    pool = Pool(name=options.pool, lane=options.lane, buckets=buckets)
    calendar = Calendar() if options.calendar is None else Calendar.read(options.calendar)
    group = f"{_CLIENT}-{pool.name}{'-dry' if options.dry_run else ''}"
    partitions = [BROADCAST_PARTITION]
    variants = None if options.variants is None else Variants(pool.name, tuple(options.variants.split(",")))
    return Autoscaler(
        kafka=kafka,
        evidence=Evidence(pool, variants),
        expectation=Expectation(DemandForecast(), calendar),
        sizing=Sizing(
            carries=0.0,
            attainment=options.attainment,
            least=options.least,
            most=options.most,
            stabilisation_ms=options.stabilisation_s * 1_000,
            standby=options.standby,
        ),
        measure=measure_of(settings, options),
        cold_start_ms=options.cold_start_s * 1_000,
        hands=_hands(settings, options, pool),
        dry=options.dry_run,
        producer=Producer(kafka, client_id=_CLIENT),
        leadership=Leadership.of(kafka, client_id=_CLIENT, topic=topics.demand, group=group),
        demand=PartitionReader(kafka, client_id=_CLIENT, topic=topics.demand, partitions=partitions, unhurried=True),
        reports=PartitionReader(kafka, client_id=_CLIENT, topic=topics.workers, partitions=partitions, unhurried=True),
        decisions=PartitionReader(kafka, client_id=_CLIENT, topic=topics.scaling, partitions=partitions, unhurried=True)
        if variants is not None
        else None,
    )


def measure_of(settings: Settings, options: RunOptions) -> Measure:
    """Return what finds the capacity: as it is given, by the costs given, or by what workers report; always with the
    operator's promise and the customers' mix."""
    given = None if options.costs is None else read_costs(options.costs)

    def measure(basis: Basis) -> Capacity:
        if options.carries is not None:
            return Capacity.given(options.carries, options.attainment)
        costs = given or (CPU if basis.law is None else costs_of(basis.law))
        costs = msgspec.structs.replace(costs, promised=promise_of(settings.promise, basis))
        slots = basis.slots or settings.worker.slots_without_gpu
        return simulate(costs, settings, slots=slots, goal=options.attainment)

    return measure


def _hands(settings: Settings, options: RunOptions, pool: Pool) -> Hands:
    if options.deletion_cost and not options.dry_run:
        return DeletionCosts.of(os.environ)
    if options.local and not options.dry_run:
        drain_s = settings.worker.drain_s + settings.kafka.request_timeout_ms / 1_000
        return LocalWorkers(lambda: start_worker(pool), drain_s)
    return Elsewhere()
