"""The dashboards, each a module."""

from ops.dashboards.pages.business import BUSINESS
from ops.dashboards.pages.engine import ENGINE
from ops.dashboards.pages.gateway import GATEWAY
from ops.dashboards.pages.kv import KV
from ops.dashboards.pages.latency import LATENCY
from ops.dashboards.pages.models import MODELS
from ops.dashboards.pages.overview import OVERVIEW
from ops.dashboards.pages.processes import PROCESSES
from ops.dashboards.pages.scheduler import SCHEDULER

PAGES = (OVERVIEW, LATENCY, SCHEDULER, KV, ENGINE, MODELS, GATEWAY, PROCESSES, BUSINESS)
