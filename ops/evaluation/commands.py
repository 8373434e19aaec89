"""The options of `replyline eval`."""

from ops.command_line import command_typed, output, run
from ops.evaluation.options import EvaluationOptions
from shared.errors import SettingsError


def evaluate(options: EvaluationOptions) -> None:
    """Ask questions with known answers, and report how many were answered right, by kind, language and source."""
    from ops.evaluation import program
    from shared.settings import load_settings
    from shared.telemetry.logs import configure_logs

    if options.model_dir is not None and not (options.model_dir / "manifest.json").is_file():
        raise SettingsError(f"--model-dir {options.model_dir}: holds no model; run: replyline model prepare")
    settings = load_settings()
    configure_logs(settings.log.model_copy(update={"level": "warning"}), process="eval")
    if options.fit:
        program.show_fit(settings, options, output())
        return
    run(lambda: program.evaluate(settings, options, command_typed(), output()))
