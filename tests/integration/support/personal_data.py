"""Fifty kinds of personal data that customers write, and the ways in which their words reach a gateway.

All are fictitious: numbers of documentations and test cards, example domains, made-up names.
"""

import json
from collections.abc import Awaitable, Callable

from tests.support.wire import Client

Way = Callable[[Client, str], Awaitable[None]]

PERSONAL = (
    "jane.doe+orders@mail.example",
    "j.p.o'neill@shop.example",
    "MARIA_LOPEZ@CORREO.EXAMPLE",
    "li.wei.1988@youxiang.example",
    "françois@courriel.example",
    "+1 (202) 555-0142",
    "020 7946 0018",
    "+49 30 23125 447",
    "0491 570 156",
    "+86 139 0000 0017",
    "4111 1111 1111 1111",
    "4111111111111111",
    "5555-5555-5555-4444",
    "3782 822463 10005",
    "6011000990139424",
    "CVC 737, valid 09/31",
    "GB33 BUKB 2020 1555 5555 55",
    "DE89370400440532013000",
    "FR14 2004 1010 0505 0001 3M02 606",
    "NL91ABNA0417164300",
    "BIC BUKBGB22XXX",
    "account 31926819, sort code 60-16-13",
    "078-05-1120",
    "QQ 12 34 56 C",
    "11010519491231002X",
    "passport C01X00T47",
    "driving licence MORGA657054SM9IJ",
    "born on 17 February 1979",
    "1979-02-17, place of birth Skagway",
    "Siobhan Vanterpool-Achebe",
    "Mr. Thaddeus Quillfeather",
    "Anneliese Müßiggang",
    "王小明女士",
    "Зинаида Кузнечикова",
    "42 Quince Tree Lane, Little Snoring NR21 0HZ",
    "Musterweg 7b, 99999 Beispielhausen",
    "Flat 9, 221 Nettlecombe Road, third bell",
    "朝阳区测试路88号3单元",
    "51.50140, -0.14189",
    "what3words ///plank.otter.juniper",
    "order HP-2048-77319",
    "loyalty card 9800 1234 5678 9013",
    "tracking 1Z999AA10123456784",
    "licence plate KX21 ZZZ",
    "VIN 1M8GDM9AXKP042788",
    "my password is correct-horse-battery",
    "PIN 8264",
    "one-time code 493-027",
    "203.0.113.77",
    "diagnosed with Quillhammer's syndrome",
)


async def asked(client: Client, text: str) -> None:
    await client.ask(f"I am {text}", max_output_tokens=3, metadata={"note": text}, stop=[text[:64]])


async def fallen_back(client: Client, text: str) -> None:
    answer = await client.ask(f"How do I return an item? {text}", first_token_ms=1)
    assert answer.outcome[2] != "model" or answer.text


async def cancelled(client: Client, text: str) -> None:
    event_id = await client.create(f"Tell me all about {text}", max_output_tokens=500)
    await client.send({"type": "response.cancel", "target_event_id": event_id})
    await client.answer(event_id)


async def too_long(client: Client, text: str) -> None:
    await client.create(text * (6_000 // len(text)))
    assert (await client.error())["code"] == "input_too_long"


async def of_a_wrong_type(client: Client, text: str) -> None:
    await client.send({"type": "response.create", "event_id": "e", "input": [text], "temperature": text})
    await client.error()


async def of_no_type(client: Client, text: str) -> None:
    await client.send({"type": "ask", "input": text})
    await client.error()


async def broken_off(client: Client, text: str) -> None:
    await client.send_raw(json.dumps({"type": "response.create", "event_id": "e", "input": text})[:-2])
    await client.error()


async def erased(client: Client, text: str) -> None:
    await asked(client, text)
    await client.send({"type": "session.delete"})
    await client.of_type("session.deleted")


async def lost(client: Client, text: str) -> None:
    event_id = await client.create(f"Tell me all about {text}", max_output_tokens=100)
    await client.created(event_id)
    client.socket.transport.abort()


WAYS = (asked, fallen_back, cancelled, too_long, of_a_wrong_type, of_no_type, broken_off, erased, lost)
