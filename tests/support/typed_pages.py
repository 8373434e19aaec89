"""The blocks of commands that pages print, and for each the test that types it, or the reason why none does."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "runbooks").glob("*.md"))
DEMO: Final = "tests/integration/commands/test_pages_typed.py"
"""Types a block on the demo's embedded services, with the demo's model."""

_FENCED: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INDENTED: Final = re.compile(r"(?:(?<=\n\n)|\A)((?:    .*\n)(?:    .*\n|\n(?=    ))*)")
_PROGRAM: Final = re.compile(
    r"(?:(?:export )?[A-Z_]+=\S+ )*(?:\.|export|for|replyline|make|docker|helm|kubectl|pip|openssl|printf|echo|kcat"
    r"|mkdir|kafka-\w+\.sh|promtool|llama-server|(?:\.venv/bin|ops)/\S+)(?: |$)"
)
_DEMO_ENV: Final = re.compile(r"\. \.run/demo\.env|export PATH=\$PWD/\.venv/bin:\$PATH && source \.run/demo\.env")
_OWN: Final = re.compile(r"<\w|…|10\.0\.0\.|\.example|:9090|~/|/models/|\b17\b")
"""Marks a line that names something only the reader has: a file, a host, a dead letter."""

_INLINE: Final = re.compile(r"`((?:redis-cli|replyline) [^`]+)`")
_ELSEWHERE: Final = re.compile(
    r"\b(?:HOST|ID|N|rollout|chaos|info stats|dlq replay|diagnose|doctor|autoscale run|topics create)\b|--edge"
)
"""Marks a runbook's command that needs a rollout, a dead letter, a cluster or many minutes, or fails on a busy
machine."""

_CLUSTER: Final = "needs a Kubernetes cluster and an image registry"
_COMPOSE: Final = "needs docker: tests/unit/repo/test_compose.py compares the layout with the settings"
_GPU: Final = "needs a GPU, or packages of several GB"
_KAFKA: Final = "needs Apache Kafka's tools and a Kafka of the reader's own"
_LLAMA: Final = "needs llama.cpp, which takes 25 minutes to build"
_MINUTES: Final = "takes many minutes"
_CHANNELS: Final = "tests/unit/shared/settings/test_channels_page.py"
LIFECYCLE: Final = "tests/proofs/lifecycle/test_page.py"
TYPED: Final = {
    "CONTRIBUTING.md: make check": _MINUTES,
    "README.md: make demo": DEMO,
    "README.md: make test": _MINUTES,
    "README.zh.md: make demo": "is README.md's block",
    "README.zh.md: make test": _MINUTES,
    "README.md: export PATH=$PWD/.venv/bin:$PATH && source .run/demo.env": DEMO,
    "README.zh.md: export PATH=$PWD/.venv/bin:$PATH && source .run/demo.env": DEMO,
    "docs/answers.md: replyline model prepare": DEMO,
    "docs/capacity.md: replyline plan --chats 10000": DEMO,
    'docs/channels.md: printf %s "$BOT_TOKEN" > chatwoot_token': _CHANNELS,
    'docs/channels.md: echo "whsec_$(openssl rand -base64 32)" > webhook_secret': _CHANNELS,
    "docs/cpu-engine.md: replyline doctor": "its commands are those of README.md and answers.md",
    "docs/dead-letters.md: replyline dlq list --since 2h --reason internal": DEMO,
    "docs/dead-letters.md: kafka-configs.sh --bootstrap-server …": _KAFKA,
    'docs/doors.md: curl -s "$OPENAI_BASE_URL/models"': "tests/integration/doors/test_openai_client.py",
    'docs/doors.md: grpc-health-probe -addr="$GRPC_ADDRESS"': "tests/integration/doors/test_grpc_client.py",
    "docs/doors.md: npm ci --prefix examples/ai-sdk": "tests/integration/doors/test_ai_sdk_client.py",
    "docs/edge.md: mkdir faq-keys": DEMO,
    "docs/edge.md: replyline edge --centre wss://chat.example/ws": "names a centre; the block below is typed",
    "docs/edge.md: REPLYLINE_AUTH__SECRET_FILE=secret REPLYLINE_EDGE__SIGNED_FAQ=faq.signed make demo": DEMO,
    "docs/edge.md: REPLYLINE_AUTH__MODE=anonymous REPLYLINE_GATEWAY__PORT=8085 replyline edge": DEMO,
    "docs/edge.md: replyline token --revoke": "tests/unit/ops/operate/test_mint_token.py",
    "docs/engines.md: make bench-engines": _LLAMA,
    "docs/engines.md: .venv/bin/pip install -e": _GPU,
    "docs/engines.md: docker build": _GPU,
    "docs/engines.md: replyline engine build --engine tensorrt-rtx": _GPU,
    "docs/evaluation.md: replyline eval": _MINUTES,
    "docs/lifecycle.md: replyline versions add .models/smollm2-135m-shop-int8 --name shop-2": (
        "tests/integration/commands/test_lifecycle_typed.py"
    ),
    "docs/lifecycle.md: mkdir keys": DEMO,
    "docs/lifecycle.md: replyline rollout start": "tests/integration/faults/test_rollout.py",
    "docs/lifecycle.md: REPLYLINE_WORKER__LANE=shadow replyline worker": "tests/integration/answers/test_shadow.py",
    "docs/lifecycle.md: replyline learn list": "tests/integration/services/test_learning.py",
    "docs/lifecycle.md: REPLYLINE_ANSWERS__POLICY=model": LIFECYCLE,
    "docs/lifecycle.md: export REPLYLINE_ANSWERS__POLICY=model": LIFECYCLE,
    "docs/lifecycle.md: replyline versions add .models/smollm2-135m-shop-int8 --name shop": LIFECYCLE,
    "docs/lifecycle.md: replyline versions add .models/smollm2-135m-instruct-worse-int8": LIFECYCLE,
    "docs/lifecycle.md: make lifecycle": _MINUTES,
    "docs/measured.md: replyline bench --rate": _MINUTES,
    "docs/measured.md: replyline record": "tests/integration/harness/test_load_tools.py",
    "docs/models.md: replyline model prepare": DEMO,
    "docs/models.md: replyline optimize distill": _GPU,
    "docs/models.md: replyline optimize prune": "takes minutes; tests/unit/ops/lab/optimize/test_prune.py",
    "docs/models.md: make smaller": _MINUTES,
    "docs/models.md: .venv/bin/pip install": _GPU,
    "docs/models.md: replyline model prepare --precision q4": DEMO,
    "docs/models.md: .venv/bin/python -m tests.bench.engines.experts": "tests/conformance/test_experts.py",
    "docs/models.md: PYTHONPATH=.:tests .venv/bin/python": _GPU,
    "docs/observability.md: replyline diagnose": DEMO,
    "docs/observability.md: promtool test rules": "tests/integration/harness/test_alerts.py",
    "docs/observability.md: docker compose": _COMPOSE,
    "docs/observability.md: .venv/bin/pip install -e '.[tracing]'": "installs packages; the variable: test_traces.py",
    "docs/observability.md: replyline profile": DEMO,
    "docs/producers.md: .venv/bin/python examples/producer.py": DEMO,
    "docs/producers.md: replyline topics create": DEMO,
    "docs/producers.md: echo": "needs kcat; tests/integration/services/test_producer.py writes the same record",
    "docs/production.md: .venv/bin/replyline doctor --for production": "fails if the machine lacks something",
    "docs/production.md: ops/setup/venv demo": "needs docker; its first line is in make demo",
    "docs/production.md: pip install": "installs packages; tests/integration/doors/test_packages.py runs the wheel",
    "docs/production.md: docker compose run": _COMPOSE,
    "docs/production.md: mkdir -p pages faq": DEMO,
    "docs/production.md: printf 'id;lang": DEMO,
    "docs/production.md: replyline faq read pages --out draft.json": "tests/browser/test_review_page.py",
    "docs/production.md: replyline faq read https": "tests/unit/ops/operate/faq/test_again.py",
    "docs/production.md: export REPLYLINE_FAQ__PATH=$PWD/mine.json": DEMO,
    "docs/production.md: replyline eval --fit --questions mine.jsonl": "names fifty questions of the reader's own",
    "docs/reliability.md: make reliability": _MINUTES,
    "docs/runbooks/README.md: docker compose run": _COMPOSE,
    "docs/runbooks/README.md: docker compose exec": _COMPOSE,
    "docs/scaling.md: docker build": _CLUSTER,
    "docs/scaling.md: replyline autoscale run --dry-run": _CLUSTER,
    "docs/scaling.md: kubectl exec": _CLUSTER,
    "docs/scaling.md: replyline autoscale run --min 2": "tests/integration/faults/test_autoscale.py",
    "docs/scaling.md: replyline autoscale simulate --hours 48": "tests/proofs/elastic/test_replay.py",
    "docs/scaling.md: replyline forecast --trace shop.json": "tests/unit/ops/lab/test_rolling.py",
    "docs/security.md: openssl rand -base64 48 > secret": DEMO,
    "docs/security.md: export REPLYLINE_AUTH__SECRET_FILE=secret": DEMO,
    "docs/security.md: export REPLYLINE_KAFKA__BOOTSTRAP_SERVERS=kafka-1:9093,kafka-2:9093": (
        "tests/integration/services/test_secured_services.py"
    ),
    "docs/simulation.md: replyline simulate": DEMO,
    "docs/testing.md: make world": "takes minutes; tests/unit/harness/test_world.py runs seeds 1 to 60",
    "docs/upstream.md: llama-server": _LLAMA,
}
"""Page and beginning of the first command: the test that types the block, or why none does. The longest key counts."""


@dataclass(frozen=True, slots=True)
class Block:
    """Lines that a reader types together, on a page named relative to the repository."""

    page: str
    text: str

    @property
    def name(self) -> str:
        """Return the page and the first command, other than the one that reads the demo's file."""
        first, *others = self.text.splitlines()
        command = others[0] if others and _DEMO_ENV.match(first) else first
        return f"{self.page}: {command.partition('  ')[0]}"

    @property
    def key(self) -> str | None:
        """Return the longest key of `TYPED` that the name begins with; None if the block is not listed."""
        return max((key for key in TYPED if self.name.startswith(key)), key=len, default=None)

    @property
    def lines(self) -> str:
        """Return the text without the lines that name something only the reader has."""
        return "".join(line for line in self.text.splitlines(keepends=True) if not _OWN.search(line))


def blocks(page: Path) -> Iterator[Block]:
    """Yield a page's blocks of commands, in the page's order."""
    text, name = page.read_text(), str(page.relative_to(ROOT))
    found = [(block.start(), block[2]) for block in _FENCED.finditer(text) if block[1] in {"", "bash", "sh", "shell"}]
    plain = _FENCED.sub(lambda block: re.sub(r"[^\n]", "`", block[0]), text)
    found += [(block.start(), re.sub("^    ", "", block[1], flags=re.MULTILINE)) for block in _INDENTED.finditer(plain)]
    yield from (Block(name, block) for _, block in sorted(found) if _PROGRAM.match(block))


RUNBOOK_COMMANDS: Final = sorted(
    {
        command
        for page in (ROOT / "docs" / "runbooks").glob("*.md")
        for command in _INLINE.findall(page.read_text())
        if not _ELSEWHERE.search(command)
    }
)
"""The commands within the runbooks' sentences that can be typed on the demo."""
ALL: Final = [block for page in sorted(PAGES) for block in blocks(page)]
