"""`replyline doctor`: check what this machine has and lacks, each with the command that installs it.

`gather` collects facts (processes, files, sockets), `judge` decides (`ops/operate/doctor/rows.py`), `run_doctor` prints
the table and returns the exit status.
"""

from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.table import Table

from ops.command_line import output
from ops.operate.doctor.engine_facts import engine_facts
from ops.operate.doctor.kv_memory import kv_facts
from ops.operate.doctor.machine import machine_facts
from ops.operate.doctor.row import CheckRow
from ops.operate.doctor.rows import Facts, Purpose, judge, nothing_is_missing, verdict
from ops.operate.doctor.services import service_facts
from ops.stack.port_use import port_use
from shared.settings import CPU_ENGINES, Settings

_STYLES: Final = {"ok": "green", "warn": "yellow", "missing": "bold red"}


def purpose_of(settings: Settings) -> Purpose:
    """Return "production" if the address of Kafka or Redis is set, otherwise "demo"."""
    named = {*settings.kafka.model_fields_set, *settings.redis.model_fields_set, *settings.kv_redis.model_fields_set}
    return "production" if named & {"bootstrap_servers", "url"} else "demo"


def gather(settings: Settings) -> Facts:
    """Inspect this machine. Takes a few seconds at most and changes nothing."""
    engine, gateway, model_dir = engine_facts(settings), settings.gateway, settings.model.dir
    return Facts(
        machine=machine_facts(model_dir),
        services=service_facts(settings),
        port=gateway.port,
        port_use=port_use(gateway.host, gateway.port),
        model_dir=str(model_dir),
        model_prepared=(model_dir / "manifest.json").is_file(),
        uses_cpu_engine=not {*CPU_ENGINES}.isdisjoint({settings.worker.engine, settings.worker.fallback_engine}),
        kv=kv_facts(model_dir, settings.kv, native=engine.is_native) if settings.kv.enabled else None,
        engine=engine,
        has_origins=bool(gateway.allowed_origins),
        has_cursor_secret=gateway.cursor_secret_file is not None,
    )


def print_table(rows: Sequence[CheckRow], console: Console) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("what", "status", "found", "remedy"):
        table.add_column(title, overflow="fold")
    for row in rows:
        status = f"[{_STYLES[row.status]}]{row.status}[/]"
        table.add_row(row.name, status, row.detail.replace("[", "\\["), row.remedy.replace("[", "\\["))
    console.print(table)


def run_doctor(settings: Settings, purpose: Purpose | None = None, console: Console | None = None) -> int:
    """Print the table. Return 0 if nothing required is missing, otherwise 1. Without a purpose, the settings decide."""
    console = console or output()
    purpose = purpose or purpose_of(settings)
    facts = gather(settings)
    rows = judge(facts, purpose)
    print_table(rows, console)
    console.print(verdict(rows, facts, purpose), soft_wrap=True)
    return 0 if nothing_is_missing(rows) else 1
