"""A recording as a trace that can be simulated. Pure."""

import math
from statistics import fmean

from ops.traces.recording import Recording
from ops.traces.trace import Request
from shared.errors import SettingsError


def traced(recording: Recording) -> list[Request]:
    """Each request as the simulator takes it. Lengths are those of the model's answers; where there was none, their
    means. Raises `SettingsError` where the model answered nothing."""
    whole = {number: answer for number, answer in recording.answered.items() if answer.whole and answer.output_tokens}
    if not whole:
        raise SettingsError(
            f"{recording.name}: holds no answer of the model, so no lengths; record while a worker runs"
        )
    mean_output = math.ceil(fmean(answer.output_tokens for answer in whole.values()))
    around = fmean(answer.prompt_tokens - recording.asked[number].input_tokens for number, answer in whole.items())
    requests = []
    for number, one in enumerate(recording.asked):
        answer = whole.get(number)
        prompt_tokens = answer.prompt_tokens if answer else one.input_tokens + round(around)
        output_tokens = answer.output_tokens if answer else mean_output
        requests.append(
            Request(
                arrival_ms=one.at_ms,
                bucket=one.bucket,
                prompt_tokens=max(1, prompt_tokens),
                output_tokens=max(1, min(output_tokens, one.max_output_tokens)),
                max_output_tokens=one.max_output_tokens,
                first_token_ms=min(one.first_token_ms, 3_600_000),
                deadline_ms=min(one.deadline_ms, 3_600_000),
                tenant=one.tenant,
                session=one.session,
            )
        )
    return requests
