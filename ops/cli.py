"""`replyline`: the commands for operators and developers."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from ops.command_line import (
    ASK_PANEL,
    DEFAULT_URL,
    MEASURE_PANEL,
    OPERATE_PANEL,
    RUN_PANEL,
    SET_UP_PANEL,
    VERSIONS_PANEL,
    Token,
    UrlOfGateway,
    WithLab,
    by_options,
    run_app,
    settings_of,
)
from ops.evaluation.commands import evaluate
from ops.lifecycle.checking.commands import check_version
from ops.lifecycle.learn.commands import learn_app
from ops.lifecycle.rollout.commands import rollout_app
from ops.lifecycle.shadow.commands import shadow_app
from ops.lifecycle.versions.commands import versions_app
from ops.operate.diagnose.commands import diagnose
from ops.operate.dlq import dlq_app
from ops.operate.edge import edge
from ops.operate.faq.commands import faq_app
from ops.operate.handoffs import handoffs_app
from ops.operate.incidents.commands import incidents_app
from ops.operate.recording.commands import record
from ops.operate.topics_app import topics_app
from ops.paths import FILE_TO_READ, FOLDER_TO_READ, FOLDER_TO_WRITE, PATH_TO_READ, to_read
from ops.scaling.commands import autoscale_app
from ops.scaling.plan.commands import plan
from shared.client.telling import ConnectFailed
from shared.errors import BrokerUnavailable, ModelError, ReplylineError, SettingsError, StoreUnavailable
from shared.model.folder import Precision
from shared.process.clock import now_unix_ms, wire_unix_ms
from shared.process.extras import missing_extra
from shared.process.lifetime import BAD_INPUT_STATUS, fail, run_until_signal
from shared.settings import PREFIX
from shared.wire.fields import MAX_INTEGER, MAX_SEED

app = typer.Typer(
    name="replyline",
    help="Streaming chat answers over Kafka, each within its deadline.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    cls=WithLab,
)
model_app = typer.Typer(help="Prepare the model's folder.", no_args_is_help=True)
engine_app = typer.Typer(help="Build what an engine needs before it starts.", no_args_is_help=True)


@app.command(rich_help_panel=RUN_PANEL)
def up(
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65_535, help=f"customers' port (default: {PREFIX}GATEWAY__PORT, 8080)"),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="print the log's JSON lines, as to a file or pipe, not lines for a person")
    ] = False,
) -> None:
    """Run everything on this machine: embedded Kafka and Redis, one gateway, one worker. Ctrl-C drains and stops it, a
    second Ctrl-C stops it immediately."""
    from ops.model.embeddings import with_prepared_embeddings
    from ops.model.terminal import ensure_engine
    from ops.operate.up import check_ports
    from ops.operate.up import up as run
    from shared.faq.entries import read_entries

    if port is not None:
        os.environ[f"{PREFIX}GATEWAY__PORT"] = str(port)  # of the gateway, a child, too
    settings = with_prepared_embeddings(settings_of("up"))
    check_ports(settings.gateway)  # before the model is prepared, which takes minutes
    if settings.faq.path is not None:
        read_entries(settings.faq.path)  # once here, rather than in the gateway and in the worker
    ensure_engine(settings, Console(stderr=True))
    as_json = as_json or not sys.stdout.isatty()
    raise typer.Exit(run_until_signal(lambda stop: run(settings, stop, as_json=as_json)))


@app.command(rich_help_panel=RUN_PANEL)
def gateway() -> None:
    """Run one gateway against the configured Kafka and Redis."""
    from gateway.__main__ import main as run

    raise typer.Exit(run())


@app.command(rich_help_panel=RUN_PANEL)
def worker() -> None:
    """Run one inference worker against the configured Kafka and Redis."""
    from workers.__main__ import main as run

    raise typer.Exit(run())


@app.command(rich_help_panel=ASK_PANEL)
def ask(
    question: Annotated[str, typer.Argument(help="the question")],
    url: UrlOfGateway = DEFAULT_URL,
    token: Token = None,
    session: Annotated[str | None, typer.Option(help="the conversation's name; a name not in use begins one")] = None,
    max_output_tokens: Annotated[
        int | None, typer.Option(min=1, max=MAX_INTEGER, help="maximum length of the answer, in tokens")
    ] = None,
    deadline_ms: Annotated[
        int | None, typer.Option(min=1, max=MAX_INTEGER, help="deadline of the complete answer, in ms")
    ] = None,
    first_token_ms: Annotated[
        int | None, typer.Option(min=1, max=MAX_INTEGER, help="deadline of the first token, in ms")
    ] = None,
    temperature: Annotated[float | None, typer.Option(min=0, max=2, help="sampling temperature; 0 is greedy")] = None,
    seed: Annotated[int | None, typer.Option(min=0, max=MAX_SEED, help="seed of the sampling")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the whole response as JSON")] = False,
) -> None:
    """Ask one question and print the answer as it streams."""
    from ops.client.chat import ask_once
    from shared.client.open_messages import new_event_id
    from shared.wire.messages import ResponseCreate

    request = ResponseCreate(
        event_id=new_event_id(),
        input=question,
        max_output_tokens=max_output_tokens,
        deadline_ms=deadline_ms,
        first_token_ms=first_token_ms,
        temperature=temperature,
        seed=seed,
    )
    raise typer.Exit(asyncio.run(ask_once(url, request, token=token, session_id=session, as_json=as_json)))


@app.command(rich_help_panel=ASK_PANEL)
def chat(
    url: UrlOfGateway = DEFAULT_URL,
    token: Token = None,
    session: Annotated[str | None, typer.Option(help="the conversation's name; a name not in use begins one")] = None,
    consent_training: Annotated[
        bool,
        typer.Option("--consent-training", help="agree that the conversation is recorded and used to train models"),
    ] = False,
) -> None:
    """Talk to the assistant in this terminal. /person asks for a person, /up and /down rate the last answer, /new
    starts over, /quit ends. Ctrl-C stops an answer, or ends the chat at the prompt."""
    from ops.client.chat import converse

    talk = converse(url, token=token, session_id=session, consent_training=consent_training)
    raise typer.Exit(asyncio.run(talk))


@app.command(rich_help_panel=ASK_PANEL)
def token(
    tenant: Annotated[str, typer.Option(help="the shop")],
    subject: Annotated[str, typer.Option(help="the customer; only this subject can open its conversations")],
    ttl_s: Annotated[int, typer.Option("--ttl-s", min=1, max=31_536_000, help="seconds until it expires")] = 3_600,
    private_key: Annotated[
        Path | None, typer.Option(callback=FILE_TO_READ, help="PEM file to sign with, instead of the secret")
    ] = None,
    kid: Annotated[str | None, typer.Option(help="the key's id in the gateway's JWKS")] = None,
    edge: Annotated[
        bool, typer.Option("--edge", help="a token for an edge, which acts for every customer of the tenant")
    ] = False,
    agent: Annotated[
        bool, typer.Option("--agent", help="a token for a person at the desk, who answers the tenant's customers")
    ] = False,
    revoke: Annotated[
        bool, typer.Option("--revoke", help="print no token, but the line of REPLYLINE_AUTH__REVOKED that ends theirs")
    ] = False,
) -> None:
    """Print a token for trying out. In production the shop's server or an identity provider issues tokens."""
    from gateway.access.revocation_file import revocation
    from ops.operate.token import mint_token

    if revoke:
        sys.stdout.write(f"{revocation(tenant, subject, wire_unix_ms())}\n")
        return
    made = mint_token(
        settings_of("token").auth,
        tenant=tenant,
        subject=subject,
        ttl_s=ttl_s,
        now_unix_ms=now_unix_ms(),
        private_key=private_key,
        kid=kid,
        edge=edge,
        agent=agent,
    )
    sys.stdout.write(f"{made}\n")


