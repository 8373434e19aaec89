"""The dashboards, each a module."""

from ops.dashboards.pages.business import BUSINESS
from ops.dashboards.pages.latency import LATENCY
from ops.dashboards.pages.overview import OVERVIEW
from ops.dashboards.pages.stores import STORES
from ops.dashboards.pages.workers import WORKERS

PAGES = (OVERVIEW, LATENCY, WORKERS, STORES, BUSINESS)
