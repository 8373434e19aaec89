"""Formulas of queueing theory, to compare with the simulation. Pure.

Little: J. D. C. Little, 1961. Response time law of closed systems: Denning and Buzen, 1978. Waiting in M/G/k: Erlang C
with the correction of Lee and Longton, 1959.
"""

import math


def asked_per_s(chats: int, think_s: float, answer_s: float) -> float:
    """Return the rate of questions: λ = (N/T) · 1/(1 + ρ) with ρ = R/T. Each of N customers thinks for T seconds, asks,
    and waits R for the answer.

    The result is wrong if R grows with the load, since R is given here, and if customers come together, since it is an
    average.
    """
    return chats / think_s / (1.0 + answer_s / think_s)


def in_system(per_s: float, residence_s: float) -> float:
    """Return the mean number of questions being answered, by Little's law."""
    return per_s * residence_s


def erlang_c(servers: int, offered: float) -> float:
    """Return the share of arrivals that wait, with this number of servers and `offered` = λ·S erlangs, which is less
    than `servers`."""
    if offered >= servers:
        return 1.0
    blocked = 1.0
    for number in range(1, servers + 1):
        blocked = offered * blocked / (number + offered * blocked)
    return servers * blocked / (servers - offered * (1.0 - blocked))


def wait_s(servers: int, per_s: float, service_s: float, variation: float, share: float) -> float:
    """Return the wait that `share` of all arrivals do not exceed, in M/G/k; infinite if arrivals exceed the capacity.

    Args:
        servers: the number of servers.
        per_s: arrivals a second.
        service_s: the mean service time.
        variation: the standard deviation of the service time, as a share of its mean.
        share: the share of arrivals.
    """
    offered = per_s * service_s
    if offered >= servers:
        return math.inf
    waiting = erlang_c(servers, offered)
    if waiting <= 1.0 - share:
        return 0.0
    correction = (1.0 + variation**2) / 2.0
    return correction * math.log(waiting / (1.0 - share)) * service_s / (servers - offered)


def fewest_servers(per_s: float, service_s: float, variation: float, *, within_s: float, share: float) -> int:
    """Return the fewest servers at which `share` of all arrivals wait no longer than `within_s`."""
    least = math.floor(per_s * service_s) + 1
    most = least
    while wait_s(most, per_s, service_s, variation, share) > within_s:
        most *= 2
    while least < most:
        middle = (least + most) // 2
        if wait_s(middle, per_s, service_s, variation, share) > within_s:
            least = middle + 1
        else:
            most = middle
    return least