@app.command(rich_help_panel=SET_UP_PANEL)
def doctor(
    purpose: Annotated[
        Literal["demo", "production"] | None,
        typer.Option("--for", help="what must run here (default: production if the address of Kafka or Redis is set)"),
    ] = None,
) -> None:
    """List what is missing on this machine, each with the command that installs it."""
    from ops.operate.doctor.checks import run_doctor

    raise typer.Exit(run_doctor(settings_of("doctor"), purpose))


@app.command("settings", rich_help_panel=SET_UP_PANEL)
def show_settings(
    as_markdown: Annotated[
        bool, typer.Option("--markdown", help="print docs/settings.md, with the default values")
    ] = False,
) -> None:
    """List every setting by topic: its variable, its value here, its meaning. Without a terminal, print one line per
    setting."""
    from ops.operate.settings_list import show, written_page

    if as_markdown:
        typer.echo(written_page(), nl=False)
    else:
        show(settings_of("settings"))


@app.command(rich_help_panel=SET_UP_PANEL)
def schema(
    typescript: Annotated[bool, typer.Option("--typescript", help="print a client's messages as TypeScript")] = False,
) -> None:
    """Print the wire protocol (WebSocket and Kafka) as an AsyncAPI 3 document."""
    from ops.operate import asyncapi
    from ops.operate import typescript as types

    sys.stdout.write(types.render() if typescript else asyncapi.render())


@model_app.command("prepare")
def prepare(
    source: Annotated[
        Path | None,
        typer.Option(callback=PATH_TO_READ, help="a GGUF file or a Hugging Face folder (default: the demo's model)"),
    ] = None,
    precision: Annotated[
        Precision,
        typer.Option(help="native: int8, q4; onnx: int8, fp32; tensorrt: fp16, bf16; torch: fp32, fp16, bf16"),
    ] = "int8",
    adapter: Annotated[
        str | None,
        typer.Option(
            metavar="DIR|none",
            callback=to_read(file=False, folder=True, names=("none",)),
            help="LoRA to merge, as saved by PEFT (default: the demo's, for its model)",
        ),
    ] = None,
    languages: Annotated[
        str | None, typer.Option(metavar="en,zh", help="languages that the model answers in (default: any)")
    ] = None,
    directory: Annotated[
        Path, typer.Option("--dir", callback=FOLDER_TO_WRITE, help="where the model's folder is created")
    ] = Path(".models"),
    max_length: Annotated[
        int, typer.Option(min=1, help="fp16, bf16: tokens per slot of TensorRT, prompt and answer")
    ] = 2_048,
) -> None:
    """Create a model's folder from its weights. Does nothing if the folder exists already."""
    from ops.model import terminal

    console = Console(stderr=True)
    terminal.prepare_with_progress(
        directory,
        precision,
        source,
        console,
        adapter=terminal.adapter_of(adapter, source),
        languages=terminal.languages_of(languages),
        max_length=max_length,
    )
    if precision in {"int8", "q4"}:
        terminal.ensure_library(settings_of("model"), console)
    if source is None:
        terminal.prepare_installed_embeddings(directory, console)


@engine_app.command("build")
def build(
    engine: Annotated[
        Literal["native", "tensorrt", "tensorrt-rtx"],
        typer.Option(help="tensorrt builds on the GPU, tensorrt-rtx and native anywhere"),
    ] = "tensorrt",
    model: Annotated[
        Path | None,
        typer.Option(callback=FOLDER_TO_READ, help="an fp16 model's folder (default: REPLYLINE_MODEL__DIR)"),
    ] = None,
    slots: Annotated[int | None, typer.Option(min=1, help="sequences decoded together (default: the setting)")] = None,
    max_length: Annotated[
        int | None, typer.Option(min=64, help="maximum tokens per sequence (default: the setting)")
    ] = None,
) -> None:
    """Build the native engine's library, or a model's TensorRT plans, in REPLYLINE_WORKER__CACHE_DIR, unless they exist
    already."""
    from ops.model.engine_build import build_engine
    from ops.model.terminal import ensure_library

    given = {"engine": engine, "slots": slots, "max_length": max_length}
    worker = {name: value for name, value in given.items() if value is not None}
    overrides = {} if model is None else {"model": {"dir": model}}
    settings, console = settings_of("engine", worker=worker, **overrides), Console(stderr=True)
    if engine != "native":
        build_engine(settings, console)
    elif not ensure_library(settings, console):
        raise typer.Exit(BAD_INPUT_STATUS)


app.command(rich_help_panel=RUN_PANEL)(edge)
app.command(rich_help_panel=OPERATE_PANEL)(diagnose)
app.command(rich_help_panel=OPERATE_PANEL)(by_options(record))
app.command("eval", rich_help_panel=MEASURE_PANEL)(by_options(evaluate))
app.command(rich_help_panel=MEASURE_PANEL)(by_options(plan))
app.add_typer(topics_app, name="topics", rich_help_panel=SET_UP_PANEL)
app.add_typer(model_app, name="model", rich_help_panel=SET_UP_PANEL)
app.add_typer(engine_app, name="engine", rich_help_panel=SET_UP_PANEL)
app.add_typer(faq_app, name="faq", rich_help_panel=SET_UP_PANEL)
app.add_typer(incidents_app, name="incidents", rich_help_panel=OPERATE_PANEL)
app.add_typer(dlq_app, name="dlq", rich_help_panel=OPERATE_PANEL)
app.add_typer(handoffs_app, name="handoffs", rich_help_panel=OPERATE_PANEL)
app.add_typer(autoscale_app, name="autoscale", rich_help_panel=OPERATE_PANEL)
versions_app.command("check")(check_version)
app.add_typer(versions_app, name="versions", rich_help_panel=VERSIONS_PANEL)
app.add_typer(rollout_app, name="rollout", rich_help_panel=VERSIONS_PANEL)
app.add_typer(shadow_app, name="shadow", rich_help_panel=VERSIONS_PANEL)
app.add_typer(learn_app, name="learn", rich_help_panel=VERSIONS_PANEL)


def main() -> None:
    """Run the command line. Bad input prints one line and exits with status 2, any other failure with status 1."""
    try:
        status = run_app(app)
    except (SettingsError, ModelError) as error:
        sys.exit(fail(str(error), BAD_INPUT_STATUS))
    except (BrokerUnavailable, StoreUnavailable) as error:
        from ops.stack.demo_env import demo_remedy

        sys.exit(fail(f"{error}{demo_remedy()}", 1))
    except ConnectFailed as error:
        from ops.stack.demo_env import demo_remedy

        remedy = demo_remedy() if f"{DEFAULT_URL}:" in str(error) else ""  # the settings file names another address
        remedy = " (by REPLYLINE_TOKEN; see: replyline token --help)" if error.refused == "unauthorized" else remedy
        sys.exit(fail(f"{error}{remedy}", 1))
    except ReplylineError as error:
        sys.exit(fail(str(error), 1))
    except ImportError as error:
        lacking = missing_extra(error)
        if lacking is None:
            raise
        sys.exit(fail(lacking, BAD_INPUT_STATUS))
    except OSError as error:  # such as an unreadable file or a full disk
        sys.exit(fail(str(error) or type(error).__name__, 1))
    sys.exit(status)


if __name__ == "__main__":
    main()
